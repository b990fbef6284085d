"""What is measured, at full size and at the tiny size that a test runs."""

from dataclasses import dataclass

from experiments.table1.algorithms import ALGORITHMS, LEADER
from experiments.table1.regret import ADVERSARIAL, HARD, STOCHASTIC, Task
from experiments.table1.timing import Series

# OGD's growth shows at large sizes only; AIOLI's state is half as long as FOLKLORE's for K = 3,
# and ONS's two matrices are longer: with these sizes all are about as large at the end. The
# leader factors five matrices at every refresh, and the first rounds are all refreshes.
SCALE_D = {"OGD": 32, "AIOLI": 2, "ONS": 0.5, LEADER: 0.25}
SCALE_K = {"OGD": 64, LEADER: 0.5}


@dataclass(frozen=True)
class Plan:
    """Sizes of everything."""

    seeds: tuple[int, ...] = (0, 1, 2)
    hard_seeds: tuple[int, ...] = tuple(range(8))  # it lives on deviations: more seeds
    horizons: tuple[int, ...] = tuple(2**i for i in range(6, 14))
    sampling_horizon: int = 2048
    d: int = 3
    classes: tuple[int, ...] = (2, 4)
    B: float = 4.0  # of the curves against T
    second_norm: float = 10.0  # of more such curves, K = 2: the learners' default
    norms: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 8, 16, 32)
    norms_horizon: int = 8192
    norms_sampling_horizon: int = 512
    sizes_d: tuple[int, ...] = (64, 128, 256, 512)
    sizes_classes: tuple[int, ...] = (8, 16, 32, 64)
    sampling_d: tuple[int, ...] = (2, 4, 8, 16)
    sampling_classes: tuple[int, ...] = (2, 4, 8)
    time_rounds: int = 200
    time_horizon: int = 8192
    time_sampling_horizon: int = 2048
    gaf_cubed: tuple[int, ...] = (8, 16, 32, 64)
    gaf_linear: tuple[int, ...] = (256, 1024, 4096, 16384)

    def regret_tasks(self) -> list[Task]:
        """All runs, the longest first so that no process waits for another at the end."""
        tasks = [*self._against_T(), *self._against_B()]
        return sorted(tasks, key=lambda t: (not ALGORITHMS[t.algorithm].sampling, -t.horizons[-1]))

    def _against_T(self) -> list[Task]:
        tasks = []
        for name, algorithm in ALGORITHMS.items():
            last = self.sampling_horizon if algorithm.sampling else self.horizons[-1]
            horizons = tuple(T for T in self.horizons if last >= T)
            for stream in (STOCHASTIC, ADVERSARIAL):
                kinds = [(K, self.B) for K in self.classes[: 1 if algorithm.binary else None]]
                for K, B in [*kinds, (2, self.second_norm)]:
                    for seed in self.seeds:
                        tasks.append(Task("T", name, stream, self.d, K, B, seed, horizons))
            for seed in self.hard_seeds[: len(self.seeds) if algorithm.sampling else None]:
                tasks.append(Task("T", name, HARD, 1, 2, self.B, seed, horizons))
        return tasks

    def _against_B(self) -> list[Task]:
        tasks = []
        for name, algorithm in ALGORITHMS.items():
            T = self.norms_sampling_horizon if algorithm.sampling else self.norms_horizon
            for B in self.norms:
                for stream in (STOCHASTIC, ADVERSARIAL, HARD):
                    d = 1 if stream == HARD else self.d
                    few = stream != HARD or algorithm.sampling
                    for seed in self.seeds if few else self.hard_seeds:
                        tasks.append(Task("B", name, stream, d, 2, float(B), seed, (T,)))
        return tasks

    def time_series(self) -> list[Series]:
        """Against d with three classes (AIOLI: two), against K with 8 features (sampler: two)."""
        found = []
        for name, algorithm in ALGORITHMS.items():
            by_d = tuple(int(size * SCALE_D.get(name, 1)) for size in self.sizes_d)
            by_K = tuple(int(size * SCALE_K.get(name, 1)) for size in self.sizes_classes)
            if algorithm.sampling:
                by_d, by_K = self.sampling_d, self.sampling_classes
            K = 2 if algorithm.binary or algorithm.sampling else 3
            found.append(Series(name, "d", by_d, K, self.time_rounds))
            if not algorithm.binary:
                d = 2 if algorithm.sampling else 8
                found.append(Series(name, "K", by_K, d, self.time_rounds))
        return found


FULL = Plan()
QUICK = Plan(
    seeds=(0,), hard_seeds=(0, 1), horizons=(16, 32), sampling_horizon=32, d=2,
    norms=(1, 4), norms_horizon=64, norms_sampling_horizon=16,
    sizes_d=(8, 16), sizes_classes=(4, 8), sampling_d=(1, 2), sampling_classes=(2, 3),
    time_rounds=10, time_horizon=128, time_sampling_horizon=64,
    gaf_cubed=(4, 8), gaf_linear=(16, 64),
)  # fmt: skip
