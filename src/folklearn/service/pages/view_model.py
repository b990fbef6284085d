"""What the page of a model shows: computed from a copy, in a thread, and cached."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

from folklearn.evaluate.windows import Window
from folklearn.model.model import Model
from folklearn.model.summary import NOTHING_PROVEN, ModelSummary
from folklearn.serialization import Record
from folklearn.service.model_host import ModelHost
from folklearn.service.pages.charts import CHARTS, draw_chart
from folklearn.service.service import Service
from folklearn.service.states import ClassifierState

_MIN_SECONDS_KEPT = 5.0  # that a page is shown, at least,
_COST_RATIO_KEPT = 5.0  # and times what it took to compute
_COST_RATIO_IMPORTANCE = 20.0  # between two measurements of importance
_MAX_PAGES_KEPT = 16
_MAX_TABLE_ROWS = 12


class ModelPage:
    """One version of a classifier on its page.

    Properties are computed when they are first read, which must be in one thread.
    """

    def __init__(self, version: int, model: Model) -> None:
        self.version, self.model = version, model
        self.labels, self.alarms = [str(label) for label in model.labels], model.monitor().alarms
        self._charts: dict[tuple[str, bool], str] = {}

    def compute(self) -> "ModelPage":
        """Compute what the page needs, and return it."""
        _ = self.facts.accuracy, self.facts.drift, self.charts, self.classes
        return self

    @cached_property
    def facts(self) -> ModelSummary:
        """The summary of the model."""
        if self.model.n_rounds:
            return ModelSummary.of_model(self.model, importance=False)
        return ModelSummary(self.labels, self.model.metrics, [NOTHING_PROVEN])

    @cached_property
    def windows(self) -> list[Window]:
        """The last rows, in windows that double, the shortest first."""
        return [one for one in self.model.windows() if one.weight > 0.0]

    @property
    def uniform_loss(self) -> float:
        """The loss of giving all classes the same probability."""
        return math.log(max(1, len(self.labels)))

    @property
    def classes(self) -> list[Any]:
        """Labels and records of the most frequent classes."""
        return self.facts.classes[:_MAX_TABLE_ROWS]

    @cached_property
    def charts(self) -> list[str]:
        """The names of the charts that have data."""
        return [name for name, (has_data, _) in CHARTS.items() if has_data(self)]

    def draw(self, name: str, is_narrow: bool) -> str:
        """Return a chart as SVG."""
        if (name, is_narrow) not in self._charts:
            self._charts[name, is_narrow] = draw_chart(self, name, is_narrow)
        return self._charts[name, is_narrow]


class ModelPageCache:
    """Pages of models, each kept for a while, so that visitors do not delay the writer."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(1, "folklearn-pages")
        self._page_lock, self._importance_lock = asyncio.Lock(), threading.Lock()
        # By model number, with the time from which they are too old.
        self._pages: dict[int, tuple[ModelPage, float]] = {}
        self._importance: dict[int, tuple[list[tuple[str, float]] | None, float]] = {}

    async def find(self, host: ModelHost) -> ModelPage:
        """Return the page of a classifier, of now or of a few seconds ago."""
        async with self._page_lock:
            kept, until = self._pages.get(host.number, (None, 0.0))
            began = time.monotonic()
            if kept is not None and (kept.version == host.version or began < until):
                return kept
            version, state = await self._service.copy_state(host)
            assert isinstance(state, ClassifierState)
            page: ModelPage = await self._in_thread(ModelPage(version, state.model).compute)
            ended = time.monotonic()
            until = ended + max(_MIN_SECONDS_KEPT, _COST_RATIO_KEPT * (ended - began))
            self._pages.pop(host.number, None)
            if len(self._pages) >= _MAX_PAGES_KEPT:
                del self._pages[next(iter(self._pages))]
            self._pages[host.number] = page, until
            return page

    async def draw(self, host: ModelHost, name: str, *, is_narrow: bool) -> str:
        """Return a chart of a classifier as SVG."""
        page = await self.find(host)
        image: str = await self._in_thread(partial(page.draw, name, is_narrow))
        return image

    async def report(self, host: ModelHost) -> str:
        """Return the report on a classifier."""
        record = (await self.find(host)).model.to_record()
        title = f"Report on {host.row.name}"
        return await asyncio.to_thread(lambda: Model.from_record(record).report(title=title))

    def importance(self, host: ModelHost, page: ModelPage) -> list[tuple[str, float]] | None:
        """Return the importance of columns as measured last; None before the first result.

        Measuring takes long: it is done in a thread, and seldom.
        """
        importance, until = self._importance.get(host.number, (None, 0.0))
        if time.monotonic() >= until and page.facts.explanation is not None:
            self._importance[host.number] = importance, math.inf
            # A daemon: a service that stops does not wait for it.
            arguments = host.number, page.model.to_record()
            threading.Thread(target=self._measure, args=arguments, daemon=True).start()
        return importance

    def _measure(self, number: int, record: Record) -> None:
        with self._importance_lock:
            began = time.monotonic()
            importance = Model.from_record(record).explain().importance
            ended = time.monotonic()
        largest = sorted(importance.items(), key=lambda pair: -pair[1])[:_MAX_TABLE_ROWS]
        self._importance[number] = largest, ended + _COST_RATIO_IMPORTANCE * (ended - began)

    def close(self) -> None:
        """End the thread of the pages."""
        self._thread.shutdown(cancel_futures=True)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def describe_replay(result: dict[str, Any]) -> str:
    """Return the result of a replay of the journal in a sentence."""
    events, n_asked = f"{result['events']:,}", result["predictions"]
    if not result["same"]:
        return f"Another model came out of its {events} events: do not trust this folder."
    if result["other_predictions"]:
        n_other = f"{result['other_predictions']:,} of {n_asked:,} predictions"
        return f"The same model came out, but {n_other} are others."
    text = f"The same model came out of its {events} events, byte for byte"
    if n_asked:
        text += f", and all {n_asked:,} predictions that it remembers are the same"
    return f"{text}."
