"""The routes of the service: each a few lines from a request to an answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response, StreamingResponse

from folklearn.model.model import Model
from folklearn.model.summary import NOTHING_PROVEN
from folklearn.service.changes import Change
from folklearn.service.events import (
    Answer,
    Config,
    DecisionEvent,
    DeleteEvent,
    LabelEvent,
    LabelsRequest,
    PredictBatchRequest,
    PredictionEvent,
    PredictionsRequest,
    PredictRequest,
    RefusedError,
    RewardEvent,
    Row,
    new_id,
)
from folklearn.service.http import Call, Endpoint, check_answer_length
from folklearn.service.limits import check_name
from folklearn.service.model_host import PublishedModel
from folklearn.service.states import ClassifierState

_PREDICTED_AT_A_TIME = 256  # rows, before other requests get their turn
_WATCH_SECONDS = 1.0  # between messages


# Health, limits and models.


async def live(call: Call) -> Answer:
    """Tell whether the process runs."""
    return Answer(200, {"status": "live"})


async def ready(call: Call) -> Answer:
    """Tell whether labels can be learned now."""
    call.service.store.check_disk()
    call.service.store.check_memory()
    return Answer(200, {"status": "ready"})


async def limits(call: Call) -> Answer:
    """Return every limit of the service, and how much memory the models of the tenant take."""
    store = call.service.store
    sizes = {host.row.name: host.n_bytes for host in store.models(call.key.tenant)}
    used = {"bytes": store.memory.n_bytes, "models": sizes}
    return Answer(200, {"limits": call.service.limits.rows(), "memory": used})


async def metrics(call: Call) -> Response:
    """Return counters and gauges for Prometheus."""
    text = await call.service.writer.call(lambda: call.service.metrics.text(call.key.tenant))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def models(call: Call) -> Answer:
    """List the models of the tenant."""
    hosts = call.service.store.models(call.key.tenant)
    return Answer(200, {"models": await call.service.numbers(hosts)})


# One model.


async def create(call: Call) -> Any:
    """Create a model; the same request again changes nothing."""
    store = call.service.store
    check_name("model", call.name)
    return await call.service.writer.call(
        lambda: store.create(call.key.tenant, call.name, call.body)
    )


async def describe(call: Call) -> Answer:
    """Return what a model is and how it does."""
    (numbers,) = await call.service.numbers([call.host])
    return Answer(200, {**numbers, "config": msgspec.to_builtins(call.host.config)})


async def delete(call: Call) -> Any:
    """Delete a model; its events stay in the journal."""
    return await call.service.writer.submit(Change(call.host, DeleteEvent()))


async def predict(call: Call) -> Answer:
    """Predict a row; its label may come later, by the id of the answer."""
    body, published = call.body, await _find_published(call)
    model = published.state
    _check_width(call, [body.row])
    check_answer_length(published.n_bytes_of_answer, call.service.limits.answer)
    p = model.predict_proba_one(body.row)
    answer = {"version": published.version, **_describe_prediction(p)}
    if model.is_open:
        answer["unseen"] = model.unseen_probability
    if body.remember or body.durable:
        id, event = new_id(), _new_event(published, body.row, list(p.values()))
        remembered = _remember(call, [(id, event)])
        if body.durable:
            written: Answer = await remembered
            if written.status != 200:
                return written
        answer["id"] = str(id)
    return Answer(200, answer)


async def predict_many(call: Call) -> Answer:
    """Predict rows together, all from the same version."""
    rows, published = call.body.rows, await _find_published(call)
    _check_count(call, len(rows))
    _check_width(call, rows)
    limit, n_each = call.service.limits.answer, published.n_bytes_of_answer
    if len(rows) * n_each > limit:  # before it is made
        raise RefusedError(
            422,
            f"an answer may have {limit:,} bytes, and each of these predictions up to {n_each:,}: "
            f"ask for {limit // n_each:,} rows at a time",
        )
    call.share.take(call.n_bytes + len(rows) * n_each)
    model, predictions, events = published.state, [], []
    for start in range(0, len(rows), _PREDICTED_AT_A_TIME):
        chunk = rows[start : start + _PREDICTED_AT_A_TIME]
        for row, p in zip(chunk, _predict_rows(model, chunk), strict=True):
            prediction = _describe_prediction(dict(zip(model.labels, p, strict=True)))
            if call.body.remember:
                id = new_id()
                prediction["id"] = str(id)
                events.append((id, _new_event(published, row, p)))
            predictions.append(msgspec.Raw(msgspec.json.encode(prediction)))  # a tenth of objects
        await asyncio.sleep(0)
    if events:
        _remember(call, events)
    return Answer(200, {"version": published.version, "predictions": predictions})


async def learn(call: Call) -> Any:
    """Learn a label, with its row or by the id of a prediction."""
    n_bytes = call.n_bytes + 500 + 100 * len(call.body.row or ())  # as sent, and as objects
    change = Change(call.host, call.body, call.idempotency_key)
    return await call.service.writer.submit(change, n_bytes)


async def learn_many(call: Call) -> Any:
    """Learn labels together, in order; the answer names those that were refused."""
    items = call.body.items
    _check_count(call, len(items))
    change = Change(call.host, call.body, call.idempotency_key)
    n_bytes = _count_bytes(call, [item.row for item in items])
    return await call.service.writer.submit(change, n_bytes)


async def decide(call: Call) -> Any:
    """Choose an action for a context; its reward comes later, by the id of the answer."""
    change = Change(call.host, call.body, call.idempotency_key)
    return await call.service.writer.submit(change, _count_bytes(call, [call.body.context]))


async def reward(call: Call) -> Any:
    """Learn the reward of a decision, a number from 0 to 1."""
    return await call.service.writer.submit(Change(call.host, call.body, call.idempotency_key))


# Reports on a model.


async def certificate(call: Call) -> Answer:
    """Return a lower bound on the loss of linear models, and the sentence that names them."""
    version, model = await _copy_model(call)
    proof = await asyncio.to_thread(model.certificate)
    if proof is None:
        return Answer(200, {"version": version, "valid": False, "words": NOTHING_PROVEN})
    weight = model.metrics.weight or 1.0
    return Answer(
        200,
        {
            "version": version,
            "valid": bool(proof.valid),
            "words": proof.in_words(model.metrics.weight),
            "rounds": proof.n_rounds,
            "loss": _finite_or_none(proof.loss / weight),  # a row, as everywhere here
            "best_linear_at_least": _finite_or_none(proof.best_linear_at_least / weight),
            "B": _finite_or_none(proof.B),
            "models": proof.models,
            "norm": _finite_or_none(proof.norm),
        },
    )


async def windows(call: Call) -> Answer:
    """Return loss, error and lower bound of the last rows, in windows that double."""
    version, model = await _copy_model(call)
    rows = [
        {
            "start": window.start,
            "stop": window.stop,
            "loss": _finite_or_none(window.loss / window.weight) if window.weight else None,
            "error": window.n_errors / max(1, window.stop - window.start),
            "floor": _finite_or_none(window.lower_bound / window.weight) if window.weight else None,
        }
        for window in await asyncio.to_thread(model.windows)
    ]
    return Answer(200, {"version": version, "windows": rows})


async def alarms(call: Call) -> Answer:
    """Return when the capped loss has risen; wrong once in a hundred streams at most."""
    version, model = await _copy_model(call)
    rows = [{**alarm._asdict(), "words": alarm.in_words()} for alarm in model.monitor().alarms]
    return Answer(200, {"version": version, "alarms": rows})


async def explain(call: Call) -> Answer:
    """Return the largest weights, and what every column is worth."""
    version, model = await _copy_model(call)
    explanation = await asyncio.to_thread(model.explain)
    weights = [{"name": n, "label": y, "weight": w} for n, y, w in explanation.top(100)]
    body = {"version": version, "weights": weights, "importance": explanation.importance}
    return Answer(200, body)


async def file(call: Call) -> Response:
    """Return the model as a file that `folklearn.load` reads."""
    check_answer_length(call.host.n_bytes, call.service.limits.answer)
    _, model = await _copy_model(call)
    content = await asyncio.to_thread(model.to_bytes)
    name = f'attachment; filename="{call.host.row.name}.folk"'
    return Response(
        content, media_type="application/octet-stream", headers={"content-disposition": name}
    )


async def verify(call: Call) -> Answer:
    """Replay the journal of a model from its beginning, and compare the bytes."""
    return Answer(200, await call.service.verify(call.host))


async def last_verification(call: Call) -> Answer:
    """Return the last result of a replay."""
    return Answer(200, call.service.verified.get(call.host.number, {"version": None}))


async def watch(call: Call) -> StreamingResponse:
    """Send a model's numbers every second that they change (server-sent events)."""
    return StreamingResponse(_messages(call), media_type="text/event-stream")


