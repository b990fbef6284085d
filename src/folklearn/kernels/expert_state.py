"""The state of a panel of experts as an object: its arrays by name, and how they change size."""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from folklearn.arrays import Array
from folklearn.errors import StateFileError
from folklearn.kernels import experts as panel
from folklearn.kernels import leaders
from folklearn.kernels.evidence import N_TOTALS, block_rows, n_pairs, n_products
from folklearn.kernels.experts import AXES, SCRATCH
from folklearn.kernels.quadratic import Quadratic, pairs_among

Integers = NDArray[np.int64]


_RECENT = 256  # rows that wait, at most; a multiple of every period of forgetting
_FIRST_ROOM = 64  # for rows to be kept; it doubles when it is full
_DENSE_ROUNDS = 4000  # up to which leaders are refreshed for every twentieth more,
_MAX_DENSE_UNKNOWNS = 499  # unless there are more unknowns
_DENSELY, _SPARSELY = 20, 10
_MIN_HUGE_UNKNOWNS = 3000  # from which on a refresh takes as long as thousands of rounds,
_SELDOMLY, _FIRST_STRETCH = 2, 8  # and is made for every half more, or after eight rounds
# Leaders that follow rows are refreshed for a tenth more, of the geometric mean of t and t + 20 d
# or t + 400: what does not depend on rows makes the first refreshes dear. To follow takes d^2.
_FOLLOWED_ROUNDS, _MAX_FOLLOWED_FEATURES = 4000, 500
_ROUNDS_PER_FEATURE, _MIN_ROUNDS_AHEAD = 20, 400
_FIRST_REVIEW_ROUND = 128
# At a review an expert may go that is this many nats behind and had at most this share of the
# weight, on average since the last one; FOLKLORE, by far the dearest, sooner.
_BEHIND, _LITTLE = 20.0, 2e-3
_BEHIND_FOLKLORE, _LITTLE_EARLY, _LITTLE_LATER, _SETTLED_ROUNDS = 5.0, 5e-3, 5e-2, 4096


class Forgetting(NamedTuple):
    """A leader that forgets: its ridge, and the rounds after which a row counts 1/e."""

    ridge: float
    memory: float

    def period(self, n: int) -> int:
        """Return the rounds between refreshes: a tenth of the memory, or half the unknowns n."""
        wanted = max(self.memory / 10.0, n / 2.0, 1.0)
        return int(min(2 ** round(math.log2(wanted)), _RECENT))


class Tracker(NamedTuple):
    """Gradient descent: its rate, constant or decaying, with or without a unit intercept."""

    rate: float
    decaying: bool = False
    adaptive: bool = False
    biased: bool = False

    def name(self, unit: float) -> str:
        kind, rate = (
            ("AdaGrad", self.rate * unit) if self.adaptive else ("tracker", self.rate * unit**2)
        )
        decay, intercept = " / sqrt(t)" * self.decaying, ", intercept" * self.biased
        return f"{kind}, rate {rate:g}{decay}{intercept}"


