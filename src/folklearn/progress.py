"""A progress bar on standard error, for work that was asked to show one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from folklearn.errors import FolklearnError


@contextmanager
def reporter(
    progress: bool | Callable[[int], None], total: int, what: str
) -> Iterator[Callable[[int], None] | None]:
    """Yield a function that takes the number of rounds done, or None if nobody asked."""
    if callable(progress) or not progress:
        yield progress or None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise FolklearnError(
            "progress=True needs rich, which comes with the extra: pip install 'folklearn[cli]'"
        ) from None
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
