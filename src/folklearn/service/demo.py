"""Something to watch: a client that teaches a model and an agent, slowly."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

import numpy as np

from folklearn.service.client import Client, ServiceError
from folklearn.synthetic.digits import digits

_PAUSE = 0.1  # seconds between two rows
_LATE = 30  # rows that come before a label does
_CLICKS = {"morning": [0.5, 0.2, 0.1], "evening": [0.1, 0.3, 0.6]}  # how likely, by action
_ACTIONS = ["news", "weather", "film"]


def begin(address: str, key: str) -> None:
    """Create a model and an agent, and teach them in the background until the service ends."""
    client = Client(address, key, tries=0)

    def run(teach: Callable[[Client], None]) -> None:
        with suppress(ConnectionError, ServiceError):
            teach(client)

    for teach in (_show_digits, _recommend):
        threading.Thread(target=run, args=(teach,), daemon=True).start()


def _show_digits(client: Client) -> None:
    """Let a model guess handwritten digits; what they are is told a little later."""
    pixels, labels = digits()
    rows = (
        dict(zip(pixels, row, strict=True)) for row in np.column_stack([*pixels.values()]).tolist()
    )
    model = client.create("digits")
    asked: deque[tuple[str | None, str]] = deque()
    for row, label in cycle([*zip(rows, labels, strict=True)]):
        asked.append((model.predict(row).id, label))
        if len(asked) > _LATE:
            id, shown = asked.popleft()
            model.learn(shown, id=id)
        time.sleep(_PAUSE)


def _recommend(client: Client) -> None:
    """Let an agent find out what people click on in the morning, and what in the evening."""
    agent = client.create("front-page", actions=_ACTIONS, context={"time": [*_CLICKS]})
    rng = np.random.default_rng(7)  # not the seed of the agent: the world draws for itself
    for time_of_day in cycle(_CLICKS):
        chosen = agent.decide({"time": time_of_day})
        chance = _CLICKS[time_of_day][_ACTIONS.index(chosen.action)]
        agent.reward(chosen.id, float(rng.random() < chance))
        time.sleep(_PAUSE)
