"""The routes of the service: each a few lines from a request to an answer."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response, StreamingResponse

from folklearn.model.model import Model
from folklearn.model.summary import NOTHING_PROVEN
from folklearn.service.events import (
    Config,
    DecisionEvent,
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
from folklearn.service.hosts import Change, PublishedModel
from folklearn.service.http import Call, Endpoint, check_answer_length
from folklearn.service.limits import check_name
from folklearn.service.states import ClassifierState

_PREDICTED_AT_A_TIME = 256  # rows, before other requests get their turn
_WATCH_SECONDS = 1.0  # between messages

Json = dict[str, Any]  # the content of an answer with status 200


# Health, limits and models.


async def live(call: Call) -> Json:
    """Tell whether the process runs."""
    return {"status": "live"}


async def ready(call: Call) -> Json:
    """Tell whether labels can be learned now."""
    store = call.service.store
    if (refusal := store.disk_refusal) is not None:
        raise refusal
    if not store.memory.has_room(0):
        raise RefusedError(
            503, "the models take more memory than they may: nothing is learned", retry_after=60
        )
    return {"status": "ready"}


async def limits(call: Call) -> Json:
    """Return every limit of the service, and how much memory the models of the tenant take."""
    store = call.service.store
    sizes = {host.row.name: host.n_bytes for host in store.models(call.key.tenant)}
    used = {"bytes": store.memory.n_bytes, "models": sizes}
    return {"limits": call.service.limits.rows(), "memory": used}


async def metrics(call: Call) -> Response:
    """Return counters and gauges for Prometheus."""
    service = call.service
    text = await service.writer.submit(lambda: service.describe_metrics(call.key.tenant))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def models(call: Call) -> Json:
    """List the models of the tenant."""
    hosts = call.service.store.models(call.key.tenant)
    return {"models": await call.service.numbers(hosts)}


# One model.


async def create(call: Call) -> Any:
    """Create a model; the same request again changes nothing."""
    check_name("model", call.name)
    new_model = call.key.tenant, call.name, call.body
    return await call.service.writer.submit(lambda: call.service.store.create(*new_model))


async def describe(call: Call) -> Json:
    """Return what a model is and how it does."""
    (numbers,) = await call.service.numbers([call.host])
    return {**numbers, "config": msgspec.to_builtins(call.host.config)}


async def delete(call: Call) -> Any:
    """Delete a model; its events stay in the journal."""
    return await call.service.writer.submit(lambda: call.service.store.delete(call.host))


async def predict(call: Call) -> Any:
    """Predict a row; its label may come later, by the id of the answer."""
    body, published = call.body, await _find_published(call, [call.body.row])
    (prediction,), events = _predict(published, [body.row], body.remember or body.durable)
    if events:
        remembered = _remember(call, events)
        written = await remembered if body.durable else None
        if written is not None and written.status != 200:
            return written
    if published.model.is_open:
        prediction["unseen"] = published.model.unseen_probability
    return {"version": published.version, **prediction}


async def predict_many(call: Call) -> Json:
    """Predict rows together, all from the same version."""
    rows = call.body.rows
    _check_count(call, len(rows))
    published = await _find_published(call, rows)
    predictions, events = [], []
    for start in range(0, len(rows), _PREDICTED_AT_A_TIME):
        chunk = rows[start : start + _PREDICTED_AT_A_TIME]
        predicted, asked = _predict(published, chunk, call.body.remember)
        # Encoded they take a tenth of what they take as objects.
        predictions += [msgspec.Raw(msgspec.json.encode(prediction)) for prediction in predicted]
        events += asked
        await asyncio.sleep(0)
    if events:
        _remember(call, events)
    return {"version": published.version, "predictions": predictions}


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


async def certificate(call: Call) -> Json:
    """Return a lower bound on the loss of linear models, and the sentence that names them."""
    version, model = await _copy_model(call)
    proof = await asyncio.to_thread(model.certificate)
    if proof is None:
        return {"version": version, "valid": False, "words": NOTHING_PROVEN}
    weight = model.metrics.weight or 1.0
    return {
        "version": version,
        "valid": bool(proof.valid),
        "words": proof.in_words(model.metrics.weight),
        "rounds": proof.n_rounds,
        "loss": _finite_or_none(proof.loss / weight),  # a row, as everywhere here
        "best_linear_at_least": _finite_or_none(proof.best_linear_at_least / weight),
        "B": _finite_or_none(proof.B),
        "models": proof.models,
        "norm": _finite_or_none(proof.norm),
    }


async def windows(call: Call) -> Json:
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
    return {"version": version, "windows": rows}


async def alarms(call: Call) -> Json:
    """Return when the capped loss has risen; wrong once in a hundred streams at most."""
    version, model = await _copy_model(call)
    rows = [{**alarm._asdict(), "words": alarm.in_words()} for alarm in model.monitor().alarms]
    return {"version": version, "alarms": rows}


async def explain(call: Call) -> Json:
    """Return the largest weights, and what every column is worth."""
    version, model = await _copy_model(call)
    explanation = await asyncio.to_thread(model.explain)
    weights = [{"name": n, "label": y, "weight": w} for n, y, w in explanation.top(100)]
    return {"version": version, "weights": weights, "importance": explanation.importance}


async def file(call: Call) -> Response:
    """Return the model as a file that `folklearn.load` reads."""
    check_answer_length(call.host.n_bytes, call.service.limits.answer)
    _, model = await _copy_model(call)
    content = await asyncio.to_thread(model.to_bytes)
    headers = {"content-disposition": f'attachment; filename="{call.name}.folk"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def verify(call: Call) -> Json:
    """Replay the journal of a model from its beginning, and compare the bytes."""
    return await call.service.verify(call.host)


async def last_verification(call: Call) -> Json:
    """Return the last result of a replay."""
    return call.service.verified.get(call.host.number, {"version": None})


async def watch(call: Call) -> StreamingResponse:
    """Send a model's numbers every second that they change (server-sent events)."""
    return StreamingResponse(_messages(call), media_type="text/event-stream")


