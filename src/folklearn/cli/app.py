"""The entry point: every way to fail becomes one sentence and an exit code."""

import os
import sys
from collections.abc import Sequence

from folklearn.errors import FolklearnError

BAD_INPUT = 2
BROKEN_PIPE = 1
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        # Here, because the extra may be missing, and that deserves a sentence too.
        from folklearn.cli.commands import dispatch

        code = dispatch(arguments)
        sys.stdout.flush()  # a closed pipe must show here, not when the interpreter ends
        return code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):
            raise
        return _fail(
            f"the command line needs {package}, which comes with the extra: "
            "pip install 'folklearn[cli]'"
        )
    except FolklearnError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        return BROKEN_PIPE
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        return _fail(f"{error.filename}: {error.strerror}" if named else str(error))


def _fail(sentence: str) -> int:
    print(f"folklearn: {sentence}", file=sys.stderr)
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
