"""The results of what the front door promises, as a table and a picture."""

from pathlib import Path
from typing import Any

import numpy as np

from ..provenance import stated

Found = dict[str, Any]
_MEANS = ("saved", "best expert", "printed", "running")
_LINES = {"saved": "-", "printed": "--", "running": ":", "best expert": "-."}


def report(origin: Found, found: Found) -> str:
    """Return everything in Markdown."""
    lines = ["# What the front door promises", "", f"{stated(origin)}. Log losses in nats.", ""]
    lines += [*_orders(found["order"]), "", *_folds(found["folds"]), "", *_saved(found)]
    if found["words"]:
        row = found["words"]
        lines += ["", "## Sentences", "", f"banking77 as it is, shuffled: {row['rows']:,} rows,"]
        lines += [f"progressive {row['progressive']:.4f}, hold-out {row['hold-out']:.4f},"]
        lines += [f"error {row['error']:.3f}."]
    return "\n".join([*lines, ""])


def _orders(rows: Found) -> list[str]:
    lines = ["## Rows sorted by class, held out", ""]
    lines += ["| data | shuffled | sorted | ratio |", "|---|---|---|---|"]
    return lines + [
        f"| {name} | {row['shuffled']:.4f} | {row['sorted']:.4f} | {row['ratio']:.3f} |"
        for name, row in rows.items()
    ]


def _folds(rows: list[Found]) -> list[str]:
    lines = ["## electricity, first rows in time order, five folds", ""]
    lines += ["| fold | folklearn | LogisticRegression |", "|---|---|---|"]
    lines += [
        f"| {i} | {row['folklearn']:.4f} | {row['LogisticRegression']:.4f} |"
        for i, row in enumerate(rows, 1)
    ]
    ours, theirs = (float(np.mean([row[name] for row in rows])) for name in rows[0])
    return [*lines, f"| mean | {ours:.4f} | {theirs:.4f} |"]


def _saved(found: Found) -> list[str]:
    lines = ["## electricity in time order: the saved model on the rows that follow", ""]
    lines += ["| cut | saved model | best expert, as saved | which | hold-out loss printed |"]
    lines[-1] += " running mixture, as saved | progressive |"
    lines += ["|---|---|---|---|---|---|---|"]
    some = [row for row in found["saved"] if row["cut"] in found["cuts"]]
    for row in some:
        numbers = [f"{row[key]:.4f}" for key in ("printed", "running", "progressive")]
        lines += [f"| {row['cut']:,} | {row['saved']:.4f} | {row['best expert']:.4f} |"]
        lines[-1] += f" {row['its name']} | {' | '.join(numbers)} |"
    for name, rows in (("these", some), (f"all {len(found['saved'])}", found["saved"])):
        mean = {key: float(np.mean([row[key] for row in rows])) for key in _MEANS}
        of_best, of_saved = mean["saved"] / mean["best expert"], mean["printed"] / mean["saved"]
        lines += ["", f"Means of {name} cuts: saved {mean['saved']:.4f}, {of_best:.3f} × the best"]
        lines += [f"expert of each cut ({mean['best expert']:.4f}); printed {mean['printed']:.4f},"]
        lines += [f"{of_saved:.3f} × what came; the running mixture {mean['running']:.4f}."]
    return [*lines, "", "![losses at the cuts](front_door.png)"]


def plot(found: Found, path: Path) -> None:
    """Draw the losses of the saved model, and what was printed, at every cut."""
    from matplotlib.figure import Figure

    from folklearn import plots

    with plots.use_style():
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axis = figure.subplots()
        cuts = [row["cut"] for row in found["saved"]]
        for key, line in _LINES.items():
            losses = [row[key] for row in found["saved"]]
            axis.plot(cuts, losses, line, color="black", label=key)
        axis.set(xlabel="rows learned", ylabel="loss on the rows that follow", ylim=(0.0, 2.0))
        axis.legend()
        figure.savefig(path, dpi=130)
