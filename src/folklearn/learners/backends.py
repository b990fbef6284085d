"""Lanes by size: which form of the mathematics a problem is large enough for.

pairs    a matrix (d, d) for every pair of classes: second order, the tightest certificates;
blocks   a matrix (d, d) for every class: many classes, few features;
wide     first order: any width, sparse rows, what occurs is what costs.

The boundaries are where a backend costs about a millisecond a round on one core, measured by
`python -m benchmarks.backends` (benchmarks/results/backends.md).
"""

from folklearn import memory
from folklearn.errors import InvalidInputError
from folklearn.kernels.evidence import n_pairs, n_products
from folklearn.kernels.on_torch.device import Device

PAIRS, BLOCKS, WIDE = BACKENDS = "pairs", "blocks", "wide"

_MOST_PAIRED = 250_000  # products of features, over all pairs of classes
_MOST_BLOCKED = 1_000_000  # entries of the matrices of all classes
_SHARE_OF_MEMORY = 0.25  # that the state of a backend may take
_SUMS_OF_PAIRS, _BLOCKS = 6, 3  # such arrays that a learner of the backend holds
_MOST_UNKNOWN = 20_000  # of a leader, on a device: a refresh takes a fifth of a second there

WORDS = {
    PAIRS: "second order, all pairs of classes",
    BLOCKS: "second order, class by class",
    WIDE: "first order, for wide rows",
}


def select_backend(n_features: int, n_classes: int, device: Device | None = None) -> str:
    """Return the backend for so many features and classes, in the memory that there is.

    On a device the first backend reaches further, because there products of matrices are cheap.
    """
    if device is not None and n_features * n_classes <= _MOST_UNKNOWN:
        full = float(n_pairs(n_classes)) * float(n_features) ** 2
        matrices = float(n_features * n_classes) ** 2
        if 8.0 * _SUMS_OF_PAIRS * (full + matrices) <= device.bytes_free():
            return PAIRS
    present = memory.bytes_present() or float("inf")
    room = _SHARE_OF_MEMORY * present / 8.0
    paired = float(n_pairs(n_classes)) * float(n_products(n_features))
    if paired <= _MOST_PAIRED and _SUMS_OF_PAIRS * paired <= room:
        return PAIRS
    blocked = float(n_classes) * float(n_features) ** 2
    if blocked <= _MOST_BLOCKED and _BLOCKS * blocked <= room:
        return BLOCKS
    return WIDE


def chosen(
    backend: str | None, n_features: int, n_classes: int, device: Device | None = None
) -> str:
    """Return a backend that was named, or the one for the size."""
    if backend is None:
        return select_backend(n_features, n_classes, device)
    if backend not in BACKENDS:
        raise InvalidInputError(
            f"there is no backend {backend!r}; choose one of: {', '.join(BACKENDS)}"
        )
    return backend
