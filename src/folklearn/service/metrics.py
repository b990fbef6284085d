"""What is counted for Prometheus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from folklearn.service.service import Service

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


class RequestMetrics:
    """Counters of requests; what models and the queue are like is looked up when it is asked."""

    def __init__(self, service: "Service") -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "folklearn_request_seconds",
            "Time from a request to its answer",
            ["method", "path"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._requests = Counter(
            "folklearn_requests",
            "Answers by status",
            ["method", "path", "status"],
            registry=self._registry,
        )
        self._known: dict[Any, Any] = {}

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        found = self._known.get((method, path, status))
        if found is None:
            found = (
                self._seconds.labels(method, path),
                self._requests.labels(method, path, str(status)),
            )
            self._known[method, path, status] = found
        found[0].observe(seconds)
        found[1].inc()

    def text(self, tenant: str) -> bytes:
        """Return everything about the service, and about the models of a tenant."""
        own = CollectorRegistry()
        own.register(_Models(self._service, tenant))
        return generate_latest(self._registry) + generate_latest(own)


class _Models:
    def __init__(self, service: "Service", tenant: str) -> None:
        self._service, self._tenant = service, tenant

    def collect(self) -> Iterator[Any]:
        writer, memory = self._service.writer, self._service.engine.memory
        for name, text, value in (
            ("folklearn_queue_length", "Requests that wait for the writer", writer.n_queued),
            ("folklearn_commits", "Commits since the start", writer.n_batches),
            ("folklearn_events", "Requests written since the start", writer.n_events),
            ("folklearn_memory_bytes", "Bytes that all models take, about", memory.n_bytes),
            ("folklearn_memory_limit_bytes", "Bytes that all models may take", memory.limit),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        version = GaugeMetricFamily(
            "folklearn_model_version", "Number of the last event of a model", labels=["model"]
        )
        rows = GaugeMetricFamily("folklearn_model_rows", "Rows learned", labels=["model"])
        loss = GaugeMetricFamily("folklearn_model_loss", "Average log loss", labels=["model"])
        alarms = GaugeMetricFamily(
            "folklearn_model_alarms", "How often the capped loss has risen", labels=["model"]
        )
        for hosted in self._service.engine.models(self._tenant):
            version.add_metric([hosted.row.name], hosted.version)
            numbers = hosted.state.numbers()
            rows.add_metric([hosted.row.name], numbers["rows"])
            alarms.add_metric([hosted.row.name], numbers.get("alarms", 0))
            if numbers["loss"] is not None:
                loss.add_metric([hosted.row.name], numbers["loss"])
        yield from (version, rows, loss, alarms)
