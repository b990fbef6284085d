"""One pass, an exact audit and growing problems on a device, with the CPU beside it.

python -m benchmarks.device --data FOLDER   writes results/device.json and results/device.md.
FOLDER holds mnist.npz and covtype.npz. Everything is float64. The device is warmed up once by the
same work on fewer rows; then every time is that of one whole call, rows in the memory of the host
before it, results there after it, and the median of `--turns` of them. On a machine that holds a
copy of the sources without a repository, --commit says of which commit.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data import add_folder
from experiments.provenance import provenance, stated, write_json
from folklearn import Certifier, Leader, auto
from folklearn.evaluate import audit
from folklearn.kernels import experts
from folklearn.kernels.blas import OWN

RESULTS = Path(__file__).parent / "results"
CLASSES = 10
WIDTHS = (100, 200, 400, 800, 1600, 2222)  # features, at ten classes
GROWING = 10_000  # rows
MUST = {"mnist": 1.5, "covtype": 2.0}
AIM = {"mnist": 0.7}


def scaled(X: Any, *, standard: bool) -> Any:
    """Return rows with a constant, their mean square norm 1."""
    X = X.astype(np.float64)
    if standard:
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    else:
        X /= np.abs(X).max()
    X = np.hstack([X, np.full((len(X), 1), np.sqrt((X**2).sum(axis=1).mean()))])
    return np.ascontiguousarray(X / np.sqrt((X**2).sum(axis=1).mean()))


def read(folder: Path, name: str, *, standard: bool) -> tuple[Any, Any]:
    """Return rows and labels of a file, in an order drawn once."""
    data = np.load(folder / f"{name}.npz")
    order = np.random.default_rng(0).permutation(len(data["y"]))
    return scaled(data["X"][order], standard=standard), data["y"][order].astype(np.int64)


def gemm_rate(device: str) -> float:
    """Return the flops a second of a large product of matrices."""
    import torch

    n = 8192
    A, C = (torch.randn(n, n, dtype=torch.float64, device=device) for _ in range(2))
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.perf_counter()
        A @ C
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return 2.0 * n**3 / min(seconds)


def one_pass(
    X: Any, y: Any, n_classes: int, device: str, make: Callable[..., Any] = Leader
) -> dict[str, float]:
    """Learn all rows, with four ridges and what else there is, then ask for the certificate."""
    model = make(n_features=X.shape[1], n_classes=n_classes, device=device)
    started = time.perf_counter()
    model.run(X, y)
    learned = time.perf_counter()
    certificate = model.certificate()
    done = time.perf_counter()
    K, d, T = n_classes, X.shape[1], len(X)
    flops = 2.0 * (K * (K - 1) // 2) * d * d * T * 2  # two sums: the leaders', the certificate's
    return {
        "run": learned - started,
        "certificate": done - learned,
        "seconds": done - started,
        "loss": model.loss / T,
        "floor": certificate.best_linear_at_least / T,
        "refreshes": int(model._state.plan[experts.REFRESHES]),
        "flops": flops,
    }


def exact_audit(X: Any, y: Any, n_classes: int, device: str) -> dict[str, float]:
    """Certify a constant prediction exactly; then by a live pass, and exactly after that."""
    P = np.tile(np.bincount(y, minlength=n_classes) / len(y), (len(y), 1))
    passes: list[Any] = []
    started = time.perf_counter()
    certificate = audit(X, y, P, device=device, report=passes.append)
    done = time.perf_counter()
    certifier = Certifier(n_features=X.shape[1], n_classes=n_classes, device=device)
    certifier.observe_many(X, y, P)
    live = time.perf_counter()
    certifier.exact(X, y)
    again = time.perf_counter()
    return {
        "seconds": done - started,
        "live": live - done,
        "after": again - live,
        "floor": certificate.best_linear_at_least / len(y),
        "gap": passes[-1].gap / len(y),
        "passes": len(passes),
    }


def drawn(d: int, K: int, T: int) -> tuple[Any, Any]:
    """Return rows of norm about 1 and labels of a linear softmax model."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(T, d)) / np.sqrt(d)
    W = 4.0 * rng.normal(size=(K, d))
    return X, np.argmax(X @ W.T + rng.gumbel(size=(T, K)), axis=1)


