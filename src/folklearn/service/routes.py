"""The routes of the service: each a few lines from a request to an answer."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response, StreamingResponse

from folklearn.model.model import Model
from folklearn.model.summary import NOTHING_PROVEN
from folklearn.service import bodies, commands, events
from folklearn.service.events import Answer, RefusedError, new_id
from folklearn.service.http import Call, Endpoint, check_answer_length
from folklearn.service.limits import check_name
from folklearn.service.model_host import ModelHost, PublishedModel
from folklearn.service.states import ClassifierState

_AT_A_TIME = 256  # rows predicted before others get their turn
_EVERY = 1.0  # seconds between messages to those who watch


# Health, and what there is.


async def live(call: Call) -> Answer:
    """Tell whether the process runs."""
    return Answer(200, {"status": "live"})


async def ready(call: Call) -> Answer:
    """Tell whether labels can be learned now."""
    call.service.store.check_not_full()
    call.service.store.check_if_large()
    return Answer(200, {"status": "ready"})


async def limits(call: Call) -> Answer:
    """Return every limit of the service, and how much memory the models of the tenant take."""
    store = call.service.store
    own = {host.row.name: host.n_bytes for host in store.models(call.key.tenant)}
    used = {"bytes": store.memory.n_bytes, "models": own}
    return Answer(200, {"limits": call.service.limits.rows(), "memory": used})


async def metrics(call: Call) -> Response:
    """Return counters and gauges for Prometheus."""
    text = await call.service.writer.call(lambda: call.service.metrics.text(call.key.tenant))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


async def models(call: Call) -> Answer:
    """List the models of the tenant."""
    own = call.service.store.models(call.key.tenant)
    return Answer(200, {"models": await call.service.numbers(own)})


# One model.


async def create(call: Call) -> Answer:
    """Create a model; the same request again changes nothing."""
    service = call.service
    check_name("model", call.name)
    return await done(
        service.writer.call(lambda: service.store.create(call.key.tenant, call.name, call.body))
    )


async def describe(call: Call) -> Answer:
    """Return what a model is and how it does."""
    (found,) = await call.service.numbers([call.host])
    return Answer(200, {**found, "config": msgspec.to_builtins(call.host.config)})


async def delete(call: Call) -> Answer:
    """Delete a model; its events stay in the journal."""
    return await done(call.service.writer.submit(call.host, commands.Delete()))


async def predict(call: Call) -> Answer:
    """Predict a row; its label can be told later by the id of the answer."""
    body, view = call.body, await _view(call, call.body.at_least)
    model = view.state
    _check_width(call, [body.row])
    check_answer_length(view.n_bytes_of_answer, call.service.limits.answer)
    p = model.predict_proba_one(body.row)
    answer = {"version": view.version, **_predicted(p)}
    if model.is_open:
        answer["unseen"] = model.unseen_probability
    if body.remember or body.durable:
        id, asked = new_id(), _asked(view, body.row, list(p.values()))
        kept = _remembered(call, [(id, asked)])
        if body.durable:
            written: Answer = await kept
            if written.status != 200:
                return written
        answer["id"] = str(id)
    return Answer(200, answer)


async def predict_many(call: Call) -> Answer:
    """Predict rows together, all from the same version."""
    rows, view = call.body.rows, await _view(call, call.body.at_least)
    _check_count(call, len(rows))
    _check_width(call, rows)
    most, n_each = call.service.limits.answer, view.n_bytes_of_answer
    if len(rows) * n_each > most:  # before it is made
        raise RefusedError(
            422,
            f"an answer may have {most:,} bytes, and each of these predictions up to {n_each:,}: "
            f"ask for {most // n_each:,} rows at a time",
        )
    call.share.take(call.n_bytes + len(rows) * n_each)
    model, predictions, asked = view.state, [], []
    for start in range(0, len(rows), _AT_A_TIME):
        part = rows[start : start + _AT_A_TIME]
        for row, p in zip(part, _probabilities(model, part), strict=True):
            found = _predicted(dict(zip(model.labels, p, strict=True)))
            if call.body.remember:
                id = new_id()
                found["id"] = str(id)
                asked.append((id, _asked(view, row, p)))
            predictions.append(msgspec.Raw(msgspec.json.encode(found)))  # a tenth of the objects
        await asyncio.sleep(0)
    if asked:
        _remembered(call, asked)
    return Answer(200, {"version": view.version, "predictions": predictions})


async def learn(call: Call) -> Answer:
    """Learn a label, with its row or by the id of a prediction."""
    _check_not_agent(call.host)
    command = commands.Learn(
        _label(call.body), key=call.idempotency_key, size=_size(call, [call.body.row])
    )
    return await done(call.service.writer.submit(call.host, command))


async def learn_many(call: Call) -> Answer:
    """Learn labels together, in order; the answer names those that were refused."""
    _check_not_agent(call.host)
    items = call.body.items
    _check_count(call, len(items))
    command = commands.LearnMany(
        [_label(item) for item in items],
        key=call.idempotency_key,
        size=_size(call, [item.row for item in items]),
    )
    return await done(call.service.writer.submit(call.host, command))


async def decide(call: Call) -> Answer:
    """Choose an action for a context; its reward is told by the id of the answer."""
    if not call.host.config.decides:
        raise RefusedError(422, "this model predicts labels: send the row to /predict")
    context = call.body.context
    command = commands.Decide(context, key=call.idempotency_key, size=_size(call, [context]))
    return await done(call.service.writer.submit(call.host, command))


async def reward(call: Call) -> Answer:
    """Learn the reward of a decision, a number from 0 to 1."""
    if not call.host.config.decides:
        raise RefusedError(422, "this model predicts labels: tell them to /learn")
    command = commands.Reward(call.body.id, call.body.reward, key=call.idempotency_key)
    return await done(call.service.writer.submit(call.host, command))


# Looking at a model.


async def certificate(call: Call) -> Answer:
    """Return a lower bound on the loss of linear models, and the sentence that names them."""
    version, model = await _model_copy(call)
    found = await asyncio.to_thread(model.certificate)
    if found is None:
        return Answer(200, {"version": version, "valid": False, "words": NOTHING_PROVEN})
    words = found.in_words(model.total_weight)
    weight = model.total_weight or 1.0
    return Answer(
        200,
        {
            "version": version,
            "valid": bool(found.valid),
            "words": words,
            "rounds": found.n_rounds,
            "loss": _finite(found.loss / weight),  # a row, as everywhere here
            "best_linear_at_least": _finite(found.best_linear_at_least / weight),
            "B": _finite(found.B),
            "models": found.models,
            "norm": _finite(found.norm),
        },
    )


async def windows(call: Call) -> Answer:
    """Return loss, error and floor of the last rows, in windows that double."""
    version, model = await _model_copy(call)
    found = await asyncio.to_thread(model.windows)
    rows = [
        {
            "start": one.start,
            "stop": one.stop,
            "loss": _finite(one.loss / one.weight) if one.weight else None,
            "error": one.n_errors / max(1, one.stop - one.start),
            "floor": _finite(one.floor / one.weight) if one.weight else None,
        }
        for one in found
    ]
    return Answer(200, {"version": version, "windows": rows})


async def alarms(call: Call) -> Answer:
    """Return when the capped loss has risen; wrong once in a hundred streams at most."""
    version, model = await _model_copy(call)
    found = [{**one._asdict(), "words": one.in_words()} for one in model.monitor().alarms]
    return Answer(200, {"version": version, "alarms": found})


async def explain(call: Call) -> Answer:
    """Return the largest weights, and what every column is worth."""
    version, model = await _model_copy(call)
    found = await asyncio.to_thread(model.explain)
    weights = [{"name": n, "label": y, "weight": w} for n, y, w in found.top(100)]
    return Answer(200, {"version": version, "weights": weights, "importance": found.importance})


async def file(call: Call) -> Response:
    """Return the model as a file that `folklearn.load` reads."""
    check_answer_length(call.host.n_bytes, call.service.limits.answer)
    _, model = await _model_copy(call)
    content = await asyncio.to_thread(model.to_bytes)
    name = f'attachment; filename="{call.host.row.name}.folk"'
    return Response(
        content, media_type="application/octet-stream", headers={"content-disposition": name}
    )


async def verify(call: Call) -> Answer:
    """Replay the journal of a model from its beginning, and compare the bytes."""
    return Answer(200, await call.service.verify(call.host))


async def verified(call: Call) -> Answer:
    """Return the last result of a replay."""
    return Answer(200, call.service.verified.get(call.host.number, {"version": None}))


async def watch(call: Call) -> StreamingResponse:
    """Send a model's numbers every second that they change (server-sent events)."""
    return StreamingResponse(_messages(call), media_type="text/event-stream")


