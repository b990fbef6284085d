"""What a model looks like on its page: made from a copy, in a thread of its own, and kept."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

from folklearn.evaluate.windows import Window
from folklearn.evidence.certificate import Certificate
from folklearn.model.document import proven
from folklearn.model.explain import Explanation
from folklearn.model.model import Model
from folklearn.serialization import Record
from folklearn.service.model_host import ModelHost
from folklearn.service.pages import words
from folklearn.service.pages.pictures import PICTURES, Picture, drawn
from folklearn.service.service import Service
from folklearn.service.states import ClassifierState

_PATIENCE = 5.0  # seconds that a look is good for, at least,
_SHARE = 5.0  # and times what it cost
_MOST = 16  # looks that are kept
_FEW = 64  # rows that say little
_LATELY = 256  # rows
_SURE = 2.0  # standard deviations, for a difference to be told
_SELDOM = 20.0  # times what it cost, between two measurements of what columns are worth
_MOST_LINES = 12  # of a table
_LONGEST = 40  # letters of a label in a sentence


class Look:
    """What one version of a classifier looks like.

    Everything is worked out when it is first asked for, which must be in one thread.
    """

    def __init__(self, version: int, model: Model) -> None:
        self.version, self.model, self.metrics = version, model, model.metrics
        self.labels, self.alarms = [str(label) for label in model.labels], model.monitor().alarms
        self._drawn: dict[tuple[str, bool], str] = {}

    def work_out(self) -> "Look":
        """Do all that the page needs; return the same."""
        _ = self.sentence, self.proof, self.pictures, self.classes
        return self

    @cached_property
    def windows(self) -> list[Window]:
        """The last rows, in windows that double, the shortest first."""
        return [one for one in self.model.windows() if one.weight > 0.0]

    @property
    def lately(self) -> Window | None:
        """The rows that are meant by lately."""
        long = (one for one in self.windows if one.n_rounds >= _LATELY)
        return next(long, None)

    @cached_property
    def sentence(self) -> str:
        """How the model does, in a sentence that changes only if that does."""
        model, n = self.model, self.model.n_rounds
        if n < _FEW:
            return "It has learned too few rows to say how it does."
        wrong = model.n_mistakes / n
        whole = f"It was right about {words.about(1.0 - wrong)} of all rows"
        if self.classes:
            first = self.classes[0]
            whole += (
                f", where always saying {first.label[:_LONGEST]!r} would have been right about "
                f"{words.about(first.n_rows / n)}"
            )
        if self.lately is None or self.lately.n_rounds == n:
            return f"{whole}."
        wrong_lately = self.lately.n_errors / self.lately.n_rounds
        far = _SURE * math.sqrt(wrong * (1.0 - wrong) / self.lately.n_rounds)
        change = "about as well as ever"
        if abs(wrong_lately - wrong) > far:
            change = "better than before" if wrong_lately < wrong else "worse than before"
        return f"{whole}. Lately it does {change}: {words.about(1.0 - wrong_lately)} are right."

    @cached_property
    def proof(self) -> str:
        """What is proven, in words."""
        return " ".join(proven(self.model, self.certificate))

    @cached_property
    def certificate(self) -> Certificate | None:
        """What is proven about linear models."""
        return self.model.certificate()

    @property
    def guessing(self) -> float:
        """The loss of who gives all classes the same chance."""
        return math.log(max(1, len(self.model.labels)))

    @cached_property
    def classes(self) -> list["ClassLine"]:
        """What came of the classes, the most frequent ones first."""
        found = zip(self.labels, self.metrics.by_class(), strict=False)
        lines = [ClassLine(label, one.n_rows, one.recall, one.precision) for label, one in found]
        return sorted(lines, key=lambda line: -line.n_rows)[:_MOST_LINES]

    @cached_property
    def explanation(self) -> Explanation | None:
        """The weights, None before there are two classes."""
        return None if self.model.learner is None else self.model.explain(importance=False)

    @cached_property
    def pictures(self) -> list[Picture]:
        """The pictures that there is something for."""
        return [one for one in PICTURES.values() if one.is_there(self)]

    def draw(self, name: str, is_narrow: bool) -> str:
        """Return a picture as SVG."""
        if (name, is_narrow) not in self._drawn:
            self._drawn[name, is_narrow] = drawn(self, name, is_narrow)
        return self._drawn[name, is_narrow]


class ClassLine(NamedTuple):
    """A class: its rows, how many were found, and how often it was right to name it."""

    label: str
    n_rows: int
    found: float
    right: float


class Looks:
    """The looks of models, each kept for a while: who watches must not keep the writer waiting."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, "folklearn-pages")
        self._one_at_a_time, self._one_measure = asyncio.Lock(), threading.Lock()
        # By model, with the time from which they are too old.
        self._kept: dict[int, tuple[Look, float]] = {}
        self._worth: dict[int, tuple[list[tuple[str, float]] | None, float]] = {}

    async def of(self, host: ModelHost) -> Look:
        """Return what a classifier looks like, or looked like a moment ago."""
        async with self._one_at_a_time:
            kept, until = self._kept.get(host.number, (None, 0.0))
            began = time.monotonic()
            if kept is not None and (kept.version == host.version or began < until):
                return kept
            version, state = await self._service.copy_of(host)
            assert isinstance(state, ClassifierState)
            look: Look = await self._in_thread(Look(version, state.model).work_out)
            ended = time.monotonic()
            until = ended + max(_PATIENCE, _SHARE * (ended - began))
            self._kept.pop(host.number, None)
            if len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[host.number] = look, until
            return look

    async def picture(self, host: ModelHost, name: str, *, is_narrow: bool) -> str:
        """Return a picture of a classifier as SVG."""
        look = await self.of(host)
        drawn: str = await self._in_thread(partial(look.draw, name, is_narrow))
        return drawn

    async def report(self, host: ModelHost) -> str:
        """Return all about a classifier as one document."""
        record = (await self.of(host)).model.to_record()
        title = f"Report on {host.row.name}"
        return await asyncio.to_thread(lambda: Model.from_record(record).report(title=title))

    def worth(self, host: ModelHost, look: Look) -> list[tuple[str, float]] | None:
        """Return what columns were worth when that was measured last; None if it is under way.

        To measure it takes long, so it is done beside, and seldom.
        """
        worth, until = self._worth.get(host.number, (None, 0.0))
        if time.monotonic() >= until and look.explanation is not None:
            self._worth[host.number] = worth, math.inf
            # A daemon: whoever stops the service does not wait for it.
            own = host.number, look.model.to_record()
            threading.Thread(target=self._measure, args=own, daemon=True).start()
        return worth

    def _measure(self, number: int, record: Record) -> None:
        with self._one_measure:
            began = time.monotonic()
            found = Model.from_record(record).explain().importance
            ended = time.monotonic()
        largest = sorted(found.items(), key=lambda pair: -pair[1])[:_MOST_LINES]
        self._worth[number] = largest, ended + _SELDOM * (ended - began)

    def close(self) -> None:
        """End the thread in which looks are worked out."""
        self._thread.shutdown(cancel_futures=True)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
