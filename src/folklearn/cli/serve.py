"""`folklearn serve`, `backup` and `key`: the service of a folder; `warmup`: compiled kernels."""

import shlex
import time
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from typer import Argument, Option

from folklearn.bandits.rewards import auto as new_agent
from folklearn.cli.commands import Command, Group
from folklearn.cli.display import new_console, open_console
from folklearn.cli.endings import Terminated
from folklearn.cli.options import LEARNERS, Quiet, parse_seconds
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.evaluate.auditing import audit
from folklearn.evaluate.best_linear import best_in_class
from folklearn.model.model import Model
from folklearn.service.limits import DEFAULT_SCOPES, SCOPES, Limits
from folklearn.utils import count_of

if TYPE_CHECKING:
    from folklearn.service.keys import Keys

_SCOPES = "|".join(SCOPES)
_SCOPE_HELP = f"Permission, admin is everything; repeatable. Default: {', '.join(DEFAULT_SCOPES)}."
_N_WARM_UP_ROWS = 160  # enough for every size of batch, and for the hold-out


class LogForm(StrEnum):
    TEXT = "text"
    JSON = "json"


def serve(
    folder: Path = Argument(..., help="Folder of the service; created if missing."),
    host: str = Option("127.0.0.1", help="Address to listen on."),
    port: int = Option(8080, min=0, max=65535, help="Port to listen on."),
    file: Path | None = Option(None, "--import", help="Add the model in this file."),
    name: str | None = Option(None, help="Name of the model to import."),
    memory: float = Option(Limits.memory / 1e9, min=0.05, help="Gigabytes of memory for models."),
    workers: int = Option(0, min=0, max=64, help="Processes that predict; one more learns."),
    log: LogForm = Option(LogForm.TEXT, help="Log failures as text, or every request as JSON."),
    keep_days: float | None = Option(
        None, min=0.01, help="Days to keep events. Default: no limit."
    ),
    keep_bytes: float | None = Option(None, min=1e6, help="Bytes of the journal. Default: any."),
    archive: bool = Option(False, "--archive", help="Put removed events into compressed files."),
) -> None:
    from folklearn.service import server
    from folklearn.service.service import Service

    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; the service needs a folder")
    if archive and keep_days is None and keep_bytes is None:
        raise InvalidInputError("--archive needs --keep-days or --keep-bytes")
    n_bytes = None if keep_bytes is None else round(keep_bytes)
    limits = Limits(
        memory=round(1e9 * memory), keep_days=keep_days, keep_bytes=n_bytes, archive=archive
    )
    listening = server.inherited_socket()
    if listening is not None:
        host, port = listening.getsockname()[:2]
    is_new = server.lacks_key(folder, host)
    with open_console(quiet=False):
        warm_up_service()

    def print_address(service: Service, port: int) -> None:
        if file is not None:
            typer.echo(f"imported   {server.import_model(service, file, name)}")
        store, address = service.store, server.address(host, port)
        n_models = len(store.models())
        typer.echo(f"folder     {folder}, {n_models} models, {store.n_replayed} events replayed")
        if is_new:  # the key is not made before it can be shown
            typer.echo(f"key        {server.first_key(folder)}")
            typer.echo("           shown this once: it may do everything. Make others with")
            typer.echo(f"           folklearn key {folder} create --scope predict --scope learn")
        typer.echo(f"listening  {address}   Ctrl-C ends it, and keeps everything")

    with suppress(KeyboardInterrupt, Terminated):
        server.serve(
            folder, host, port, limits, print_address,
            n_workers=workers, log=log, listening=listening,
        )  # fmt: skip
    typer.echo("stopped    everything is kept")


def backup(
    folder: Path = Argument(..., help="The folder of a service."),
    target: Path = Argument(..., help="A new folder for the copy."),
) -> None:
    from folklearn.service.backup import backup as copy_folder

    n_events = copy_folder(folder, target)
    typer.echo(f"{target}: {count_of(n_events, 'event')} and all keys; folklearn serve {target}")


key = typer.Typer(cls=Group, add_completion=False)


