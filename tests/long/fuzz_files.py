"""Ten thousand strange files through the command line, others every time: `make fuzz`.

Three of four are rows: small, damaged, packed, and of hostile shapes. The others are saved states
of every kind that were changed and have the right digest; they are loaded and used. All of it in
one process that may not have more than 8 GB.
"""

import resource
import sys

from hypothesis import HealthCheck, given, settings

from tests import crafted
from tests.cli import strange

N_FILES = 10_000
_MOST_BYTES = 8 * 2**30
_BETWEEN_REPORTS = 500  # files


def fuzz(n_files: int) -> None:
    """Check so many files; raise with the smallest one that fails."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    n_states = n_files // 4
    _run(n_files - n_states, "files of rows", strange.cases, strange.check)
    _run(n_states, "saved states", crafted.changes(), lambda case: crafted.check(*case))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{n_files} files: a result or a sentence for each, and nothing half written")
    print(f"at most {most:.0f} MB resident")


def _run(n_files, name, cases, check) -> None:
    n_checked = 0

    def counted(case):
        nonlocal n_checked
        check(case)
        n_checked += 1
        if n_checked % _BETWEEN_REPORTS == 0:
            print(f"{n_checked} of {n_files} {name}", flush=True)

    settings(
        max_examples=n_files,
        deadline=None,
        derandomize=False,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )(given(cases)(counted))()


if __name__ == "__main__":
    fuzz(int(sys.argv[1]) if len(sys.argv) > 1 else N_FILES)