def medians(turns: int, work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return the medians of several turns."""
    found = [work() for _ in range(turns)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Do everything, first on the device, then on the CPU; yield what is known after each part."""
    device, turns = arguments.device, arguments.turns
    images, digits = read(arguments.data, "mnist", standard=False)
    forest, cover = read(arguments.data, "covtype", standard=True)
    one_pass(images[:4000], digits[:4000], 10, device)
    one_pass(images[:4000], digits[:4000], 10, device, auto)
    exact_audit(forest[:20_000], cover[:20_000], 7, device)
    found: dict[str, Any] = {"gemm": gemm_rate(device)}
    found["mnist"] = {device: medians(turns, lambda: one_pass(images, digits, 10, device))}
    mixed = one_pass(images, digits, 10, device, auto)
    found["mnist"][f"{device}, `auto`, one turn"] = mixed
    found["covtype"] = {device: medians(turns, lambda: exact_audit(forest, cover, 7, device))}
    found["growth"] = []
    for d in WIDTHS:
        X, y = drawn(d, CLASSES, GROWING)
        one_pass(X[:3000], y[:3000], CLASSES, device)  # sizes that the device has not seen
        row = one_pass(X, y, CLASSES, device)
        found["growth"].append({"d": d, "n": (CLASSES - 1) * d, device: row})
    yield found
    if not arguments.cpu:
        return
    exact_audit(forest[:3000], cover[:3000], 7, OWN)  # compiles
    found["covtype"][OWN] = exact_audit(forest, cover, 7, OWN)
    yield found
    for row in found["growth"]:
        if row["d"] <= arguments.cpu_features:
            row[OWN] = one_pass(*drawn(row["d"], CLASSES, GROWING), CLASSES, OWN)
            yield found
    found["mnist"][OWN] = one_pass(images, digits, 10, OWN)
    yield found


def table(found: dict[str, Any], origin: dict[str, Any], about: str) -> str:
    """Return the results in Markdown."""
    device = next(iter(found["mnist"]))
    images, forest, rate = found["mnist"], found["covtype"], found["gemm"]
    lines = [
        "# On a device",
        "",
        f"{stated(origin)}. {about}. A float64 product of 8192 × 8192 matrices runs at "
        f"{rate / 1e12:.1f} TFLOP/s.",
        "",
        "## MNIST: one pass of `Leader`, four ridges, certificate included",
        "",
        f"70,000 × 785, 10 classes, all pairs. Must {MUST['mnist']} s, aim "
        f"{AIM['mnist']} s. The rate counts the products of rows alone (two sums), over the whole "
        "time of `run`.",
        "",
        "| where | run, s | certificate, s | together, s | average loss | no linear model below "
        "| refreshes | rate, TFLOP/s | of the product's |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for where, one in images.items():
        speed = one["flops"] / one["run"]
        lines.append(
            f"| {where} | {one['run']:.2f} | {one['certificate']:.2f} | {one['seconds']:.2f} | "
            f"{one['loss']:.9f} | {one['floor']:.9f} | {one['refreshes']:.0f} | "
            f"{speed / 1e12:.2f} | {'–' if where == OWN else f'{speed / rate:.0%}'} |"
        )
    lines += [
        "",
        "## Covertype: exact audit",
        "",
        "581,012 × 55, 7 classes: `evaluate.audit`, passes until nothing is left to gain. Must "
        f"{MUST['covtype']} s. Beside it what `folklearn audit --exact` does: `Certifier`, which "
        "learns live, and `exact` after that.",
        "",
        "| where | exact audit, s | passes | no linear model below | gap a row | live pass, s "
        "| exact after it, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for where, one in forest.items():
        lines.append(
            f"| {where} | {one['seconds']:.2f} | {one['passes']:.0f} | {one['floor']:.9f} | "
            f"{one['gap']:.1e} | {one['live']:.2f} | {one['after']:.2f} |"
        )
    lines += [
        "",
        f"## Growth: `Leader` over {GROWING:,} rows, {CLASSES} classes",
        "",
        "| features | n | " + device + ": run, s | certificate, s | cpu: run, s | certificate, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["growth"]:
        cells = [f"{row['d']:,}", f"{row['n']:,}"]
        for where in (device, OWN):
            one = row.get(where)
            cells += ["–", "–"] if one is None else [
                f"{one['run']:.2f}", f"{one['certificate']:.2f}"
            ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_folder(parser)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--no-cpu", dest="cpu", action="store_false", help="leave the CPU out")
    parser.add_argument(
        "--cpu-features", type=int, default=200, help="most features that the CPU is tried with"
    )
    parser.add_argument("--commit", help="of the sources, where there is no repository")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    origin = provenance(
        "benchmarks.device", sys.argv[1:], seeds=[0], sizes={"turns": arguments.turns},
        libraries=["torch"],
    )  # fmt: skip
    if arguments.commit:
        origin |= {"commit": arguments.commit, "uncommitted_changes": False}
    import torch

    name = torch.cuda.get_device_name() if "cuda" in arguments.device else "the CPU by PyTorch"
    about = f"{name}, PyTorch {torch.__version__}; CPU: {origin['cores']} cores"
    arguments.output.mkdir(parents=True, exist_ok=True)
    for found in measure(arguments):
        write_json(arguments.output / "device.json", {"origin": origin, "about": about, **found})
        text = table(found, origin, about)
        (arguments.output / "device.md").write_text(text)
        print(text, flush=True)


if __name__ == "__main__":
    main()
