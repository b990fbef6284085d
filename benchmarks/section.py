"""Entry point of one section's process: section.py MODULE OPTIONS-AS-JSON.

Writes JSON lines to standard output: {"done": i, "total": n} while it works, then
{"result": ...}. Started by speed.py, which sets the environment.
"""

import importlib
import json
import sys


def _say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    """Measure one section."""
    module, options = sys.argv[1:]
    measure = importlib.import_module(module).measure
    result = measure(
        lambda done, total: _say({"done": done, "total": total}), **json.loads(options)
    )
    _say({"result": result})


if __name__ == "__main__":
    main()
