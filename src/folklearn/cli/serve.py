"""`folklearn serve`: models that live in a folder, over HTTP, with pages to look at."""

from pathlib import Path
from typing import Annotated

import typer

from folklearn.cli.display import new_console, warnings_shown
from folklearn.cli.interrupts import Terminated
from folklearn.errors import InvalidInputError
from folklearn.service.limits import Limits


def serve(
    folder: Annotated[Path, typer.Argument(help="Where everything is kept; made if need be.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8080,
    file: Annotated[
        Path | None, typer.Option("--import", help="Begin a model as this file has it.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model to import.")] = None,
    memory: Annotated[
        float, typer.Option(min=0.05, help="Gigabytes that all models together may take.")
    ] = Limits.memory / 1e9,
    demo: Annotated[
        bool, typer.Option("--demo", help="In a new folder: teach two models, to be watched.")
    ] = False,
) -> None:
    """Serve the models of a folder: predict, learn durably, decide, and watch."""
    from folklearn.service import server
    from folklearn.service.service import Service

    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; the service needs a folder")
    is_new = server.lacks_key(folder, host)
    if demo and not is_new:
        raise InvalidInputError(f"--demo needs a new folder, and {folder} has keys already")
    with warnings_shown(new_console(quiet=False)):
        server.use_every_kernel()  # so that no request waits for a compiler

    def begun(service: Service, port: int) -> None:
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

    try:
        server.serve(folder, host, port, Limits(memory=round(1e9 * memory)), begun)
    except (KeyboardInterrupt, Terminated):
        typer.echo("stopped    everything is kept")
