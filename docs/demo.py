"""Serve a new folder while a model and an agent learn, to be watched in a browser: `make serve`."""

import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import numpy as np

from folklearn.cli.serve import warm_up_service
from folklearn.service import server
from folklearn.service.client import Client, ServiceError
from folklearn.service.service import Service
from folklearn.synthetic import DIGITS_TARGET, digits

CLICKS = {"morning": [0.5, 0.2, 0.1], "evening": [0.1, 0.3, 0.6]}  # how likely, by action
ACTIONS = ["news", "weather", "film"]
HOST, PORT = "127.0.0.1", 8080


def teach(address: str, key: str) -> None:
    """Create a model of digits, whose labels come later, and an agent; teach them for good."""
    client, rng = Client(address, key, tries=0), np.random.default_rng(7)  # not the agent's seed
    asked, times = deque[tuple[str | None, str]](), cycle(CLICKS)
    with suppress(ConnectionError, ServiceError):  # the service has ended
        model = client.create("digits")
        agent = client.create("front-page", actions=ACTIONS, context={"time": [*CLICKS]})
        for pixels in cycle(digits()):
            row = dict(pixels)
            label = row.pop(DIGITS_TARGET)
            asked.append((model.predict(row).id, label))
            if len(asked) > 30:  # a label comes so many rows late
                id, shown = asked.popleft()
                model.learn(shown, id=id)
            time_of_day = next(times)
            chosen = agent.decide({"time": time_of_day})
            chance = CLICKS[time_of_day][ACTIONS.index(chosen.action)]
            agent.reward(chosen.id, float(rng.random() < chance))
            time.sleep(0.1)


def start(address: str, key: str) -> None:
    """Teach in the background."""
    threading.Thread(target=teach, args=(address, key), daemon=True).start()


def main() -> None:
    folder = Path(tempfile.mkdtemp())

    def begin(service: Service, port: int) -> None:
        address, key = server.address(HOST, port), server.first_key(folder)
        print(f"open {address} in a browser, and log in with the key {key}; Ctrl-C ends it")
        start(address, key)

    warm_up_service()
    with suppress(KeyboardInterrupt):
        server.serve(folder, HOST, PORT, begun=begin)


if __name__ == "__main__":
    main()
