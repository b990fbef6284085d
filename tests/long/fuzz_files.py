"""Ten thousand strange files through the command line, others every time: `make fuzz`."""

import sys

from hypothesis import HealthCheck, given, settings

from tests.cli import strange

N_FILES = 10_000


def fuzz(n_files: int) -> None:
    """Check so many files; raise with the smallest one that fails."""
    run = settings(
        max_examples=n_files,
        deadline=None,
        derandomize=False,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )(given(strange.cases)(strange.check))
    run()
    print(f"{n_files} files: a result or a sentence for each, and nothing half written")


if __name__ == "__main__":
    fuzz(int(sys.argv[1]) if len(sys.argv) > 1 else N_FILES)