class ExpertSpec(NamedTuple):
    """Which experts a panel has, and how they are mixed.

    ridges : of the leaders that forget nothing.
    forgetting, trackers : the others; adaptive trackers come last.
    folklore : whether a FOLKLORE is among the experts.
    kept : rows that are held as rows and expanded anew.
    share : fixed share, or Bayes.
    review : whether experts may retire.
    unit : typical norm of x, which is also the constant input of biased trackers.
    following : ridge of the covariance by which leaders follow the first rows from one refresh to
        the next; with 0 they stand still.
    """

    ridges: tuple[float, ...]
    forgetting: tuple[Forgetting, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    folklore: bool = False
    kept: int = 2000
    share: bool = True
    review: bool = False
    unit: float = 1.0
    following: float = 0.0

    @property
    def n_experts(self) -> int:
        return len(self.numbers["experts"])

    @property
    def numbers(self) -> dict[str, range]:
        """The numbers of the experts of each kind; all but FOLKLORE are linear models."""
        n_modes = len(self.ridges)
        n_leaders = n_modes + len(self.forgetting)
        n_linear = n_leaders + len(self.trackers)
        return {
            "leaders": range(n_leaders),
            "forgetting": range(n_modes, n_leaders),
            "trackers": range(n_leaders, n_linear),
            "adaptive": range(n_linear - sum(t.adaptive for t in self.trackers), n_linear),
            "linear": range(n_linear),
            "experts": range(n_linear + self.folklore),
        }

    @property
    def dear(self) -> set[int]:
        """The numbers of the experts whose rounds cost more than O(K d), which may go."""
        numbers = self.numbers
        return {*numbers["forgetting"], *numbers["experts"][len(numbers["linear"]) :]}

    @property
    def only_leaders(self) -> bool:
        """Whether models stand still between refreshes, and their weights follow from losses."""
        others = self.forgetting or self.trackers or self.folklore
        return not (others or self.share or self.review)

    @property
    def n_sums(self) -> int:
        """The sum that rows enter as they come, and one for each leader that forgets."""
        return bool(self.ridges) + len(self.forgetting)

    def names(self) -> list[str]:
        unit2 = self.unit**2
        names = [f"leader, ridge {ridge / unit2:g}" for ridge in self.ridges]
        names += [
            f"leader, ridge {f.ridge / unit2:g}, memory {f.memory:g}" for f in self.forgetting
        ]
        names += [tracker.name(self.unit) for tracker in self.trackers]
        return [*names, "folklore"] if self.folklore else names

    def only(self, experts: Sequence[int]) -> "ExpertSpec":
        """Return the panel with these experts alone: all but some of the dear ones."""
        forgetting = zip(self.numbers["forgetting"], self.forgetting, strict=True)
        return self._replace(
            forgetting=tuple(f for e, f in forgetting if e in experts),
            folklore=self.folklore and self.n_experts - 1 in experts,
        )


class ExpertState:
    """A panel's memo and plan. Arguments are validated by the caller.

    One that is not `whole` has no room for the sums, which are on a device. A restored one is made
    only if it has `n_saved` numbers.
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
        self.room = min(room or _FIRST_ROOM, spec.kept) if spec.ridges else 0
        sizes = self._sizes
        unknowns = (K - 1) * d
        self.plan: Integers = np.zeros(panel.N_PLAN, np.int64)
        self.plan[: panel.T] = (
            d, K, len(spec.ridges), len(spec.forgetting),
            sizes["trackers"] - sizes["adaptive"], sizes["adaptive"], spec.folklore,
            block_rows(d) if whole else _RECENT, sizes["recent"], self.room, spec.kept,
            _DENSE_ROUNDS if unknowns <= _MAX_DENSE_UNKNOWNS else 0, spec.share,
            _FIRST_REVIEW_ROUND * spec.review, _FOLLOWED_ROUNDS * bool(sizes["followed"]),
        )  # fmt: skip
        at = 0
        for name, entries in zip(AXES, self._sections, strict=True):
            if name == SCRATCH[0]:
                self.n_saved = at
            shape = [sizes[axis] if isinstance(axis, str) else axis for axis in AXES[name]]
            entries[:] = 1
            entries[: 1 + len(shape)] = at, *shape
            at += math.prod(shape)
        if n_saved not in (None, self.n_saved):
            raise StateFileError(f"a panel of its sizes has {self.n_saved} numbers, not {n_saved}")
        self.memo: Array = np.zeros(at)
        self["constants"][: panel.SQUARED_WEIGHTS] = max_norm, max_weight, spec.unit
        self._periods = periods = [f.period(unknowns) for f in spec.forgetting]
        forgetting = zip(periods, spec.forgetting, strict=True)
        self["ridges"][:] = [*spec.ridges, *(f.ridge for f in spec.forgetting)]
        self["forgetting"][:, panel.PERIOD] = periods
        self["forgetting"][:, panel.KEEP] = [math.exp(-p / f.memory) for p, f in forgetting]
        if sizes["followed"]:
            np.fill_diagonal(self["P"], 0.5 / spec.following)
        self["rates"][:] = [t.rate for t in spec.trackers]
        self["decaying"][:] = [t.decaying for t in spec.trackers]
        self["biased"][:] = [spec.unit * t.biased for t in spec.trackers]
        self["weights"][:] = 1.0 / max(spec.n_experts, 1)

    @property
    def _sizes(self) -> dict[str, int]:
        spec = self.spec
        numbers = {kind: len(numbers) for kind, numbers in spec.numbers.items()}
        return numbers | {
            "features": self.d, "inputs": self.d + 1, "classes": self.K, "pairs": n_pairs(self.K),
            "products": n_products(self.d), "followed": self.d if self._is_followed else 0,
            "sums": self.whole * spec.n_sums, "recent": _RECENT if numbers["leaders"] else 0,
            "kept": self.room, "predictions": numbers["linear"] + 1,
        }  # fmt: skip

    @property
    def _is_followed(self) -> bool:
        is_huge = (self.K - 1) * self.d >= _MIN_HUGE_UNKNOWNS
        return self.spec.following > 0.0 and self.d <= _MAX_FOLLOWED_FEATURES and not is_huge

    @property
    def _sections(self) -> Integers:
        """What the plan says of every section: its place and three lengths."""
        return self.plan[panel.N_COUNTERS :].reshape(len(AXES), -1)

    def __getitem__(self, name: str) -> Array:
        """Return a section by name: a view, made anew because it would not survive a copy."""
        at, *lengths = self._sections[list(AXES).index(name)].tolist()
        shape = lengths[: len(AXES[name])]
        return self.memo[at : at + math.prod(shape)].reshape(shape)

    def model(self, expert: int) -> Array:
        """Return the weights (K, d) of a linear expert."""
        return np.ascontiguousarray(self["W"][: self.d, expert].T)

    def set_model(self, expert: int, W: Array) -> None:
        """Set the weights (K, d) of a linear expert."""
        self["W"][: self.d, expert] = W.T

    def quadratic(self, place: int) -> Quadratic:
        """Return a sum: 0 the leaders', then those of leaders that forget."""
        return Quadratic(self["S"][place], self["G"][place], np.zeros(N_TOTALS))

    def like(
        self,
        *,
        d: int | None = None,
        K: int | None = None,
        experts: Sequence[int] | None = None,
        room: int | None = None,
        whole: bool | None = None,
    ) -> "ExpertState":
        """Return the same state with other sizes, fewer experts, more room, or with no sums."""
        if all(change is None for change in (d, K, experts, room, whole)):
            return copy.deepcopy(self)
        kept = self.spec.numbers["experts"] if experts is None else experts
        changed = ExpertState(
            d or self.d, K or self.K, self.spec.only(kept), max_norm=self.max_norm,
            max_weight=self.max_weight, room=room or self.room,
            whole=self.whole if whole is None else whole,
        )  # fmt: skip
        places = self._places(changed, kept)
        for name in AXES:
            if name in SCRATCH or name in _DERIVED:
                continue
            pairs = [places[a] if isinstance(a, str) else (range(a), range(a)) for a in AXES[name]]
            old, new = zip(*pairs, strict=True)
            changed[name][np.ix_(*new)] = self[name][np.ix_(*old)]
        changed.plan[panel.T : panel.N_COUNTERS] = self.plan[panel.T : panel.N_COUNTERS]
        changed["weights"][:] /= changed["weights"].sum()
        return changed

    def _places(
        self, changed: "ExpertState", kept: Sequence[int]
    ) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
        """Return, for every axis, which entries are taken over and where they go."""
        places: dict[str, tuple[Sequence[int], Sequence[int]]] = {}
        sizes = changed._sizes
        for axis, size in self._sizes.items():
            entries = range(min(size, sizes[axis]))
            places[axis] = (entries, entries)
        places["inputs"] = (range(self.d + 1), [*range(self.d), changed.d])
        pairs = pairs_among(self.K, changed.K).tolist()
        places["pairs"] = (range(len(pairs)), pairs)
        for kind, numbers in self.spec.numbers.items():
            old = [e - numbers.start for e in kept if e in numbers]
            places[kind] = (old, range(len(old)))
        sums = self.sums_of(kept) if self.whole and changed.whole else []
        places["sums"] = (sums, range(len(sums)))
        return places

    def sums_of(self, kept: Sequence[int]) -> list[int]:
        """Return the places of the sums that belong to some of the experts."""
        first = int(bool(self.spec.ridges))
        forgetting = self.spec.numbers["forgetting"]
        return [*range(first), *(first + e - forgetting.start for e in kept if e in forgetting)]

    def release_rows(self) -> None:
        """Let all rows enter the sums, expanded at the models that there are, and keep none."""
        # POSITION stays: it says which rounds a leader that forgets has learned.
        plan, n_modes = self.plan, len(self.spec.ridges)
        stop, best = int(plan[panel.POSITION]), int(plan[panel.BEST])
        entering = [(0, best, "kept", slice(int(plan[panel.N_KEPT])))] if n_modes else []
        for f, period in enumerate(self._periods):
            since_refresh = slice(stop - stop % period, stop)
            entering.append((bool(n_modes) + f, n_modes + f, "recent", since_refresh))
        leaders.flush(self.memo, plan)
        for place, expert, which, rows in entering:
            S, G, _ = self.quadratic(place)
            X, Y, weights = (self[f"{which}_{part}"][rows] for part in ("x", "y", "w"))
            leaders.add_expanded(S, G, self.model(expert), X, Y, weights)
        for name in ("recent_x", "recent_y", "recent_w", "kept_x", "kept_y", "kept_w"):
            self[name][:] = 0.0
        self.memo[self.n_saved :] = 0.0
        plan[panel.N_KEPT] = 0

    def is_consistent(self, fresh: Integers) -> bool:
        """Tell whether a restored plan fits its arrays; `fresh` is the plan of an empty state."""
        plan, counters = self.plan, slice(panel.T, panel.N_COUNTERS)
        same = plan == fresh
        same[counters] = plan[counters] >= 0
        return bool(
            same.all()
            and plan[panel.FLUSHED] <= plan[panel.POSITION] <= plan[panel.RECENT]
            and plan[panel.N_KEPT] <= plan[panel.CAPACITY]
            and plan[panel.BEST] < max(len(self.spec.ridges), 1)
        )

    def settle(self, sums: Any = None) -> bool:
        """Do what is due after a round; return whether experts are reviewed, or room is needed.

        Rows enter the sums in blocks; when leaders are refreshed say the constants above.
        """
        sums = OwnSums if sums is None else sums
        plan = self.plan[: panel.N_COUNTERS].tolist()
        t, n_modes = plan[panel.T], plan[panel.RIDGES]
        waiting = plan[panel.POSITION] - plan[panel.FLUSHED]
        is_due, is_full = t >= plan[panel.NEXT], plan[panel.POSITION] >= plan[panel.RECENT]
        if n_modes and waiting and (is_due or is_full or waiting >= plan[panel.BLOCK]):
            sums.flush(self)
        for f, period in enumerate(self._periods):
            if t % period == 0:
                sums.refresh_forgetting(self, f)
        if is_due:
            if n_modes:
                sums.refresh(self)
            self.plan[panel.NEXT] = t + self._rounds_to_refresh(t)
        if is_full:
            self.plan[panel.POSITION] = self.plan[panel.FLUSHED] = 0
        needs_room = n_modes > 0 and plan[panel.N_KEPT] >= self.room < self.spec.kept
        return needs_room or self._is_reviewed(t)

    def _rounds_to_refresh(self, t: int) -> int:
        unknowns = (self.K - 1) * self.d
        if t < self.plan[panel.FOLLOWING]:
            ahead = max(_MIN_ROUNDS_AHEAD, _ROUNDS_PER_FEATURE * self.d)
            return max(1, math.isqrt(t * (t + ahead)) // _SPARSELY)
        if unknowns >= _MIN_HUGE_UNKNOWNS:
            return max(_FIRST_STRETCH, t // _SELDOMLY)
        return max(1, t // (_DENSELY if t < self.plan[panel.DENSE] else _SPARSELY))

    def _is_reviewed(self, t: int) -> bool:
        return self.spec.review and t >= _FIRST_REVIEW_ROUND and t & (t - 1) == 0

    def find_hopeless(self) -> set[int]:
        """Return the dear experts that are far behind and carried little, if this is a review.

        All others stay: the bound of fixed share holds against them whatever comes.
        """
        spec, t = self.spec, int(self.plan[panel.T])
        if not self._is_reviewed(t):
            return set()
        rounds = t if t == _FIRST_REVIEW_ROUND else t // 2
        losses = self["losses"]
        behind = (losses - losses.min()) / self.max_weight
        share = self["credit"] / rounds
        hopeless = (behind > _BEHIND) & (share < _LITTLE)
        if spec.folklore:
            little = _LITTLE_EARLY if t < _SETTLED_ROUNDS else _LITTLE_LATER
            hopeless[-1] = behind[-1] > _BEHIND_FOLKLORE and share[-1] < little
        self["credit"][:] = 0.0
        return {e for e in spec.dear if hopeless[e]}


_DERIVED = ("ridges", "forgetting", "rates", "decaying", "biased")  # follow from the spec


class OwnSums:
    """The sums that are in the state itself, by compiled code; `ExpertSums` are on a device."""

    @staticmethod
    def flush(state: ExpertState) -> None:
        leaders.flush(state.memo, state.plan)

    @staticmethod
    def refresh(state: ExpertState) -> None:
        leaders.refresh(state.memo, state.plan)

    @staticmethod
    def refresh_forgetting(state: ExpertState, f: int) -> None:
        leaders.refresh_forgetting(state.memo, state.plan, f)
