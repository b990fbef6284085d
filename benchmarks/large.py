"""A large problem: `run` as a fraction of the rate of NumPy's matrix product."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from peers import softmax_rows
from threadpoolctl import threadpool_info

from folklearn import Folklore

GEMM_N = 3000


def measure(
    report: Callable[[int, int], None], d: int, K: int, n_rows: int, repetitions: int
) -> dict[str, Any]:
    """Return the best rates, in flops, with the BLAS threads that this process has."""
    k = K - 1
    n = k * d
    matrix = np.random.default_rng(0).normal(size=(GEMM_N, GEMM_N))
    product = np.empty_like(matrix)
    model = Folklore(n_features=d, n_classes=K)
    model.run(*softmax_rows(d, K, n_rows, 0))
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    gemm_s = run_s = float("inf")
    for repetition in range(repetitions):
        start = perf_counter()
        np.matmul(matrix, matrix, out=product)
        gemm_s = min(gemm_s, perf_counter() - start)
        X, y = softmax_rows(d, K, n_rows, 1 + repetition)
        start = perf_counter()
        model.run(X, y)
        run_s = min(run_s, perf_counter() - start)
        report(repetition + 1, repetitions)
    gemm_rate = 2 * GEMM_N**3 / gemm_s
    run_rate = n_rows * (2.0 * n**2 + float(n) ** 2 * k) / run_s
    return {
        "d": d,
        "K": K,
        "n": n,
        "rows": n_rows,
        "threads": max(pool["num_threads"] for pool in pools),
        "blas": [f"{p['internal_api']} {p['version']} {p.get('architecture')}" for p in pools],
        "us_per_round": 1e6 * run_s / n_rows,
        "gemm_gflops": gemm_rate / 1e9,
        "run_gflops": run_rate / 1e9,
        "fraction": run_rate / gemm_rate,
    }