async def _messages(call: Call) -> Any:
    host: ModelHost = call.host
    service, last = call.service, -1
    while _may_watch(call):
        if host.version != last:
            last = host.version
            (found,) = await service.numbers([host])
            yield b"data: " + msgspec.json.encode(found) + b"\n\n"
        else:
            yield b": nothing new\n\n"
        await asyncio.sleep(_EVERY)


def _may_watch(call: Call) -> bool:
    """Tell whether the model is still there, and the key that began to watch still good."""
    row = call.host.row
    with suppress(RefusedError):
        call.service.key_of(call.headers, with_session=True)
        return call.service.store.find(row.tenant, row.name) is call.host
    return False


# What they share.


async def done(future: Any) -> Answer:
    """Return the answer that the writer gives."""
    answer: Answer = await future
    return answer


async def _view(call: Call, at_least: int) -> PublishedModel:
    """Return the state that was published last, or wait for a version if that is asked for."""
    _check_not_agent(call.host)
    host = call.host
    if host.view.version < at_least:
        await call.service.writer.call(lambda: host.publish(now=True))
        if host.view.version < at_least:
            raise RefusedError(
                409, f"the model is at version {host.view.version}, and not at {at_least} yet"
            )
    view: PublishedModel = host.view
    return view


def _check_not_agent(host: ModelHost) -> None:
    if host.config.decides:
        raise RefusedError(422, "this model decides: ask /decide, and tell rewards to /reward")


