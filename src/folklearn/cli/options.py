"""What every command shares: where the examples are, and the console it talks through."""

from typing import Annotated

import typer
from rich.console import Console

from folklearn.streams.files import FORMATS

File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Examples: CSV with a header, svmlight, VW text, JSON lines (all also gzipped), "
        "Parquet or Arrow; - reads standard input. Without a file, scikit-learn's digits.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="The column of the class; svmlight and VW text have none to name.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Format of the file. Default: by its content and its name.",
    ),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="COLUMN",
        help="A column that holds text even if it looks like numbers, such as codes; may be "
        "given several times. Columns whose first value is no number are text anyway; on standard "
        "input the first row decides, and a column that has no value there holds numbers.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="COLUMN",
        help="A column to leave out, such as an id; may be given several times.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")]


def new_console(quiet: bool) -> Console:
    """Return a console on standard error; nothing that it prints is markup.

    Names of files, columns and labels go through it, which may hold anything.
    """
    return Console(
        stderr=True, quiet=quiet, markup=False, emoji=False, highlight=False, soft_wrap=True
    )
