"""Write a small folder of the present format: ``python -m tests.service.make_format FOLDER``.

The folders in data/ were written when their format was new, and stay: every release opens them.
"""

import json
import shutil
import sys
from pathlib import Path

from folklearn.service.limits import Limits
from folklearn.service.server import application
from folklearn.service.service import Service
from tests.service import lives
from tests.service.clients import ShortLine, session

SEED, N_REQUESTS = 29, 24


def make(folder: Path) -> None:
    """Write journal, keys, a snapshot of each model, and beside them what was answered."""
    secret = lives.first_key(folder)
    service, done = Service(folder, Limits(free_disk=0, replay=1e9)), []
    line, client = ShortLine(application(service), secret), session(SEED, N_REQUESTS)
    request = next(client)
    for _ in range(N_REQUESTS + 1):
        answer = line.send(request)
        done.append((request, answer))
        request = client.send(answer)
    service.close()
    for path in folder.iterdir():
        if path.name not in ("journal.db", "keys.json", "head", "snapshots"):
            path.unlink()
    content = {"secret": secret, "requests": done}
    (folder / "answers.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    make(Path(sys.argv[1]))
