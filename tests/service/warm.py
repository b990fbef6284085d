"""Loads everything that a life needs, kernels too, into the process that forks them."""

from pathlib import Path

from tests.service import lives
from tests.service.clients import ShortLine, session


def warm_up() -> None:
    """Run a client through."""
    with lives.scratch() as place:
        folder = Path(place) / "folder"
        secret = lives.first_key(folder)
        service = lives.Service(folder, lives.LIMITS)
        line, client = ShortLine(lives.application(service), secret), session(0, 60)
        with lives.suppress(StopIteration):
            request = next(client)
            while True:
                request = client.send(line.send(request))
        service.close()


warm_up()
