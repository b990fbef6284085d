"""How far the floor of a certificate lies below the truth, as a stream goes on.

Three floors: that of version 0.1 (the better one of FOLKLORE and GAF at B = 10), that of the
evidence which `auto` collects in its one pass, and the exact one of a second look.
"""

from typing import Any

import numpy as np

from folklearn import Folklore, Gaf, auto, best_in_class
from folklearn.evaluate import logistic_regression
from tests.reference import streams

from ..data import Source, stream

B = 10.0
D, K = 5, 3  # of the synthetic streams
LEAST_DRAWN = 1e-5  # smaller gaps are drawn as this one
PARTS = (8, 4, 2, 1)  # the certificate is read after T/8, T/4, ...
ADVERSARIAL = "adversarial"
SYNTHETIC = {
    "stochastic": streams.stochastic,
    "separable": streams.separable,
    "pure noise": streams.pure_noise,
    "drifting": streams.drifting,
    ADVERSARIAL: streams.pure_noise,
}
# Floor per round that a prototype had, at the end of the same streams or of ones like them.
PROTOTYPE = {
    "adversarial": 1.0986, "pure noise": 1.0969, "digits": 0.2320, "segment": 0.3335,
    "satimage": 0.3998, "pendigits": 0.3419, "adult": 0.3274, "nursery": 0.2503,
    "electricity": 0.3284, "weather": 0.4239,
}  # fmt: skip


def synthetic(name: str, T: int, seed: int) -> dict[str, Any]:
    """Follow one synthetic stream; an adversary plays against `auto` itself."""
    X, y = SYNTHETIC[name](seed, T, D, K)
    if name == ADVERSARIAL:
        y = streams.play_adversarial(auto(n_features=D, n_classes=K), X)
    return follow(X, y, K)


def real(source: Source, seed: int) -> dict[str, Any]:
    """Follow one data set."""
    one = stream(source, seed)
    return follow(one.X, one.y, one.K)


def follow(X: Any, y: Any, K: int) -> dict[str, Any]:
    """Return, per round and at every reading, the truth and the floors below it."""
    sizes = {"n_features": X.shape[1], "n_classes": K}
    learners = {
        "folklore": Folklore(**sizes, B=B),
        "gaf": Gaf(**sizes, B=B, improved=True, n_points=None),
        "evidence": auto(**sizes),
    }
    found: dict[str, list[float]] = {name: [] for name in ("true", "penalised", "exact", *learners)}
    rounds, losses = [], []
    done = 0
    for t in (len(y) // part for part in PARTS):
        for name, learner in learners.items():
            learner.run(X[done:t], y[done:t])
            certificate = learner.certificate()
            if not certificate.valid:
                raise ValueError(f"{name}: {certificate.reason}")
            found[name].append(certificate.best_linear_at_least / t)
        losses.append(learners["evidence"].certificate().loss / t)
        found["true"].append(best_in_class(X[:t], y[:t], B=B, n_classes=K).loss / t)
        best = logistic_regression(X[:t], y[:t], n_classes=K)
        found["penalised"].append((best.loss + best.penalty) / t)
        found["exact"].append(best.at_least / t)
        rounds.append(t)
        done = t
    before = np.maximum(found["folklore"], found["gaf"])
    gaps = {
        "before": (np.array(found["true"]) - before).tolist(),
        "now": (np.array(found["penalised"]) - found["evidence"]).tolist(),
        "exact": (np.array(found["penalised"]) - found["exact"]).tolist(),
    }
    return {
        "d": X.shape[1],
        "K": K,
        "rounds": rounds,
        "loss": losses,
        "floors": found,
        "gaps": gaps,
        "factor": gaps["before"][-1] / max(gaps["now"][-1], 1e-12),
        "never_looser": [now <= old for now, old in zip(gaps["now"], gaps["before"], strict=True)],
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [
        f"Nats per round. *True*: the best linear model of norm B = {B:g}. *0.1*: the better",
        "bound of `Folklore` and `Gaf` for those. *Evidence*: `auto().certificate()`, in one pass,",
        "about every linear model; its gap is to the penalised optimum. *Prototype*: the",
        "floor that a prototype of evidence had. *Shrinks by*: the gap of 0.1 over that of",
        "evidence, at the end. The gap of the exact floor, from a second look, is below "
        f"{max(row['gaps']['exact'][-1] for row in found.values()):.0e}.",
        "",
        "| stream | d, K | T | true | 0.1 | evidence | prototype | gap, 0.1 | gap, evidence "
        "at T/8, T/4, T/2, T | shrinks by | never looser |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        floors, gaps = row["floors"], row["gaps"]
        before = floors["true"][-1] - gaps["before"][-1]
        prototype = f"{PROTOTYPE[name]:.4f}" if name in PROTOTYPE else "–"
        if row["never_looser"][-1]:
            verdict = "met" if all(row["never_looser"]) else "met at T, not before"
        else:
            verdict = "**missed**"
        lines.append(
            f"| {name} | {row['d']}, {row['K']} | {row['rounds'][-1]} | {floors['true'][-1]:.4f} "
            f"| {before:.4f} | {floors['evidence'][-1]:.4f} | {prototype} "
            f"| {gaps['before'][-1]:.4f} | {', '.join(f'{gap:.4f}' for gap in gaps['now'])} "
            f"| {_factor(row['factor'])} | {verdict} |"
        )
    met = sum(row["never_looser"][-1] for row in found.values())
    return (
        "\n".join([*lines, "", f"Never looser than 0.1 on {met} of {len(found)} streams."]) + "\n"
    )


def _factor(factor: float) -> str:
    return "> 1000" if factor > 1000 else f"{factor:.1f}" if factor < 10 else f"{factor:.0f}"


def plot(found: dict[str, dict[str, Any]], path: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n_rows = -(-len(found) // 5)
    figure, axes = plt.subplots(
        n_rows, 5, figsize=(15, 2.9 * n_rows), constrained_layout=True, squeeze=False
    )
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (name, row) in zip(axes.flat, found.items(), strict=False):
        for kind, colour, label in (
            ("before", "C1", "version 0.1"), ("now", "C0", "evidence, one pass"),
            ("exact", "0.6", "exact, two passes"),
        ):  # fmt: skip
            gaps = np.maximum(row["gaps"][kind], LEAST_DRAWN)
            axis.plot(row["rounds"], gaps, "o-", color=colour, label=label)
        axis.set(xscale="log", yscale="log", title=f"{name}, K = {row['K']}")
        axis.set_xticks(row["rounds"], [str(t) for t in row["rounds"]])
        axis.minorticks_off()
    for axis in axes[:, 0]:
        axis.set_ylabel("gap, nats per round")
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(
        "From the certificate's floor to the best linear model "
        f"(gaps below {LEAST_DRAWN:g} are drawn there)"
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
