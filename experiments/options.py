"""What every experiment can be told."""

import argparse
from pathlib import Path


def new_parser(description: str | None, results: Path) -> argparse.ArgumentParser:
    """Return a parser that knows how many processes to take, and where results go."""
    parser = argparse.ArgumentParser(description=description)
    # Recorded commands may have the other name, which it had in some experiments.
    parser.add_argument("--jobs", "--processes", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, default=results, metavar="FOLDER")
    return parser
