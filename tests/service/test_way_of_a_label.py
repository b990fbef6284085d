"""The way of a label: which functions of the package it passes from its request to its answer."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import folklearn
from tests.service.running import running

PACKAGE = os.path.dirname(folklearn.__file__) + os.sep
MODEL = "/v1/models/churn"
# What the writer does between labels, and now and then.
BETWEEN = {"Writer._take", "Writer._maintain", "ModelStore.expire", "ModelHost.publish"}
BETWEEN |= {"Keys._refresh"}


class Calls:
    """Functions of the package that are called in threads which begin within `noted`."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_on = False
        self._apart = threading.local()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_qualname in BETWEEN:
            n_apart = getattr(self._apart, "n", 0)
            self._apart.n = max(0, n_apart + (1 if event == "call" else -1))
        elif event == "call" and self.is_on and not getattr(self._apart, "n", 0):
            module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
            self.names.append(f"{module.replace(os.sep, '.')}.{code.co_qualname}")


@contextmanager
def noted() -> Iterator[Calls]:
    calls = Calls()
    threading.setprofile(calls.note)
    try:
        yield calls
    finally:
        threading.setprofile(None)


def way(folder: Path) -> tuple[list[str], list[str]]:
    """Return the functions of the service, and those of the model, as first called.

    Without kernels, parts of functions, and `__len__` and its like.
    """
    with noted() as calls, running(folder) as service:
        service.ask("PUT", MODEL, {"windows": False})
        rows = [{"row": {"x": float(i % 7), "z": i / 3}, "label": "ab"[i % 2]} for i in range(41)]
        for i, body in enumerate(rows):
            calls.is_on = i == len(rows) - 1
            service.post(f"{MODEL}/learn", body, headers={"Idempotency-Key": f"label {i}"})
        calls.is_on = False
    names = [
        name
        for name in dict.fromkeys(calls.names)
        if not re.search(r"^kernels\.|<|\.__\w+__$", name)
    ]
    of_service = [name for name in names if name.startswith("service.")]
    return of_service, [name for name in names if name not in of_service]


def test_a_label_passes_few_functions(tmp_path: Path) -> None:
    of_service, of_model = way(tmp_path / "folder")
    assert "service.journal.Journal.transaction" in of_service
    assert "model.model.Model.learn_one" in of_model
    assert len(of_service) <= 22, of_service  # the last one makes the id of the request
