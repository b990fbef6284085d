"""The state of a panel of experts as an object: its arrays by name, and how they change size."""

import copy
import json
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.kernels import experts as panel
from folklearn.kernels.evidence import block_rows, n_pairs, n_products
from folklearn.kernels.experts import AXES, SCRATCH
from folklearn.kernels.quadratic import Quadratic

Integers = NDArray[np.int64]

_RECENT = 256  # rows that wait, at most; a multiple of every period of forgetting
_FIRST_ROOM = 64  # for rows to be kept; it doubles when it is full
_DENSE = 4000  # rounds up to which leaders are refreshed for every twentieth more,
_MANY = 500  # unless there are so many unknowns
_FIRST_REVIEW_ROUND = 512
_LITTLE = 2e-3  # share of the weight, on average since the last review
_BEHIND = 20.0  # nats
_BEHIND_EARLY, _LITTLE_EARLY, _LITTLE_LATER, _SETTLED = 5.0, 5e-3, 5e-2, 4096  # for FOLKLORE


class Forgetting(NamedTuple):
    """A leader that forgets: its ridge, and the rounds after which a row counts 1/e."""

    ridge: float
    memory: float

    def period(self, n: int) -> int:
        """Return the rounds between refreshes for n unknowns: a tenth of the memory or so."""
        wanted = max(self.memory / 10.0, n / 4.0, 1.0)
        return int(min(2 ** round(math.log2(wanted)), _RECENT))


class Tracker(NamedTuple):
    """Gradient descent: its rate, constant or decaying, with or without a unit intercept."""

    rate: float
    decaying: bool = False
    adaptive: bool = False
    biased: bool = False

    def name(self, unit: float) -> str:
        """Return the tracker in words."""
        rate = f"{self.rate * (unit if self.adaptive else unit**2):g}"
        words = f"AdaGrad, rate {rate}" if self.adaptive else f"tracker, rate {rate}"
        return (
            words + (" / sqrt(t)" if self.decaying else "") + (", intercept" if self.biased else "")
        )


