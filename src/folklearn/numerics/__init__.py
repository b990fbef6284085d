"""Pure kernels on arrays: they know no learner and validate nothing."""

from pathlib import Path


def _forget_stale_kernels(folder: Path) -> None:
    """Delete the compiled kernels of a folder if one of its sources has changed since.

    Numba compiles a kernel again if its own file has changed, not if one that it calls has: an
    edit or an update of the sources would go on computing with what they said before.
    """
    sources = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
    stamp = "\n".join(f"{name} {stat.st_mtime_ns} {stat.st_size}" for name, stat in sources)
    cache = folder / "__pycache__"
    note = cache / "kernels.stamp"
    try:
        if note.exists() and note.read_text() == stamp:
            return
        for kernel in cache.glob("*.nb[ci]"):
            kernel.unlink(missing_ok=True)
        note.write_text(stamp)
    except OSError:
        pass  # a folder that cannot be written to holds no kernels of ours


_forget_stale_kernels(Path(__file__).parent)
