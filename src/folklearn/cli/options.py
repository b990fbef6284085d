"""The options that commands share, and what their values mean."""

from typing import Annotated, Any

import typer

from folklearn.readers.opening import FORMATS


def option(*names: str, metavar: str | None = None, help: str) -> Any:
    """Return an option of these names."""
    return typer.Option(*names, metavar=metavar, help=help)


File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Rows: CSV with a header, JSON lines, svmlight, VW text (also gzipped, or packed "
        "with zstd), Parquet or Arrow; - reads standard input. Without a file, scikit-learn's "
        "digits.",
    ),
]
Target = Annotated[
    str | None,
    option(
        "--target",
        metavar="COLUMN",
        help="The column of the class; svmlight and VW text have none to name.",
    ),
]
Format = Annotated[
    str | None,
    option(
        "--format",
        metavar="|".join(FORMATS),
        help="Format of the file. Default: by its content and its name.",
    ),
]
Delimiter = Annotated[
    str | None,
    option("--delimiter", metavar="CHARACTER", help="Between the cells of CSV. Default: found."),
]
Encoding = Annotated[
    str | None,
    option("--encoding", metavar="NAME", help="Of the text, such as cp1252. Default: UTF-8."),
]
Decimal = Annotated[
    str | None,
    option("--decimal", metavar=".|,", help="Before the decimals of CSV. Default: found."),
]
Role = Annotated[
    list[str] | None,
    option(
        "--role",
        metavar="COLUMN=ROLE",
        help="What a column is: number, category, words, date, id, weight, target or ignored; may "
        "be given several times. Default: found by the first values.",
    ),
]
Drop = Annotated[
    list[str] | None,
    option(
        "--drop",
        metavar="COLUMN",
        help="A column to leave out, the same as --role COLUMN=ignored; may be given several "
        "times.",
    ),
]
OnBadRow = Annotated[
    str,
    option(
        "--on-bad-row",
        metavar="stop|skip",
        help="At a row that cannot be read: stop, or skip it and say at the end how many were.",
    ),
]
Plot = Annotated[
    str | None, option("--plot", metavar="OUT.png", help="Draw it: .png, .svg or .pdf.")
]
Seed = Annotated[int, option("--seed", help="Of all that is random.")]
Quiet = Annotated[bool, option("--quiet", help="Say nothing but errors.")]