class ExpertSpec(NamedTuple):
    """Which experts a panel has, and how they are mixed.

    ridges : of the leaders that forget nothing.
    classes : B of every class for which evidence is collected; a leader each.
    forgetting, trackers : the others; adaptive trackers come last.
    folklore : whether a FOLKLORE is among the experts.
    kept : rows that are held as rows and expanded anew.
    share : fixed share, or Bayes.
    review : whether experts may retire.
    unit : typical norm of x, which is also the constant input of biased trackers.
    """

    ridges: tuple[float, ...]
    classes: tuple[float, ...] = ()
    forgetting: tuple[Forgetting, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    folklore: bool = False
    kept: int = 2000
    share: bool = True
    review: bool = False
    unit: float = 1.0

    @property
    def n_modes(self) -> int:
        """Leaders that forget nothing, those of certificates included."""
        return len(self.ridges) + len(self.classes)

    @property
    def n_linear(self) -> int:
        """Experts that are linear models."""
        return self.n_modes + len(self.forgetting) + len(self.trackers)

    @property
    def n_experts(self) -> int:
        """All experts."""
        return self.n_linear + self.folklore

    @property
    def only_leaders(self) -> bool:
        """Whether models stand still between refreshes, and their weights follow from losses."""
        others = self.forgetting or self.trackers or self.folklore
        return not (others or self.share or self.review)

    @property
    def n_sums(self) -> int:
        """All sums: those that rows enter as they come, and one for each leader that forgets."""
        return self.n_expanded + len(self.forgetting)

    @property
    def n_expanded(self) -> int:
        """Sums that rows enter as they come."""
        return 1 + len(self.classes) if self.n_modes else 0

    def plain(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        entries: dict[str, Any] = json.loads(json.dumps(self._asdict()))
        return entries

    @classmethod
    def read(cls, entries: Any) -> "ExpertSpec":
        """Return what `plain` wrote; TypeError or ValueError if it is none."""
        words = dict(entries)
        for name, kind in (("forgetting", Forgetting), ("trackers", Tracker)):
            words[name] = tuple(kind(*one) for one in words.get(name, ()))
        for name in ("ridges", "classes"):
            words[name] = tuple(float(one) for one in words.get(name, ()))
        return cls(**words)

    def names(self) -> list[str]:
        """Return the experts in words."""
        unit2 = self.unit**2
        leaders = [f"leader, ridge {ridge / unit2:g}" for ridge in self.ridges]
        leaders += [f"leader of the class B = {B:g}" for B in self.classes]
        leaders += [
            f"leader, ridge {f.ridge / unit2:g}, memory {f.memory:g}" for f in self.forgetting
        ]
        return [
            *leaders,
            *[t.name(self.unit) for t in self.trackers],
            *["folklore"][: self.folklore],
        ]

    def only(self, experts: list[int]) -> "ExpertSpec":
        """Return the panel with some of its experts alone."""
        kept = set(experts)
        at = self.n_modes
        later = at + len(self.forgetting)
        return self._replace(
            ridges=tuple(r for e, r in enumerate(self.ridges) if e in kept),
            forgetting=tuple(f for e, f in enumerate(self.forgetting, at) if e in kept),
            trackers=tuple(t for e, t in enumerate(self.trackers, later) if e in kept),
            folklore=self.folklore and self.n_linear in kept,
        )


class ExpertState:
    """A panel's memo and plan. Arguments are validated by the caller.

    A state that is not `whole` has no room for the sums: they are on a device. One that is restored
    is told how many numbers are there (`n_saved`), so that no others are made.
    """

    def __init__(
        self,
        d: int,
        K: int,
        spec: ExpertSpec,
        *,
        max_norm: float,
        max_weight: float,
        room: int = 0,
        whole: bool = True,
        n_saved: int | None = None,
    ) -> None:
        self.spec, self.whole = spec, whole
        self.d, self.K = d, K
        self.max_norm, self.max_weight = max_norm, max_weight
        n_adaptive = sum(t.adaptive for t in spec.trackers)
        self.room = min(room or _FIRST_ROOM, spec.kept) if spec.n_modes else 0
        self.plan: Integers = np.zeros(panel.N_PLAN, np.int64)
        self.plan[: panel.T] = (
            d, K, len(spec.ridges), len(spec.classes), len(spec.forgetting),
            len(spec.trackers) - n_adaptive, n_adaptive, spec.folklore,
            block_rows(d), self._sizes["recent"], self.room, spec.kept,
            _DENSE if (K - 1) * d < _MANY else 0, spec.share, _FIRST_REVIEW_ROUND * spec.review,
        )  # fmt: skip
        at = 0
        for place, name in enumerate(AXES, panel.N_COUNTERS):
            if name == SCRATCH[0]:
                self.n_saved = at
            self.plan[place] = at
            at += math.prod(self.shape(name))
        if n_saved not in (None, self.n_saved):
            raise ValueError(f"a panel of its sizes has {self.n_saved} numbers, not {n_saved}")
        self.memo: Array = np.zeros(at)
        self["constants"][: panel.SQUARED_WEIGHTS] = max_norm, max_weight, spec.unit
        n = (K - 1) * d
        periods = [f.period(n) for f in spec.forgetting]
        self["ridges"][:] = [
            *spec.ridges,
            *[spec.unit**2] * len(spec.classes),
            *[f.ridge for f in spec.forgetting],
        ]
        self["classes"][:] = spec.classes
        self["forgetting"][:, panel.PERIOD] = periods
        self["forgetting"][:, panel.KEEP] = [
            math.exp(-p / f.memory) for p, f in zip(periods, spec.forgetting, strict=True)
        ]
        self["rates"][:] = [t.rate for t in spec.trackers]
        self["decaying"][:] = [t.decaying for t in spec.trackers]
        self["biased"][:] = [spec.unit * t.biased for t in spec.trackers]
        self["weights"][:] = 1.0 / max(spec.n_experts, 1)

    @property
    def _sizes(self) -> dict[str, int]:
        spec = self.spec
        return {
            "features": self.d,
            "inputs": self.d + 1,
            "classes": self.K,
            "pairs": n_pairs(self.K),
            "products": n_products(self.d),
            "experts": spec.n_experts,
            "linear": spec.n_linear,
            "leaders": spec.n_modes + len(spec.forgetting),
            "certified": len(spec.classes),
            "forgetting": len(spec.forgetting),
            "trackers": len(spec.trackers),
            "adaptive": sum(t.adaptive for t in spec.trackers),
            "expanded": spec.n_expanded,
            "sums": self.whole * spec.n_sums,
            "recent": _RECENT if spec.n_modes or spec.forgetting else 0,
            "kept": self.room,
            "predictions": spec.n_linear + 1,
        }

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a section."""
        sizes = self._sizes
        return tuple(axis if isinstance(axis, int) else sizes[axis] for axis in AXES[name])

    def __getitem__(self, name: str) -> Array:
        """Return a section by name: a view, made anew because it would not survive a copy."""
        shape = self.shape(name)
        at = self.plan[panel.N_COUNTERS + list(AXES).index(name)]
        return self.memo[at : at + math.prod(shape)].reshape(shape)

    def model(self, expert: int) -> Array:
        """Return the weights (K, d) of a linear expert."""
        return np.ascontiguousarray(self["W"][: self.d, expert].T)

    def set_model(self, expert: int, W: Array) -> None:
        """Set the weights (K, d) of a linear expert."""
        self["W"][: self.d, expert] = W.T

    def quadratic(self, place: int) -> Quadratic:
        """Return a sum of evidence: 0 the leaders', then those of the certificates."""
        return Quadratic(self["S"][place], self["G"][place], self["totals"][place])

    def like(
        self,
        *,
        d: int | None = None,
        K: int | None = None,
        experts: list[int] | None = None,
        room: int | None = None,
        whole: bool | None = None,
    ) -> "ExpertState":
        """Return the same state with other sizes, fewer experts, more room, or with no sums."""
        if all(one is None for one in (d, K, experts, room, whole)):
            return copy.deepcopy(self)
        kept = list(range(self.spec.n_experts)) if experts is None else experts
        other = ExpertState(
            d or self.d,
            K or self.K,
            self.spec.only(kept),
            max_norm=self.max_norm,
            max_weight=self.max_weight,
            room=room or self.room,
            whole=self.whole if whole is None else whole,
        )
        places = self._places(other, kept)
        for name in AXES:
            if name in SCRATCH or name in _DERIVED:
                continue
            old = [places[a][0] if isinstance(a, str) else range(a) for a in AXES[name]]
            new = [places[a][1] if isinstance(a, str) else range(a) for a in AXES[name]]
            other[name][np.ix_(*new)] = self[name][np.ix_(*old)]
        other.plan[panel.T : panel.N_COUNTERS] = self.plan[panel.T : panel.N_COUNTERS]
        other.plan[panel.ACT] = 0
        modes = places["modes"][0]
        best = int(self.plan[panel.BEST])
        if len(modes):
            losses = other["losses"][: len(modes)]
            other.plan[panel.BEST] = (
                list(modes).index(best) if best in modes else int(np.argmin(losses))
            )
        weights = other["weights"]
        weights /= weights.sum()
        return other

    def _places(
        self, other: "ExpertState", kept: list[int]
    ) -> dict[str, tuple[list[int], list[int]]]:
        """Return, for every axis, which entries are taken over and where they go."""
        spec = self.spec
        places = {}
        for axis, size in self._sizes.items():
            entries = list(range(min(size, other._sizes[axis])))
            places[axis] = (entries, entries)
        places["inputs"] = ([*range(self.d), self.d], [*range(self.d), other.d])
        i, j = np.triu_indices(self.K, 1)
        among = i * other.K - i * (i + 1) // 2 + (j - i - 1)
        places["pairs"] = (list(range(len(among))), among.tolist())

        def chosen(first: int, count: int) -> tuple[list[int], list[int]]:
            old = [e - first for e in kept if first <= e < first + count]
            return old, list(range(len(old)))

        modes, forgetting, trackers = spec.n_modes, len(spec.forgetting), len(spec.trackers)
        places["modes"] = chosen(0, modes)
        places["experts"] = (kept, list(range(len(kept))))
        places["linear"] = chosen(0, spec.n_linear)
        places["leaders"] = chosen(0, modes + forgetting)
        places["forgetting"] = chosen(modes, forgetting)
        places["trackers"] = chosen(modes + forgetting, trackers)
        adaptive = self._sizes["adaptive"]
        places["adaptive"] = chosen(spec.n_linear - adaptive, adaptive)
        sums = self.sums_of(kept) if self.whole and other.whole else []
        places["sums"] = (sums, list(range(len(sums))))
        return places

    def sums_of(self, kept: list[int]) -> list[int]:
        """Return the places of the sums that belong to some of the experts."""
        spec = self.spec
        of_forgetting = range(spec.n_modes, spec.n_modes + len(spec.forgetting))
        own = [spec.n_expanded + e - spec.n_modes for e in kept if e in of_forgetting]
        return [*range(spec.only(kept).n_expanded), *own]

    def is_consistent(self, fresh: Integers) -> bool:
        """Tell whether a restored plan fits its arrays; `fresh` is the plan of an empty state."""
        counters = slice(panel.T, panel.N_COUNTERS)
        own = self.plan.copy()
        own[counters] = fresh[counters]
        plan = self.plan
        return bool(
            np.array_equal(own, fresh)
            and (plan[counters] >= 0).all()
            and plan[panel.FLUSHED] <= plan[panel.POSITION] <= plan[panel.RECENT]
            and plan[panel.N_PROVEN] <= plan[panel.N_KEPT] <= plan[panel.CAPACITY]
            and plan[panel.BEST] < max(self.spec.n_modes, 1)
        )

    def reviewed(self) -> list[int]:
        """Return the experts that stay.

        At a review the dear ones go, leaders that forget and FOLKLORE, if they are far behind and
        carried little weight since the last. All others cost O(K d) a round. They stay, so that the
        bound of fixed share holds against them whatever comes.
        """
        spec, t = self.spec, int(self.plan[panel.T])
        if not spec.review or t < _FIRST_REVIEW_ROUND or t & (t - 1):
            return list(range(spec.n_experts))
        rounds = t if t == _FIRST_REVIEW_ROUND else t // 2
        losses = self["losses"]
        behind = (losses - losses.min()) / self.max_weight
        hopeless = (behind > _BEHIND) & (self["credit"] < _LITTLE * rounds)
        if spec.folklore:  # by far the dearest, and there for streams on which it leads
            little = _LITTLE_EARLY if t < _SETTLED else _LITTLE_LATER
            hopeless[-1] = behind[-1] > _BEHIND_EARLY and self["credit"][-1] < little * rounds
        self["credit"][:] = 0.0
        dear = [*range(spec.n_modes, spec.n_modes + len(spec.forgetting)), spec.n_linear]
        return [e for e in range(spec.n_experts) if e not in dear or not hopeless[e]]


_DERIVED = ("classes", "forgetting", "rates", "decaying", "biased")  # follow from the spec
