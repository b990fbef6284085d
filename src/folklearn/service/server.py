"""Run the service on an address, from an empty folder on."""

import ipaddress
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from uuid import UUID

import numpy as np
import uvicorn

from folklearn import serialization
from folklearn.errors import InvalidInputError
from folklearn.model.model import Model
from folklearn.service.app import application
from folklearn.service.changes import Change
from folklearn.service.client import Client, ServiceError
from folklearn.service.events import (
    Config,
    DecisionEvent,
    LabelEvent,
    LabelsRequest,
    RewardEvent,
    Row,
)
from folklearn.service.keys import Keys
from folklearn.service.limits import Limits, check_name
from folklearn.service.service import Service
from folklearn.service.store import ModelStore
from folklearn.synthetic import digits

TENANT = "main"


def lacks_key(folder: Path, host: str) -> bool:
    """Tell whether a folder has no key yet.

    Other machines are served only if the folder has a key already.
    """
    keys = Keys(folder)
    is_without = not keys.live()
    keys.close()
    if is_without and not is_loopback(host):
        raise InvalidInputError(
            f"to listen on {host} the folder needs a key that is there already: "
            f"folklearn key {folder} create --scope admin"
        )
    return is_without


def first_key(folder: Path) -> str:
    """Return the first key of a folder, made now."""
    keys = Keys(folder)
    try:
        return keys.create(tenant=TENANT, scopes=["admin"], note="the first key")
    finally:
        keys.close()


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(host: str, port: int) -> str:
    """Return where a browser finds the service."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def compile_kernels() -> None:
    """Do once what requests do, in a temporary folder, so that none waits for a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), Limits(free_disk=0))
        agent = Config(actions=["a", "b"], context={"x": "number"})
        words = Config(roles={"text": "words"})
        for name, config in (("numbers", Config()), ("words", words), ("agent", agent)):
            store.create(TENANT, name, config)
        rows: list[Row] = [
            {"x": i % 7, "z": i / 3, "c": f"{i % 5}", "when": f"2026-01-{1 + i % 28:02}"}
            for i in range(160)
        ]
        for name, column in (("numbers", {}), ("words", {"text": "one more text"})):
            host = store.hosts[TENANT, name]
            labels = [LabelEvent("ab"[i % 2], {**row, **column}) for i, row in enumerate(rows)]
            store.write([Change(host, label) for label in labels])
            store.write([Change(host, LabelsRequest(labels))])
            host.publish()
            host.published.state.predict_proba_one({**rows[0], **column})
        host = store.hosts[TENANT, "agent"]
        for _ in range(3):
            (decision,) = store.write([Change(host, DecisionEvent({"x": 1}))])
            store.write([Change(host, RewardEvent(UUID(decision.body["id"]), 1.0))])
        store.abandon()


def import_model(service: Service, path: Path, name: str | None = None) -> str:
    """Begin a model as a file that `Model.save` wrote; return its name, that of the file."""
    name = name or path.stem.lower()
    check_name("model", name)
    if not isinstance(serialization.load(path), Model):
        raise InvalidInputError(f"{path} holds no folklearn.Model: save one with Model.save")
    content, store = path.read_bytes(), service.store
    if (TENANT, name) in store.hosts:
        raise InvalidInputError(
            f"there is a model {name} already: start without --import to go on with it, or give "
            "the new one another --name"
        )
    service.writer.call(lambda: store.create(TENANT, name, Config(), content)).result()
    return name


FAILPOINTS = (
    "before_commit",
    "after_commit",
    "before_apply",
    "before_answer",
    "in_replay",
    "in_snapshot",
    "before_rename",
    "after_rename",
    "before_checkpoint",
    "after_checkpoint",
)


def die_at(where: str) -> None:
    """Kill this process, as kill -9 does, at a failpoint, for tests; an empty string is none.

    With ``after_commit:3`` it dies the third time that it comes to the failpoint ``after_commit``.
    """
    name, _, count = where.partition(":")
    n_left = int(count or 1)

    def hook(event: str, arguments: object) -> None:
        nonlocal n_left
        if event == f"folklearn.{name}":
            n_left -= 1
            if n_left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    if where:
        sys.addaudithook(hook)


def serve(
    folder: Path,
    host: str,
    port: int,
    limits: Limits | None = None,
    begun: Callable[[Service, int], None] = lambda service, port: None,
) -> None:
    """Serve a folder until a signal comes.

    `begun` is called before the first request, with the port that is listened on: with port 0 any
    that is free.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    die_at(os.environ.get("FOLKLEARN_DIE_AT", ""))
    with _listening(host, port) as listening:
        service = Service(folder, limits)
        keep_room(folder)
        begun(service, listening.getsockname()[1])
        config = uvicorn.Config(
            application(service),
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[listening])


def keep_room(folder: Path, size: int = 16_000_000) -> None:
    """Lay up a file that can be removed when the disk is full, to have room for tidying up."""
    ballast = folder / "ballast"
    if not ballast.exists() and shutil.disk_usage(folder).free > 100 * size:
        with open(ballast, "xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        ballast.chmod(0o600)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another port"
        ) from None


_PAUSE = 0.1  # seconds between two rows
_LATE = 30  # rows that come before a label does
_CLICKS = {"morning": [0.5, 0.2, 0.1], "evening": [0.1, 0.3, 0.6]}  # how likely, by action
_ACTIONS = ["news", "weather", "film"]


def start_demo(address: str, key: str) -> None:
    """Create a model and an agent, and teach them in the background until the service ends."""
    client = Client(address, key, tries=0)

    def run(teach: Callable[[Client], None]) -> None:
        with suppress(ConnectionError, ServiceError):
            teach(client)

    for teach in (_show_digits, _recommend):
        threading.Thread(target=run, args=(teach,), daemon=True).start()


def _show_digits(client: Client) -> None:
    """Let a model predict handwritten digits; labels come a little later."""
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
    rng = np.random.default_rng(7)  # not the seed of the agent
    for time_of_day in cycle(_CLICKS):
        chosen = agent.decide({"time": time_of_day})
        chance = _CLICKS[time_of_day][_ACTIONS.index(chosen.action)]
        agent.reward(chosen.id, float(rng.random() < chance))
        time.sleep(_PAUSE)
