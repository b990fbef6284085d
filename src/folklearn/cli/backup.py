"""`folklearn backup`: a copy of a folder that is being served."""

from pathlib import Path
from typing import Annotated

import typer

from folklearn.utils import counted


def backup(
    folder: Annotated[Path, typer.Argument(help="The folder of a service.")],
    target: Annotated[Path, typer.Argument(help="A new folder for the copy.")],
) -> None:
    """Copy what a service keeps, while it runs; the copy can be served."""
    from folklearn.service.backup import backup as copied

    n_events = copied(folder, target)
    typer.echo(f"{target}: {counted(n_events, 'event')} and all keys; folklearn serve {target}")
