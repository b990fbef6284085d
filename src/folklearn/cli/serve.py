"""`folklearn serve`, `backup` and `key`: the HTTP service of a folder, its copy and its keys."""

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.endings import Terminated
from folklearn.cli.options import parse_seconds
from folklearn.cli.warmup import warm_up_service
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.service.limits import DEFAULT_SCOPES, SCOPES, Limits
from folklearn.utils import count_of

if TYPE_CHECKING:
    from folklearn.service.keys import Keys

_SCOPE_HELP = f"Permission, admin is everything; repeatable. Default: {', '.join(DEFAULT_SCOPES)}."


class LogForm(StrEnum):
    """What a service logs."""

    TEXT = "text"
    JSON = "json"


def serve(
    folder: Annotated[Path, Argument(help="Folder of the service; created if missing.")],
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    file: Annotated[Path | None, Option("--import", help="Add the model in this file.")] = None,
    name: Annotated[str | None, Option(help="Name of the model to import.")] = None,
    memory: Annotated[
        float, Option(min=0.05, help="Gigabytes of memory for all models.")
    ] = Limits.memory / 1e9,
    workers: Annotated[
        int,
        Option(
            min=0, max=64, help="Processes for HTTP and predictions, besides the one that learns."
        ),
    ] = 0,
    log: Annotated[
        LogForm, Option(help="Standard error: failures as text, or every request as JSON.")
    ] = LogForm.TEXT,
    keep_days: Annotated[
        float | None,
        Option(min=0.01, help="Days that events and rows are kept. Default: no limit."),
    ] = None,
    keep_bytes: Annotated[
        float | None, Option(min=1e6, help="Bytes that the journal may have. Default: any.")
    ] = None,
    archive: Annotated[
        bool, Option("--archive", help="Put events that are removed into compressed files.")
    ] = False,
    demo: Annotated[bool, Option("--demo", help="In a new folder: train two models.")] = False,
) -> None:
    """Serve the models of a folder over HTTP: predict, learn durably, decide, and watch."""
    from folklearn.service import server
    from folklearn.service.service import Service

    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; the service needs a folder")
    if archive and keep_days is None and keep_bytes is None:
        raise InvalidInputError("--archive needs --keep-days or --keep-bytes: nothing is removed")
    listening = server.inherited_socket()
    if listening is not None:
        host, port = listening.getsockname()[:2]
    is_new = server.lacks_key(folder, host)
    if demo and not is_new:
        raise InvalidInputError(f"--demo needs a new folder, and {folder} has keys already")
    limits = Limits(
        memory=round(1e9 * memory),
        keep_days=keep_days,
        keep_bytes=None if keep_bytes is None else round(keep_bytes),
        archive=archive,
    )
    with warnings_shown(new_console(quiet=False)):
        warm_up_service()

    def print_address(service: Service, port: int) -> None:
        if file is not None:
            typer.echo(f"imported   {server.import_model(service, file, name)}")
        models = [hosted.row.name for hosted in service.store.models()]
        typer.echo(
            f"folder     {folder}, {len(models)} models, {service.store.n_replayed} events replayed"
        )
        address = server.address(host, port)
        key = server.first_key(folder) if is_new else None  # not before it can be shown
        if key is not None:
            typer.echo(f"key        {key}")
            typer.echo("           shown this once: it may do everything. Make others with")
            typer.echo(f"           folklearn key {folder} create --scope predict --scope learn")
        typer.echo(f"listening  {address}   Ctrl-C ends it, and keeps everything")
        if demo and key is not None:
            server.start_demo(address, key)
            typer.echo("           open it in a browser, log in with the key, and watch")

    with suppress(KeyboardInterrupt, Terminated):
        server.serve(
            folder, host, port, limits, print_address,
            n_workers=workers, log=log, listening=listening,
        )  # fmt: skip
    typer.echo("stopped    everything is kept")


def backup(
    folder: Annotated[Path, Argument(help="The folder of a service.")],
    target: Annotated[Path, Argument(help="A new folder for the copy.")],
) -> None:
    """Copy what a service keeps, while it runs; the copy can be served."""
    from folklearn.service.backup import backup as copy_folder

    n_events = copy_folder(folder, target)
    typer.echo(f"{target}: {count_of(n_events, 'event')} and all keys; folklearn serve {target}")


def key(
    context: typer.Context,
    dir: Annotated[
        str, Argument(metavar="DIR", show_default=False, help="The folder of the service.")
    ],
) -> None:
    """Create, list and revoke keys of the service, which may be running meanwhile.

    To replace a key: create another like it, let all clients change to that, and revoke the first.
    """
    context.obj = dir
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def create(
    context: typer.Context,
    tenant: Annotated[
        str, Option(metavar="NAME", help="Tenant whose models it gives access to.")
    ] = "main",
    model: Annotated[
        str | None,
        Option(metavar="NAME", help="The only model it is for. Default: all of the tenant."),
    ] = None,
    scope: Annotated[list[str] | None, Option(metavar="|".join(SCOPES), help=_SCOPE_HELP)] = None,
    expires: Annotated[
        str | None,
        Option(metavar="90d", help="When it ends, counted from now; s, m, h or d. Default: never."),
    ] = None,
    note: Annotated[str, Option(metavar="TEXT", help="A note for the list.")] = "",
) -> None:
    """Create a key, which is shown once, on standard output, and never again.

    The folder is created if it is missing.
    """
    lifetime = None if expires is None else parse_seconds("--expires", expires)
    typer.echo(
        _keys(context).create(
            tenant=tenant, model=model, scopes=scope or DEFAULT_SCOPES, note=note, lifetime=lifetime
        )
    )
    new_console(quiet=False).print(
        "Keep this key: it cannot be shown again. What it is for: "
        + shlex.join(["folklearn", "key", context.obj, "list"])
    )


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


def revoke(
    context: typer.Context,
    id: Annotated[
        str, Argument(metavar="ID", show_default=False, help="Id: the first column of the list.")
    ],
) -> None:
    """End a key permanently; a service that is running notices within a second."""
    _keys(context).revoke(id)
    new_console(quiet=False).print(f"The key {id} is revoked.")


KEY_COMMANDS: dict[str, Callable[..., None]] = {"create": create, "list": show, "revoke": revoke}


def _keys(context: typer.Context) -> "Keys":
    from folklearn.service.keys import Keys  # here, because it needs the extra `serve`

    return Keys(context.obj)


def _format_date(seconds: int | None) -> str:
    return "never" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