async def _messages(call: Call) -> AsyncIterator[bytes]:
    """Yield messages while the model exists, and the key that began to watch is live."""
    last, host = -1, call.host
    while call.service.store.hosts.get((call.key.tenant, call.name)) == host:
        try:
            call.service.find_key(call.headers, with_session=True)
        except RefusedError:
            return
        if host.version != last:
            last = host.version
            (numbers,) = await call.service.numbers([host])
            yield b"data: " + msgspec.json.encode(numbers) + b"\n\n"
        else:
            yield b": nothing new\n\n"
        await asyncio.sleep(_WATCH_SECONDS)


# Helpers.


async def _find_published(call: Call, rows: Sequence[Row]) -> PublishedModel:
    """Return the model that was published last, or wait for the version asked for.

    Raise if no model could learn a row, or the answer would be too long, before it is made.
    """
    host, version, limits = call.host, call.body.at_least, call.service.limits
    if host.published.version < version:
        await call.service.writer.submit(host.publish)
        if host.published.version < version:
            raise RefusedError(
                409, f"the model is at version {host.published.version}, and not at {version} yet"
            )
    published: PublishedModel = host.published
    widest, n_each = max(map(len, rows)), published.n_bytes_of_answer
    if widest > limits.columns:
        raise RefusedError(
            422, f"a row may have {limits.columns:,} columns, and one has {widest:,}"
        )
    if len(rows) * n_each > limits.answer:
        remedy = f"ask for {limits.answer // n_each:,} rows at a time"
        check_answer_length(len(rows) * n_each, limits.answer, remedy)
    call.take_traffic(call.n_bytes + len(rows) * n_each)
    return published


def _predict(
    published: PublishedModel, rows: Sequence[Row], remember: bool
) -> tuple[list[Json], list[tuple[UUID, PredictionEvent]]]:
    """Return predictions of rows, and the events of those that are to be remembered.

    The probabilities are those of `predict_proba_one`, to the last bit, as `verify` compares them.
    Sums over dense rows round otherwise where there are several. Rows of words are summed each
    for itself, and would take many times as long one by one.
    """
    model, labels, predictions, events = published.model, published.labels, [], []
    if model.pipeline is not None and model.pipeline.sparse:
        probabilities = model.predict_next(rows).tolist()
    else:
        probabilities = [list(model.predict_proba_one(row).values()) for row in rows]
    for row, p in zip(rows, probabilities, strict=True):
        pairs = zip(labels, p, strict=True)
        prediction: Json = {
            "label": labels[max(range(len(p)), key=p.__getitem__)] if p else None,
            "probabilities": [{"label": label, "probability": value} for label, value in pairs],
        }
        if remember:
            id = new_id()
            prediction["id"] = str(id)
            event = PredictionEvent(row, p, model.unseen_probability, published.version)
            events.append((id, event))
        predictions.append(prediction)
    return predictions, events


def _check_count(call: Call, n: int) -> None:
    limit = call.service.limits.batch
    if not 0 < n <= limit:
        raise RefusedError(422, f"a request may hold 1 to {limit:,} rows, got {n:,}")


async def _copy_model(call: Call) -> tuple[int, Model]:
    version, state = await call.service.copy_state(call.host)
    if not isinstance(state, ClassifierState):
        raise RefusedError(
            422, "a model that decides has none: GET /v1/models/NAME has its numbers"
        )
    return version, state.model


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
    Endpoint("POST", f"{MODEL}/learn", "learn", learn, LabelEvent),
    Endpoint("POST", f"{MODEL}/predict", "predict", predict, PredictRequest),
    Endpoint("POST", f"{MODEL}/decide", "predict", decide, DecisionEvent),
    Endpoint("POST", f"{MODEL}/reward", "learn", reward, RewardEvent),
    Endpoint("POST", f"{MODEL}/learn/batch", "learn", learn_many, LabelsRequest),
    Endpoint("POST", f"{MODEL}/predict/batch", "predict", predict_many, PredictBatchRequest),
    Endpoint("GET", "/v1/health/live", None, live),
    Endpoint("GET", "/v1/health/ready", None, ready),
    Endpoint("GET", "/v1/limits", "read", limits),
    Endpoint("GET", "/metrics", "read", metrics),
    Endpoint("GET", "/v1/models", "read", models),
    Endpoint("PUT", MODEL, "admin", create, Config),
    Endpoint("GET", MODEL, "read", describe),
    Endpoint("DELETE", MODEL, "admin", delete),
    Endpoint("GET", f"{MODEL}/certificate", "read", certificate),
    Endpoint("GET", f"{MODEL}/windows", "read", windows),
    Endpoint("GET", f"{MODEL}/alarms", "read", alarms),
    Endpoint("GET", f"{MODEL}/explain", "read", explain),
    Endpoint("GET", f"{MODEL}/file", "read", file),
    Endpoint("GET", f"{MODEL}/verify", "read", last_verification),
    Endpoint("POST", f"{MODEL}/verify", "admin", verify),
    Endpoint("GET", f"{MODEL}/events", "read", watch),
)