def _check_count(call: Call, n: int) -> None:
    most = call.service.limits.batch
    if not 0 < n <= most:
        raise RefusedError(422, f"a request may hold 1 to {most:,} rows, got {n:,}")


def _check_width(call: Call, rows: Sequence[events.Row]) -> None:
    """Refuse to predict a row that no model could learn, before everybody waits for it."""
    most = call.service.limits.columns
    widest = max(map(len, rows))
    if widest > most:
        raise RefusedError(422, f"a row may have {most:,} columns, and one has {widest:,}")


async def _model_copy(call: Call) -> tuple[int, Model]:
    version, state = await call.service.copy_of(call.host)
    if not isinstance(state, ClassifierState):
        raise RefusedError(
            422, "a model that decides has none: GET /v1/models/NAME has its numbers"
        )
    return version, state.model


def _probabilities(model: Model, rows: list[events.Row]) -> list[list[float]]:
    """Return what `predict_proba_one` gives of every row, to the last bit, as `verify` compares it.

    Sums over dense rows round otherwise where there are several. Rows of words are summed each
    for itself, and would take many times as long one by one.
    """
    if model.pipeline is not None and model.pipeline.sparse:
        found: list[list[float]] = model.predict_next(rows).tolist()
        return found
    return [list(model.predict_proba_one(row).values()) for row in rows]


def _predicted(p: dict[Any, float]) -> dict[str, Any]:
    return {
        "label": max(p, key=p.__getitem__) if p else None,
        "probabilities": [{"label": label, "probability": value} for label, value in p.items()],
    }


def _asked(view: PublishedModel, row: events.Row, p: list[float]) -> events.Asked:
    return events.Asked(row, p, view.state.unseen_probability, view.version)


def _label(body: bodies.LearnBody) -> commands.Label:
    if (body.row is None) == (body.id is None):
        raise RefusedError(422, "a label comes with its row, or with the id of a prediction")
    id: UUID | None = body.id
    return commands.Label(body.label, body.row, id, body.weight)


def _remembered(call: Call, asked: list[tuple[UUID, events.Asked]]) -> Any:
    """Have predictions remembered; return the future, which nobody needs to wait for."""
    size = _size(call, [one.row for _, one in asked]) + sum(32 * len(one.p) for _, one in asked)
    kept = call.service.writer.submit(call.host, commands.Ask(asked, size=size))
    kept.add_done_callback(lambda done: done.cancelled() or done.exception())
    return kept


def _size(call: Call, rows: Sequence[events.Row | None]) -> int:
    """Return about how many bytes a request takes while it waits: as sent, and as objects."""
    return call.n_bytes + sum(500 + 100 * len(row or ()) for row in rows)


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


MODEL = "/v1/models/{name}"

ENDPOINTS = (
    Endpoint("GET", "/v1/health/live", None, live),
    Endpoint("GET", "/v1/health/ready", None, ready),
    Endpoint("GET", "/v1/limits", "read", limits),
    Endpoint("GET", "/metrics", "read", metrics),
    Endpoint("GET", "/v1/models", "read", models),
    Endpoint("PUT", MODEL, "admin", create, bodies.CreateBody, finds=False, status=201),
    Endpoint("GET", MODEL, "read", describe),
    Endpoint("DELETE", MODEL, "admin", delete),
    Endpoint("POST", f"{MODEL}/predict", "predict", predict, bodies.PredictBody),
    Endpoint("POST", f"{MODEL}/predict/batch", "predict", predict_many, bodies.PredictManyBody),
    Endpoint("POST", f"{MODEL}/learn", "learn", learn, bodies.LearnBody, repeats=True),
    Endpoint(
        "POST", f"{MODEL}/learn/batch", "learn", learn_many, bodies.LearnManyBody, repeats=True
    ),
    Endpoint("POST", f"{MODEL}/decide", "predict", decide, bodies.DecideBody, repeats=True),
    Endpoint("POST", f"{MODEL}/reward", "learn", reward, bodies.RewardBody, repeats=True),
    Endpoint("GET", f"{MODEL}/certificate", "read", certificate),
    Endpoint("GET", f"{MODEL}/windows", "read", windows),
    Endpoint("GET", f"{MODEL}/alarms", "read", alarms),
    Endpoint("GET", f"{MODEL}/explain", "read", explain),
    Endpoint("GET", f"{MODEL}/file", "read", file),
    Endpoint("GET", f"{MODEL}/verify", "read", verified),
    Endpoint("POST", f"{MODEL}/verify", "admin", verify),
    Endpoint("GET", f"{MODEL}/events", "read", watch),
)
