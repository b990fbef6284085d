"""Run the service on an address, from an empty folder on."""

import ipaddress
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import uvicorn

from folklearn import serialization
from folklearn.errors import InvalidInputError
from folklearn.model.model import Model
from folklearn.service import commands, events, failpoints
from folklearn.service.app import application
from folklearn.service.engine import Engine
from folklearn.service.keys import Keys
from folklearn.service.limits import Limits
from folklearn.service.names import check_name
from folklearn.service.service import Service

TENANT = "main"


def lacks_key(folder: Path, host: str) -> bool:
    """Tell whether a folder has no key yet.

    Beyond this machine nothing is served before somebody has made a key on purpose.
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


def use_every_kernel() -> None:
    """Do once what requests do, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as place:
        engine = Engine(Path(place), Limits(free_disk=0))
        agent = events.Config(actions=["a", "b"], context={"x": "number"})
        for name, config in (("numbers", events.Config()), ("agent", agent)):
            engine.create(TENANT, name, config)
        engine.create(TENANT, "words", events.Config(roles={"text": "words"}))
        rows: list[events.Row] = [
            {"x": i % 7, "z": i / 3, "c": f"{i % 5}", "when": f"2026-01-{1 + i % 28:02}"}
            for i in range(160)
        ]
        for name, column in (("numbers", {}), ("words", {"text": "one more text"})):
            hosted = engine.find(TENANT, name)
            assert hosted is not None
            labels = [
                commands.Label("ab"[i % 2], {**row, **column}, None) for i, row in enumerate(rows)
            ]
            engine.write([(hosted, commands.Learn(label)) for label in labels])
            engine.write([(hosted, commands.LearnMany(labels))])
            hosted.publish(now=True)
            hosted.view.state.predict_proba_one({**rows[0], **column})
        hosted = engine.find(TENANT, "agent")
        assert hosted is not None
        for _ in range(3):
            made = engine.write([(hosted, commands.Decide({"x": 1}))])[0]
            engine.write([(hosted, commands.Reward(UUID(made.body["id"]), 1.0))])
        engine.abandon()


def import_model(service: Service, path: Path, name: str | None = None) -> str:
    """Begin a model as a file that `Model.save` wrote; return its name, that of the file."""
    name = name or path.stem.lower()
    check_name("model", name)
    if not isinstance(serialization.load(path), Model):
        raise InvalidInputError(f"{path} holds no folklearn.Model: save one with Model.save")
    content, engine = path.read_bytes(), service.engine
    if engine.find(TENANT, name) is not None:
        raise InvalidInputError(
            f"there is a model {name} already: start without --import to go on with it, or give "
            "the new one another --name"
        )
    service.writer.call(lambda: engine.create(TENANT, name, events.Config(), content)).result()
    return name


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
    failpoints.die_at(os.environ.get("FOLKLEARN_DIE_AT", ""))
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
