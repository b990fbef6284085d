"""Alarms when capped losses have risen, with a bound on the probability of a false alarm."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.metrics.columns import Shift
from folklearn.serialization import Record, Serializable

_ROWS_PER_LOOK = 64
_MAX_RISE = 100.0
_LIFETIME = 4  # of a suspicion, times the largest power of two that divides its beginning
_BETS = 2.0 ** -np.arange(1, 6)  # parts of a suspicion's capital
_NOT_BET = 1.0 - _BETS[:, None]
_RATES = 2.0 ** -np.arange(1, 9)  # kappa of docs/theory/monitoring.md
_PRICES = -np.log1p(-_RATES) - _RATES  # psi(kappa) there
# Of a suspicion, with a capital for each bet. What is capped decides; what is not is only shown.
_BEGINNING, _BEFORE, _CAPPED_BEFORE, _LEVEL, _TOTAL, _CAPPED_TOTAL, _CAPITAL = range(7)
_HEIGHT = _CAPITAL + len(_BETS)
_CAPPED, _SPREAD, _UNCAPPED = range(3)  # of the past: totals, the spread between them


class Alarm(NamedTuple):
    """A rise of capped losses that a monitor has found; rows are counted from 0."""

    row: int  #: the rows that had come by then
    since: int  #: about the first row that was worse
    before: float  #: average loss before that row
    now: float  #: and from it on
    capped_before: float  #: the same, but a loss above `cap` counted as `cap`
    capped_now: float
    cap: float  #: of the monitor, in nats

    def in_words(self) -> str:
        """Return the alarm as a sentence."""
        uncapped = f"from {self.before:.3f} to {self.now:.3f}"
        if self.now < self.before:
            uncapped = f"it has fallen {uncapped}: less of it is above {self.cap:g}"
        return (
            f"After row {self.row}: the loss, capped at {self.cap:g} a row, has risen from "
            f"{self.capped_before:.3f} to {self.capped_now:.3f}, since about row {self.since}; "
            f"uncapped, {uncapped}."
        )


class ColumnAlarm(NamedTuple):
    """A column whose values have changed, as `Model.monitor` finds it."""

    row: int  #: the rows that had come by then
    column: str
    shift: Shift

    def in_words(self) -> str:
        """Return the alarm as a sentence."""
        return f"After row {self.row}: column {self.column} {self.shift.in_words()}."


class Monitor(Serializable):
    r"""Watches losses row by row, and raises an alarm when, capped, they have become worse.

    Use it as `Model.monitor`, or with the losses of any other model that learns. Seasons are rises,
    too. A loss above ``cap`` counts as ``cap``: without a bound on losses nothing can be said in
    finite time. The uncapped average may fall meanwhile; `Alarm` has both.

    An upper bound :math:`u` of the average expected capped loss since the last alarm is kept. Every
    64 rows a suspicion begins to bet that capped losses :math:`\ell` are above it: its capital is
    multiplied by :math:`1 + \lambda (\ell / u - 1)` in every row. The suspicions of all times
    together begin with 1; when they have :math:`2 / \alpha`, the alarm is raised.
    Time a row: about a microsecond; memory: :math:`O(\log T)`.

    Guarantee: as long as the expected capped loss of every row, given all that came before, is at
    most 1 + ``rise`` times the average of the expected capped losses from the first row up to any
    earlier look, as it is if it never rises, the probability that there is ever an alarm, however
    long the stream, is at most ``alpha``. Nothing else is assumed: neither independence, nor any
    distribution (docs/theory/monitoring.md).

    Parameters
    ----------
    alert : called with every `Alarm`, and by `Model.monitor` with every `ColumnAlarm`, once for a
        column; it is not saved.
    alpha : the probability of a false alarm, ever; between 0 and 1.
    rise : by which part of itself the capped loss may rise without an alarm, from 0 to 100.
    cap : larger losses count as this one, in nats; positive. Losses below 0 count as 0.
    start : the number of the first row.

    Attributes
    ----------
    alarms : all so far. After each, what came before it is forgotten.

    Examples
    --------
    >>> import numpy as np
    >>> from folklearn.evaluate import Monitor
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor(lambda alarm: print(alarm.in_words()))
    >>> monitor.observe_many(rng.exponential(0.5, size=5000))
    >>> monitor.observe_many(rng.exponential(0.9, size=1000))  # doctest: +NORMALIZE_WHITESPACE
    After row 5120: the loss, capped at 4 a row, has risen from 0.508 to 0.854, since about row
    4992; uncapped, from 0.508 to 0.854.
    """

    PARAMS = ("alpha", "rise", "cap", "start")
    COUNTERS = ("_n_looks", "_n_before")
    ARRAYS = ("past",)

    def __init__(
        self,
        alert: Callable[[Any], Any] | None = None,
        *,
        alpha: float = 0.01,
        rise: float = 0.01,
        cap: float = 4.0,
        start: int = 0,
    ) -> None:
        self.alert = alert
        self.alpha = validation.fraction("alpha", validation.positive("alpha", alpha), 1.0)
        self.rise = validation.fraction("rise", rise, _MAX_RISE)
        self.cap = validation.positive("cap", cap)
        self.forget()
        self.start = validation.count("start", start, 0)

    def forget(self) -> None:
        """Begin anew, at row 0 of another stream."""
        self.start = 0
        self.alarms: list[Alarm] = []
        self._shifts: Mapping[str, Shift] = {}
        self._waiting: list[float] = []  # for the next look
        self._n_looks = 0
        self._begin()

    def _begin(self) -> None:
        self._n_before = self._n_looks
        self._past = np.zeros(3)  # squared distances are from what was expected
        self._suspicions = np.empty((_HEIGHT, 0))

    @property
    def n_rows(self) -> int:
        """The number of rows so far."""
        return self.start + _ROWS_PER_LOOK * self._n_looks + len(self._waiting)

    def observe(self, loss: float) -> None:
        """Observe the loss of one row."""
        if loss != loss:
            _raise_invalid_loss()
        self._waiting.append(loss)
        if len(self._waiting) == _ROWS_PER_LOOK:
            self.observe_many(())

    def observe_many(self, losses: ArrayLike) -> None:
        """Observe losses (T,), in order; alerts come at the end."""
        new = validation.numbers("losses", losses)
        if np.isnan(new).any():
            _raise_invalid_loss()
        waiting = np.array([*self._waiting, *new.tolist()])
        stop = len(waiting) // _ROWS_PER_LOOK * _ROWS_PER_LOOK
        self._waiting = waiting[stop:].tolist()
        n_alarms = len(self.alarms)
        for rows in waiting[:stop].clip(0.0).reshape(-1, _ROWS_PER_LOOK):
            self._look(rows)
        if self.alert is not None:
            for alarm in self.alarms[n_alarms:]:
                self.alert(alarm)

    def observe_columns(self, shifts: Mapping[str, Shift]) -> None:
        """Take note of columns that have changed; the alert is called with those that are new."""
        new = [name for name in shifts if name not in self._shifts]
        self._shifts = {**self._shifts, **shifts}
        if self.alert is not None:
            for name in new:
                self.alert(ColumnAlarm(self.n_rows, name, shifts[name]))

    def _look(self, losses: Array) -> None:
        capped, mean = losses.clip(max=self.cap), self._mean(_CAPPED)
        if self._n_looks > self._n_before:
            self._suspect()
        total, capped_total = losses.sum(), capped.sum()
        self._past += capped_total, ((capped - mean) ** 2).sum(), total
        self._n_looks += 1
        suspicions = self._suspicions
        stakes = _BETS[:, None] / suspicions[_LEVEL]
        suspicions[_CAPITAL:] *= (capped[:, None, None] * stakes + _NOT_BET).prod(axis=0)
        suspicions[_TOTAL] += total
        suspicions[_CAPPED_TOTAL] += capped_total
        if suspicions[_CAPITAL:].sum() >= 2.0 / self.alpha:
            self._raise_alarm()

    def _suspect(self) -> None:
        """Begin to bet that from now on capped losses are above what they were."""
        now = self._n_looks
        dropped = now - _LIFETIME * (now & -now)  # the only one whose time is over
        kept = self._suspicions[:, self._suspicions[_BEGINNING] != dropped]
        new = np.full((_HEIGHT, 1), _share(now) / len(_BETS))
        level = (1.0 + self.rise) * self._at_most()
        new[:_CAPITAL, 0] = now, self._mean(_UNCAPPED), self._mean(_CAPPED), level, 0.0, 0.0
        self._suspicions = np.concatenate([kept, new], axis=1)

    def _mean(self, total: int) -> float:
        """Return the average loss since the last alarm, `_CAPPED` or `_UNCAPPED`."""
        n_rows = _ROWS_PER_LOOK * (self._n_looks - self._n_before)
        return float(self._past[total]) / n_rows if n_rows else 0.0

    def _at_most(self) -> float:
        """Return what the average expected capped loss since the last alarm surely is not above."""
        total, spread, _ = self._past.tolist()
        price = math.log(2.0 * len(_RATES) / (self.alpha * _share(self._n_before)))
        slack: list[float] = ((_PRICES * (spread / self.cap) + self.cap * price) / _RATES).tolist()
        return (total + min(slack)) / (_ROWS_PER_LOOK * (self._n_looks - self._n_before))

    def _raise_alarm(self) -> None:
        richest = self._suspicions[:, self._suspicions[_CAPITAL:].sum(axis=0).argmax()]
        since, before, capped_before, _, total, capped = richest[:_CAPITAL].tolist()
        n_rows = _ROWS_PER_LOOK * (self._n_looks - int(since))
        row = self.start + _ROWS_PER_LOOK * self._n_looks
        after = total / n_rows, capped_before, capped / n_rows
        self.alarms.append(Alarm(row, row - n_rows, before, *after, self.cap))
        self._begin()

    def state(self) -> dict[str, Any]:
        """Return where it stands: averages since the last alarm, None before the first look.

        ``capped_at_most`` is what the average expected capped loss surely does not exceed.
        """
        looked = self._n_looks > self._n_before
        return {
            "rows": self.n_rows,
            "since": self.start + _ROWS_PER_LOOK * self._n_before,
            "loss": self._mean(_UNCAPPED) if looked else None,
            "capped_loss": self._mean(_CAPPED) if looked else None,
            "capped_at_most": self._at_most() if looked else None,
            "alarms": len(self.alarms),
        }

    def to_record(self) -> Record:
        """Return everything but the alert as a record."""
        record = super().to_record()
        record.arrays["waiting"] = np.array(self._waiting, np.float64)
        record.arrays["suspicions"] = self._suspicions.copy()
        record.arrays["alarms"] = np.array(self.alarms, np.float64).reshape(-1, len(Alarm._fields))
        return record

    def _restore(self, record: Record) -> None:
        super()._restore(record)
        self._waiting = record.part("waiting", (None,), least=-np.inf, most=np.inf).tolist()
        self._suspicions = record.part("suspicions", (_HEIGHT, None)).copy()
        for row, since, *losses in record.part("alarms", (None, len(Alarm._fields))).tolist():
            self.alarms.append(Alarm(int(row), int(since), *losses))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the alert, which is not called twice."""
        return Monitor.from_record, (self.to_record(),)


def _share(look: int) -> float:
    """Return the part of alpha for stretches that begin at a look: over all looks they sum to 1."""
    return 1.0 / math.log2(look + 2.0) - 1.0 / math.log2(look + 3.0)


def _raise_invalid_loss() -> None:
    raise InvalidInputError("a loss is not a number: leave out rows without a label")
