"""One method on one stream with one seed: the scores over the last rows, and what it became."""

from collections.abc import Iterator
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from folklearn.boosting import Booster
from folklearn.boosting.booster import draw_prefix
from folklearn.kernels.boosting import mix_prefixes, score_prefixes, softmin

from ..data import Source, Stream, stream
from .plan import FLOOR, METHODS, TRAINED, Method

Array = NDArray[np.float64]
# Of one round and one N: the label, the probabilities before learning.
Said = tuple[int, Array]


def play(name: str, source: Source, n: int, seed: int) -> dict[str, Any]:
    """Run a method with n learners; return its scores at every size that the run tells."""
    method, rows = METHODS[name], stream(source, seed)
    sizes = method.sizes if method.nested else (n,)
    model = method.make(rows.d, rows.K, n, seed)
    first = round(TRAINED * len(rows.y))
    about = About(model, first) if isinstance(model, Booster) else None
    start = process_time()
    said = list(_rounds(method, model, rows, sizes, seed, about))
    seconds = process_time() - start
    return {
        "sizes": {
            size: score([round_[place] for round_ in said[first:]], rows.y[first:])
            for place, size in enumerate(sizes)
        },
        "ms_per_round": 1e3 * seconds / len(rows.y),
        "about": None if about is None else about.found(),
    }


def _rounds(
    method: Method,
    model: Any,
    rows: Stream,
    sizes: tuple[int, ...],
    seed: int,
    about: "About | None",
) -> Iterator[list[Said]]:
    """Predict, then learn, row by row; yield what was said at every size."""
    # Losses and mistakes of the prefixes of every smaller booster.
    totals = {size: (np.zeros(size), np.zeros(size)) for size in sizes} if method.nested else {}
    for t, (x, y) in enumerate(zip(rows.X, rows.y.tolist(), strict=True)):
        if method.nested:
            # A learner knows nothing of those behind it, and Hedge's draw depends on seed and
            # round alone: the first rows of the scores are those of the smaller booster.
            scores = model._see(x).scores
            said = []
            for size, (losses, mistakes) in totals.items():
                label = scores[draw_prefix(softmin(mistakes), seed, t)].argmax()
                said.append((int(label), mix_prefixes(scores[: size + 1], losses)))
                score_prefixes(scores[: size + 1], y, 1.0, losses, mistakes)
        else:
            p = model.predict(x)
            label = model.predict_label(x) if method.booster else p.argmax()
            said = [(int(label), p)]
        if about is not None:
            about.see(x, y)
        model.update(x, y)
        yield said


def score(said: list[Said], y: NDArray[np.int64]) -> dict[str, float]:
    """Return the scores of the labels, of the probabilities' labels, and of the probabilities."""
    given = np.array([p[k] for (_, p), k in zip(said, y, strict=True)])
    return {
        "accuracy": float(np.mean([label == k for (label, _), k in zip(said, y, strict=True)])),
        "accuracy_of_mixture": float(
            np.mean([p.argmax() == k for (_, p), k in zip(said, y, strict=True)])
        ),
        "log_loss": float(-np.log(np.fmax(given, FLOOR)).mean()),
        "at_floor": float(np.mean(given <= FLOOR)),
    }


class About:
    """What explains a booster's scores, learner by learner."""

    def __init__(self, model: Booster, first: int) -> None:
        self._model, self._first = model, first
        self._weights = np.zeros(model.n_learners)
        self._right = np.zeros(model.n_learners)

    def see(self, x: Array, y: int) -> None:
        """Look at a round before it is learned."""
        model = self._model
        self._weights += [C[y].sum() * model.n_classes for C in model._see(x).costs]
        if model.n_rounds >= self._first:
            self._right += model.prefix_labels(x) == y

    def found(self) -> dict[str, list[float]]:
        """Return the mean importance of an example, prefix accuracies, leaves, edges."""
        model = self._model
        found = {
            "weight": (self._weights / model.n_rounds).tolist(),
            "prefix_accuracy": (self._right / (model.n_rounds - self._first)).tolist(),
            "leaves": [learner.model.model.n_leaves for learner in model.learners],  # type: ignore[attr-defined]
        }
        if hasattr(model, "edges"):
            found["edge"] = model.edges.tolist()
        return found
