"""One pass over waves of MNIST's pixels: `Leader` on a device, `SharedGaussian` on the CPU.

python -m benchmarks.waves --data FOLDER   writes results/waves.json and results/waves.md.
FOLDER holds mnist.npz. Rows are shuffled once, pixels in [0, 1]. Every time is that of one whole
call, rows in the memory of the host before it and results there after it; the device is warmed up
by the first rows. On a machine that holds a copy of the sources without a repository, --commit says
of which commit.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler

from experiments.data import add_folder
from experiments.provenance import provenance, stated, write_json
from folklearn import Leader, SharedGaussian
from folklearn.arrays import log_losses
from folklearn.kernels.blas import OWN

RESULTS = Path(__file__).parent / "results"
N_WAVES = (500, 1000, 2000)
SIGMA = 4.0
WARM_UP_ROWS = 4000
LAST_ROWS = 10_000
COLUMNS = {
    "learner": "learner", "device": "where", "n_waves": "waves", "waves_s": "waves, s",
    "run_s": "run, s", "certificate_s": "certificate, s", "log_loss": "log loss",
    "error": "error, %", "last_error": "error of the last 10,000, %",
    "floor": "no model of them below",
}  # fmt: skip


def read(folder: Path) -> tuple[Any, Any]:
    """Return pixels in [0, 1] and digits, in an order drawn once."""
    data = np.load(folder / "mnist.npz")
    order = np.random.default_rng(0).permutation(len(data["y"]))
    return data["X"][order] / 255.0, data["y"][order].astype(np.int64)


def one_pass(X: Any, y: Any, n_waves: int, device: str) -> dict[str, Any]:
    """Make waves, predict and learn all rows, then ask for a certificate if there is one."""
    make: Any = SharedGaussian if device == OWN else Leader
    words = {} if device == OWN else {"device": device}
    times = [time.perf_counter()]
    gamma = SIGMA**2 / (2.0 * X.shape[1])
    Z = RBFSampler(gamma=gamma, n_components=n_waves, random_state=0).fit_transform(X)
    times.append(time.perf_counter())
    model = make(n_features=n_waves, n_classes=int(y.max()) + 1, **words)
    P = model.run(Z, y)
    times.append(time.perf_counter())
    certificate = model.certificate()
    times.append(time.perf_counter())
    is_wrong = P.argmax(axis=1) != y
    floor = certificate.best_linear_at_least / len(y) if certificate.valid else None
    return {
        "learner": make.__name__, "device": device, "n_waves": n_waves,
        **dict(zip(("waves_s", "run_s", "certificate_s"), np.diff(times).tolist(), strict=True)),
        "log_loss": float(log_losses(P, y, P[:0]).mean()),
        "error": 100.0 * float(is_wrong.mean()),
        "last_error": 100.0 * float(is_wrong[-LAST_ROWS:].mean()), "floor": floor,
    }  # fmt: skip


def table(found: list[dict[str, Any]]) -> str:
    """Return the results in Markdown."""

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    lines += [[cell(one[name]) for name in COLUMNS] for one in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_folder(parser)
    parser.add_argument("--devices", nargs="+", default=["cuda", OWN])
    parser.add_argument("--waves", nargs="+", type=int, default=N_WAVES)
    parser.add_argument("--rows", type=int, help="the first ones only")
    parser.add_argument("--commit", help="of the sources, where there is no repository")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    X, y = (part[: arguments.rows] for part in read(arguments.data))
    sizes = {"rows": len(X), "columns": X.shape[1], "sigma": SIGMA}
    origin = provenance(
        "benchmarks.waves", sys.argv[1:], seeds=[0], sizes=sizes, libraries=["torch"]
    )
    if arguments.commit:
        origin |= {"commit": arguments.commit, "uncommitted_changes": False}
    found: list[dict[str, Any]] = []
    for device in arguments.devices:
        for n_waves in arguments.waves:
            one_pass(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS], n_waves, device)
            found.append(one_pass(X, y, n_waves, device))
            text = (
                f"# Waves of pixels\n\n{stated(origin)}. MNIST, {len(X):,} rows, sigma {SIGMA:g}; "
                f"CPU: {origin['cores']} cores. Loss and error are progressive.\n\n{table(found)}\n"
            )
            arguments.output.mkdir(parents=True, exist_ok=True)
            write_json(arguments.output / "waves.json", {"origin": origin, "found": found})
            (arguments.output / "waves.md").write_text(text)
            print(text, flush=True)


if __name__ == "__main__":
    main()