async def _messages(call: Call) -> AsyncIterator[bytes]:
    last = -1
    while _may_watch(call):
        if call.host.version != last:
            last = call.host.version
            (numbers,) = await call.service.numbers([call.host])
            yield b"data: " + msgspec.json.encode(numbers) + b"\n\n"
        else:
            yield b": nothing new\n\n"
        await asyncio.sleep(_WATCH_SECONDS)


def _may_watch(call: Call) -> bool:
    """Tell whether the model still exists, and the key that began to watch is still live."""
    row = call.host.row
    with suppress(RefusedError):
        call.service.find_key(call.headers, with_session=True)
        return call.service.store.hosts.get((row.tenant, row.name)) is call.host
    return False


# Helpers.


async def _find_published(call: Call) -> PublishedModel:
    """Return the model that was published last, or wait for the version asked for."""
    host, version = call.host, call.body.at_least
    if host.published.version < version:
        await call.service.writer.call(host.publish)
        if host.published.version < version:
            raise RefusedError(
                409, f"the model is at version {host.published.version}, and not at {version} yet"
            )
    published: PublishedModel = host.published
    return published


def _check_count(call: Call, n: int) -> None:
    limit = call.service.limits.batch
    if not 0 < n <= limit:
        raise RefusedError(422, f"a request may hold 1 to {limit:,} rows, got {n:,}")


