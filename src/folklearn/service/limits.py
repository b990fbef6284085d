"""How much the service takes on, so that overload is answered and memory stays bounded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What is refused, and when.

    Attributes
    ----------
    body : bytes of a request.
    queued_events, queued_bytes : what may wait for the writer; more is answered 429.
    deadline : seconds a request may wait for the writer; then it is answered 503 and not done.
    free_disk : bytes that must be free on the disk; below, nothing is learned (503).
    batch : rows in one request.
    models : of one tenant.
    classes, columns : that a model may grow to.
    agent : numbers that an agent may hold, about: actions times the square of its context.
    replay : seconds that a restart may take to replay a model, about; then it is snapshotted.
    """

    body: int = 1_000_000
    queued_events: int = 10_000
    queued_bytes: int = 64_000_000
    deadline: float = 5.0
    free_disk: int = 256_000_000
    batch: int = 10_000
    models: int = 100
    classes: int = 1_000
    columns: int = 10_000
    agent: int = 50_000_000
    replay: float = 5.0