@key.callback(invoke_without_command=True)
def choose_folder(
    context: typer.Context,
    dir: str = Argument(..., metavar="DIR", show_default=False, help="The folder of the service."),
) -> None:
    """
    To replace a key: create another like it, let all clients change to that, and revoke the first.
    """
    context.obj = dir
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@key.command(cls=Command)
def create(
    context: typer.Context,
    tenant: str = Option("main", metavar="NAME", help="Tenant whose models it gives access to."),
    model: str | None = Option(None, metavar="NAME", help="Its only model. Default: all."),
    scope: list[str] | None = Option(None, metavar=_SCOPES, help=_SCOPE_HELP),
    expires: str | None = Option(
        None, metavar="90d", help="When it ends, counted from now; s, m, h or d. Default: never."
    ),
    note: str = Option("", metavar="TEXT", help="A note for the list."),
) -> None:
    """Create a key, which is shown once, on standard output, and never again.

    The folder is created if it is missing.
    """
    lifetime = None if expires is None else parse_seconds("--expires", expires)
    text = _keys(context).create(
        tenant=tenant, model=model, scopes=scope or DEFAULT_SCOPES, note=note, lifetime=lifetime
    )
    typer.echo(text)
    new_console(quiet=False).print(
        "Keep this key: it cannot be shown again. What it is for: "
        + shlex.join(["folklearn", "key", context.obj, "list"])
    )


@key.command("list", cls=Command)
def show(context: typer.Context) -> None:
    """List all keys: what each is for, and whether it can be used."""
    now = time.time()
    rows = [
        (key.id, key.tenant, key.model or "all", key.can, _format_date(key.created),
         _format_date(key.expires), key.state(now), key.note)
        for key in _keys(context).all()
    ]  # fmt: skip
    if not rows:
        make = shlex.join(["folklearn", "key", context.obj, "create"])
        raise FolklearnError(f"there are no keys in {context.obj}; to make one: {make}")
    titles = ("id", "tenant", "model", "scopes", "created (UTC)", "expires (UTC)", "state", "note")
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@key.command(cls=Command)
def revoke(
    context: typer.Context,
    id: str = Argument(..., metavar="ID", show_default=False, help="First column of the list."),
) -> None:
    """End a key permanently; a service that is running notices within a second."""
    _keys(context).revoke(id)
    new_console(quiet=False).print(f"The key {id} is revoked.")


def _keys(context: typer.Context) -> "Keys":
    from folklearn.service.keys import Keys  # here, because it needs the extra `serve`

    return Keys(context.obj)


def _format_date(seconds: int | None) -> str:
    return "never" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def warmup(quiet: Quiet = False) -> None:
    """Compiled kernels are kept in the folder of the package, or in NUMBA_CACHE_DIR."""
    console = new_console(quiet)
    with open_console(quiet=True):
        warm_up_service()
        console.print("Compiled for the service.")
        for name in LEARNERS:
            warm_up(name)
            console.print(f"Compiled for {name}.")
    console.print("All of this is compiled.")


def warm_up_service() -> None:
    """Do once what requests to the service do, so that none waits for a compiler."""
    _use_model(text="one more text")
    _use_model()
    agent = new_agent(n_features=2, n_actions=2)
    for t in range(_N_WARM_UP_ROWS):
        agent.learn(agent.act([t % 2, 1.0 - t % 2]), t % 2)


def warm_up(learner: str) -> None:
    """Use every kernel of a learner once, in models of digits-like size and of two columns."""
    labels = ["a", "b"] * (_N_WARM_UP_ROWS // 2)
    for d in (2, 100):  # small problems are learned row by row, larger ones in blocks
        model = Model(learner, classes=["a", "b"])
        model.learn_many(np.tile(np.eye(2, d), (_N_WARM_UP_ROWS // 2, 1)), labels)
        model.predict_one({})


def _use_model(**words: str) -> None:
    roles = dict.fromkeys(words, "words")
    rows = [
        {"x": i % 5, "k": "uvw"[i % 3], **words, "y": "ab"[i % 2]} for i in range(_N_WARM_UP_ROWS)
    ]
    model = Model(windows=True, roles=roles)
    for label in ("a", "b", {"a": 0.5, "b": 0.5}):
        x = {"x": 1, "k": "u", **words}
        model.predict_one(x)
        model.learn_one(x, label)
        model.learn_one({**x, "x": None}, label)
    model.run(rows, target="y")
    model.explain()
    fit = Model(roles=roles).fit(rows, target="y")
    fit.predict_proba(rows)
    Model.from_record(fit.to_record()).predict_proba(rows)
    X, labels = np.tile(np.eye(2), (_N_WARM_UP_ROWS // 2, 1)), np.arange(_N_WARM_UP_ROWS) % 2
    audit(X, labels, np.full((_N_WARM_UP_ROWS, 2), 0.5))
    best_in_class(X, labels, B=10.0, n_classes=2)