def _check_width(call: Call, rows: Sequence[Row]) -> None:
    """Raise if no model could learn a row, before other requests wait for its prediction."""
    limit = call.service.limits.columns
    widest = max(map(len, rows))
    if widest > limit:
        raise RefusedError(422, f"a row may have {limit:,} columns, and one has {widest:,}")


async def _copy_model(call: Call) -> tuple[int, Model]:
    version, state = await call.service.copy_state(call.host)
    if not isinstance(state, ClassifierState):
        raise RefusedError(
            422, "a model that decides has none: GET /v1/models/NAME has its numbers"
        )
    return version, state.model


def _predict_rows(model: Model, rows: list[Row]) -> list[list[float]]:
    """Return the probabilities of `predict_proba_one`, to the last bit, as `verify` compares them.

    Sums over dense rows round otherwise where there are several. Rows of words are summed each
    for itself, and would take many times as long one by one.
    """
    if model.pipeline is not None and model.pipeline.sparse:
        probabilities: list[list[float]] = model.predict_next(rows).tolist()
        return probabilities
    return [list(model.predict_proba_one(row).values()) for row in rows]


def _describe_prediction(p: dict[Any, float]) -> dict[str, Any]:
    return {
        "label": max(p, key=p.__getitem__) if p else None,
        "probabilities": [{"label": label, "probability": value} for label, value in p.items()],
    }


def _new_event(published: PublishedModel, row: Row, p: list[float]) -> PredictionEvent:
    return PredictionEvent(row, p, published.state.unseen_probability, published.version)


def _remember(call: Call, items: list[tuple[UUID, PredictionEvent]]) -> Any:
    """Have predictions remembered; return the future, which need not be awaited."""
    n_bytes = _count_bytes(call, [event.row for _, event in items])
    n_bytes += sum(32 * len(event.p) for _, event in items)
    change = Change(call.host, PredictionsRequest(items))
    remembered = call.service.writer.submit(change, n_bytes)
    remembered.add_done_callback(lambda future: future.cancelled() or future.exception())
    return remembered


def _count_bytes(call: Call, rows: Sequence[Row | None]) -> int:
    """Return about how many bytes a request takes while it waits: as sent, and as objects."""
    return call.n_bytes + sum(500 + 100 * len(row or ()) for row in rows)


def _finite_or_none(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


MODEL = "/v1/models/{name}"

ENDPOINTS = (
    Endpoint("GET", "/v1/health/live", None, live),
    Endpoint("GET", "/v1/health/ready", None, ready),
    Endpoint("GET", "/v1/limits", "read", limits),
    Endpoint("GET", "/metrics", "read", metrics),
    Endpoint("GET", "/v1/models", "read", models),
    Endpoint("PUT", MODEL, "admin", create, Config, finds=False, status=201),
    Endpoint("GET", MODEL, "read", describe),
    Endpoint("DELETE", MODEL, "admin", delete),
    Endpoint("POST", f"{MODEL}/predict", "predict", predict, PredictRequest, is_agent=False),
    Endpoint(
        "POST",
        f"{MODEL}/predict/batch",
        "predict",
        predict_many,
        PredictBatchRequest,
        is_agent=False,
    ),
    Endpoint("POST", f"{MODEL}/learn", "learn", learn, LabelEvent, repeats=True, is_agent=False),
    Endpoint(
        "POST",
        f"{MODEL}/learn/batch",
        "learn",
        learn_many,
        LabelsRequest,
        repeats=True,
        is_agent=False,
    ),
    Endpoint(
        "POST", f"{MODEL}/decide", "predict", decide, DecisionEvent, repeats=True, is_agent=True
    ),
    Endpoint("POST", f"{MODEL}/reward", "learn", reward, RewardEvent, repeats=True, is_agent=True),
    Endpoint("GET", f"{MODEL}/certificate", "read", certificate),
    Endpoint("GET", f"{MODEL}/windows", "read", windows),
    Endpoint("GET", f"{MODEL}/alarms", "read", alarms),
    Endpoint("GET", f"{MODEL}/explain", "read", explain),
    Endpoint("GET", f"{MODEL}/file", "read", file),
    Endpoint("GET", f"{MODEL}/verify", "read", last_verification),
    Endpoint("POST", f"{MODEL}/verify", "admin", verify),
    Endpoint("GET", f"{MODEL}/events", "read", watch),
)
