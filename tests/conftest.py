"""A stricter world: floating-point errors raise, seeds are chosen, caches follow the source."""

import ast
import hashlib
import math
import os
import random
from pathlib import Path

ROOT = Path(__file__).parent.parent
# A plugin for kernels that are not compiled, and what a process runs that others are forked from.
collect_ignore = ["interpreted.py", "service/warm.py"]


def _kernel_digest() -> str:
    """Numba notices a change in a kernel's own file but not in the files it calls."""
    digest = hashlib.blake2b(digest_size=8)
    package = ROOT / "src" / "folklearn"
    for source in [*sorted((package / "kernels").glob("*.py")), package / "baselines/kernels.py"]:
        digest.update(_code_of(source))
    return digest.hexdigest()


def _code_of(source: Path) -> bytes:
    """Return what is compiled of a file: its code without comments and docstrings."""
    tree = ast.parse(source.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body.pop(0)
    return ast.dump(tree).encode()


# Both are read when NumPy and Numba are imported. Kernels for another CPU lie in their own folder.
_CPU = os.environ.get("NUMBA_CPU_NAME", "host")
_KERNELS = ROOT / ".cache" / f"numba-{_kernel_digest()}-{_CPU}"
os.environ.setdefault("NUMBA_CACHE_DIR", str(_KERNELS))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "folklearn",
    deadline=None,
    derandomize=True,
    max_examples=15,
    suppress_health_check=[HealthCheck.too_slow],  # the machine may be busy
)
settings.load_profile("folklearn")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """FOLKLEARN_TEST_ORDER, a number, shuffles the tests: none may need what another left."""
    order = os.environ.get("FOLKLEARN_TEST_ORDER")
    if order is not None:
        random.Random(int(order)).shuffle(items)


@pytest.fixture(autouse=True)
def _floating_point_errors_raise():
    """Underflow is normal here: probabilities of 1e-300 occur on real streams."""
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture
def seed() -> int:
    """FOLKLEARN_TEST_SEED, 0 by default; every value from 0 to 99 must pass."""
    return int(os.environ.get("FOLKLEARN_TEST_SEED", "0"))


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def _nobody_loses_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty cache kernels are compiled long enough to be announced, in any output."""
    monkeypatch.setattr("folklearn.progress._SECONDS_TO_COMPILE_SILENTLY", math.inf)
