"""Entry point of the command line: every error becomes one sentence and an exit code."""

import os
import signal
import sys
from collections.abc import Sequence

from folklearn.cli.endings import EXIT_CODES, Terminated, handle_signals, raise_signal
from folklearn.errors import FolklearnError

BAD_INPUT = 2
BROKEN_PIPE = 1
_EXTRAS = dict.fromkeys(("rich", "typer"), "cli") | dict.fromkeys(
    ("apsw", "httptools", "jinja2", "msgspec", "prometheus_client", "starlette", "uvicorn"), "serve"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        # Imported here, because the extra may be missing.
        from folklearn.cli.commands import dispatch

        # SIGTERM unwinds like Ctrl-C, so that no temporary file is left.
        with handle_signals(raise_signal, [signal.SIGTERM]):
            code = dispatch(arguments)
        if sys.stdout is not None:  # None if the calling process closed it
            sys.stdout.flush()  # a closed pipe must show here, not when the interpreter ends
        return code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        return _fail(
            f"this command needs {package}, which comes with the extra: "
            f"pip install 'folklearn[{_EXTRAS[package]}]'"
        )
    except FolklearnError as error:
        return _fail(str(error))
    except SystemExit as end:  # a signal ended a stream, and all results were written
        return int(end.code or 0)
    except KeyboardInterrupt:
        return _fail("interrupted: nothing was written", EXIT_CODES[signal.SIGINT])
    except Terminated:
        return _fail("terminated: nothing was written", EXIT_CODES[signal.SIGTERM])
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        return BROKEN_PIPE
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        return _fail(f"{error.filename}: {error.strerror}" if named else str(error))


def _fail(sentence: str, code: int = BAD_INPUT) -> int:
    print(f"folklearn: {sentence}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
