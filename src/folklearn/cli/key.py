"""`folklearn key`: who may use the service in a folder."""

import shlex
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from folklearn.cli.display import new_console
from folklearn.cli.options import explained, seconds_of
from folklearn.errors import FolklearnError
from folklearn.service.limits import SCOPES, USUAL

if TYPE_CHECKING:
    from folklearn.service.keys import Keys

_TITLES = ("id", "tenant", "model", "scopes", "created (UTC)", "expires (UTC)", "state", "note")


@explained("DIR  The folder of the service.")
def key(context: typer.Context, dir: str) -> None:
    """Create, list and revoke keys of the service, which may be running meanwhile.

    To replace a key: create another like it, let everybody change to that, and revoke the first.
    """
    context.obj = dir
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@explained(
    f"""
--tenant NAME  Whose models it is for.
--model NAME  The only model that it is for. Default: all models of the tenant.
--scope {"|".join(SCOPES)}  What it may do, of which admin is everything; may be given several
    times. Default: {", ".join(USUAL)}.
--expires 90d  When it ends, counted from now; s, m, h or d. Default: never.
--note TEXT  What to remember it by.
"""
)
def create(
    context: typer.Context,
    tenant: str = "main",
    model: str | None = None,
    scope: list[str] | None = None,
    expires: str | None = None,
    note: str = "",
) -> None:
    """Create a key, which is shown once, on standard output, and never again.

    The folder is made if it is not there.
    """
    lifetime = None if expires is None else seconds_of("--expires", expires)
    typer.echo(
        _keys(context).create(
            tenant=tenant, model=model, scopes=scope or USUAL, note=note, lifetime=lifetime
        )
    )
    new_console(quiet=False).print(
        "Keep this key: it cannot be shown again. What it is for: "
        + shlex.join(["folklearn", "key", context.obj, "list"])
    )


@explained()
def show(context: typer.Context) -> None:
    """List all keys: what each is for, and whether it can be used."""
    now = time.time()
    rows = [
        (one.id, one.tenant, one.model or "all", one.can, _date(one.created), _date(one.expires),
         one.state(now), one.note)
        for one in _keys(context).all()
    ]  # fmt: skip
    if not rows:
        make = shlex.join(["folklearn", "key", context.obj, "create"])
        raise FolklearnError(f"there are no keys in {context.obj}; to make one: {make}")
    widths = [max(map(len, column)) for column in zip(_TITLES, *rows, strict=True)]
    for row in (_TITLES, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


@explained("ID  Of the key: what comes after flk_, and the first column of the list.")
def revoke(context: typer.Context, id: str) -> None:
    """End a key for ever; a service that is running notices within a second."""
    _keys(context).revoke(id)
    new_console(quiet=False).print(f"The key {id} is revoked.")


KEY_COMMANDS = {"create": create, "list": show, "revoke": revoke}


def _keys(context: typer.Context) -> "Keys":
    from folklearn.service.keys import Keys  # here, because it needs the extra `serve`

    return Keys(context.obj)


def _date(seconds: int | None) -> str:
    if seconds is None:
        return "never"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"
