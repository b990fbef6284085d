"""The routes of the service: each a few lines from a request to an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Scope

from folklearn.model.model import Model
from folklearn.model.row_explanation import RowExplanation, explain_rows, make_table
from folklearn.model.summary import NOTHING_PROVEN
from folklearn.service import erasure, events
from folklearn.service.events import RefusedError, Row
from folklearn.service.hosts import Change, PublishedModel
from folklearn.service.http import Call, ElsewhereError, Endpoint, check_answer_length
from folklearn.service.limits import check_name
from folklearn.service.states import ClassifierState

_PREDICTED_AT_A_TIME = 256  # rows, before other requests get their turn

Json = dict[str, Any]  # the content of an answer with status 200


async def live(call: Call) -> Json:
    """Tell whether the process runs."""
    return {"status": "live"}


async def ready(call: Call) -> Json:
    """Tell whether predictions are given, and what learning suffers from."""
    if call.service.writer.is_closing:
        raise RefusedError(503, "the service is stopping", retry_after=5)
    reasons = [name for name, holds in call.service.degradations().items() if holds]
    return {"status": "degraded", "reasons": reasons} if reasons else {"status": "ready"}


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
    """Delete a model; its events stay in the journal, or as long as the policy says."""
    answer = await call.service.writer.submit(lambda: call.service.store.delete(call.host))
    with suppress(RefusedError):
        await call.service.gather()  # no process predicts from it any more
    return answer


async def erase(call: Call) -> Any:
    """Erase rows of a person from journal, archives, snapshots and model."""
    await call.service.gather()  # what was predicted from such rows
    return await erasure.erase(call.service, call.host, call.body)


async def predict(call: Call) -> Any:
    """Predict a row; its label may come later, by the id of the answer."""
    body, remember = call.body, call.body.remember or call.body.durable
    published, (prediction,), remembered = await _predict(call, [body.row], remember)
    if body.durable and (written := await remembered).status != 200:
        return written
    return {"version": published.version, **prediction}


async def predict_many(call: Call) -> Json:
    """Predict rows together, all from the same version."""
    published, predictions, _ = await _predict(call, call.body.rows, call.body.remember)
    return {"version": published.version, "predictions": predictions}


async def certificate(call: Call) -> Json:
    """Return a lower bound on the loss of linear models, and the sentence that names them."""
    version, state = await _copy_state(call)
    proof = await call.service.look(state.model.certificate)
    if proof is None:
        return {"version": version, "valid": False, "words": NOTHING_PROVEN}
    weight = state.model.metrics.weight or 1.0
    return {
        "version": version,
        "valid": bool(proof.valid),
        "words": proof.in_words(state.model.metrics.weight),
        "rounds": proof.n_rounds,
        "loss": proof.loss / weight,  # a row, as everywhere here
        "best_linear_at_least": proof.best_linear_at_least / weight,
        "C": proof.C,
        "models": proof.models,
    }


async def windows(call: Call) -> Json:
    """Return loss, error and lower bound of the last rows, in windows that double."""
    version, state = await _copy_state(call)
    rows = [
        {
            "start": window.start,
            "stop": window.stop,
            "loss": window.loss / window.weight if window.weight else None,
            "error": window.n_errors / max(1, window.stop - window.start),
            "floor": window.lower_bound / window.weight if window.weight else None,
        }
        for window in await call.service.look(state.model.windows)
    ]
    return {"version": version, "windows": rows}


async def alarms(call: Call) -> Json:
    """Return when the capped loss has risen; wrong once in a hundred streams at most."""
    version, state = await _copy_state(call)
    found = state.model.monitor().alarms
    rows = [{**alarm._asdict(), "words": alarm.in_words()} for alarm in found]
    return {"version": version, "alarms": rows}


async def explain(call: Call) -> Json:
    """Return the largest weights, and what every column is worth."""
    version, state = await _copy_state(call)

    def look() -> Json:
        explanation = state.model.explain()
        weights = [{"name": n, "label": y, "weight": w} for n, y, w in explanation.top(100)]
        return {"version": version, "weights": weights, "importance": explanation.importance}

    return dict(await call.service.look(look))


async def explain_row(call: Call) -> Json:
    """Return why a row is predicted as it is: what each column adds to the log odds."""
    published = await _find_published(call, [call.body.row])
    model = published.model
    table = make_table(model, call.body.row)
    why: RowExplanation = await published.call(
        lambda: next(explain_rows(model, table, by_holdout=False))
    )
    classes = zip((why.label, why.against), why.probabilities, why.model_probabilities, strict=True)
    fields = "label", "probability", "by_this_model"
    lines = [{"name": n, "value": value, "nats": nats} for n, value, nats in why.table]
    return {
        "version": published.version,
        "classes": [dict(zip(fields, one, strict=True)) for one in classes],
        **_unseen(model),
        "log_odds": why.log_odds,
        "model": why.explained_by,
        "share": why.share,
        "contributions": lines,
    }


async def file(call: Call) -> Response:
    """Return the model as a file that `folklearn.load` reads."""
    check_answer_length(call.host.n_bytes, call.service.limits.answer)
    _, state = await _copy_state(call)
    content = await call.service.look(state.model.to_bytes)
    headers = {"content-disposition": f'attachment; filename="{call.name}.folk"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def verify(call: Call) -> Json:
    """Replay the journal of a model, from its base on, and compare the bytes."""
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
        await asyncio.sleep(1.0)


async def _find_published(call: Call, rows: Sequence[Row]) -> PublishedModel:
    """Return the model that was published last; raise if its answer would be too long."""
    host, version, limits = call.host, call.body.at_least, call.service.limits
    if host.published.version < version:
        if call.service.is_worker:
            raise ElsewhereError
        await call.service.submit(host.publish)
        if host.published.version < version:
            raise RefusedError(
                409, f"the model is at version {host.published.version}, and not at {version} yet"
            )
    published: PublishedModel = host.published
    widest, n_each = max(map(len, rows)), published.n_bytes_of_answer
    if widest > limits.columns:
        raise RefusedError(
            422,
            f"a row may have {limits.columns:,} columns, and one has {widest:,}",
            limit=f"columns={limits.columns}",
        )
    remedy = f"ask for {limits.answer // n_each:,} rows at a time"
    check_answer_length(len(rows) * n_each, limits.answer, remedy)
    call.take_traffic(len(call.content) + len(rows) * n_each)
    return published


async def _predict(
    call: Call, rows: Sequence[Row], remember: bool
) -> tuple[PublishedModel, list[Any], Any]:
    """Return the model, its predictions of rows, and the future of what is to be remembered.

    The probabilities are those of `predict_proba_one`, to the last bit, as `verify` compares them:
    sums over several dense rows would round otherwise, those over words do not.
    """
    published = await _find_published(call, rows)
    model, labels, remembered = published.model, published.labels, None
    coverage, thresholds = call.body.coverage, model.sets.thresholds.tolist()
    used = model.unseen_probability, published.version, thresholds
    predictions: list[Any] = []
    asked: list[tuple[UUID, events.PredictionEvent]] = []
    for start in range(0, len(rows), _PREDICTED_AT_A_TIME):
        chunk = rows[start : start + _PREDICTED_AT_A_TIME]
        if published.has_words:
            probabilities = (await published.call(model.predict_next, chunk)).tolist()
        else:
            probabilities = [list(model.predict_proba_one(row).values()) for row in chunk]
        sets: list[Any] = [None] * len(chunk)
        if coverage is not None:
            outright = np.array(probabilities) * (1.0 - model.unseen_probability)
            sets = model.sets.choose(outright, labels, coverage)
        for row, p, chosen in zip(chunk, probabilities, sets, strict=True):
            pairs = zip(labels, p, strict=True)
            prediction: Json = {
                "label": labels[max(range(len(p)), key=p.__getitem__)] if p else None,
                "probabilities": [{"label": label, "probability": value} for label, value in pairs],
                **_unseen(model),
            }
            if chosen is not None:
                prediction["set"] = chosen
            if remember:
                event = events.PredictionEvent(row, p, *used)
                asked.append((events.new_id(), event))
                prediction["id"] = str(asked[-1][0])
            predictions.append(prediction)
            if len(rows) > 1:  # encoded, many take a tenth of what they take as objects
                predictions[-1] = msgspec.Raw(msgspec.json.encode(prediction))
        if len(rows) > _PREDICTED_AT_A_TIME:
            await asyncio.sleep(0)
    if asked:
        n_numbers = sum(len(event.p) + model.sets.thresholds.size for _, event in asked)
        n_bytes = call.n_waiting_bytes + 32 * n_numbers
        change = Change(call.host, events.PredictionsRequest(asked))
        remembered = call.service.submit(change, n_bytes)  # which need not be awaited
        remembered.add_done_callback(lambda future: future.cancelled() or future.exception())
    return published, predictions, remembered


async def _copy_state(call: Call) -> tuple[int, ClassifierState]:
    """Return a copy, which counts against the limit of copies as long as it is referred to."""
    version, state = await call.service.copy_state(call.host)
    if not isinstance(state, ClassifierState):
        raise RefusedError(422, "a model that decides has none: see GET /v1/models/NAME")
    return version, state


def _unseen(model: Model) -> Json:
    """Return the probability of none of the classes, where there may be others."""
    return {"unseen": model.unseen_probability} if model.is_open else {}


MODEL = "/v1/models/{name}"

ENDPOINTS = (
    Endpoint("POST", f"{MODEL}/learn", "learn", None, events.LabelEvent),
    Endpoint("POST", f"{MODEL}/predict", "predict", predict, events.PredictRequest),
    Endpoint("POST", f"{MODEL}/decide", "predict", None, events.DecisionEvent),
    Endpoint("POST", f"{MODEL}/reward", "learn", None, events.RewardEvent),
    Endpoint("POST", f"{MODEL}/learn/batch", "learn", None, events.LabelsRequest),
    Endpoint("POST", f"{MODEL}/predict/batch", "predict", predict_many, events.PredictBatchRequest),
    Endpoint("GET", "/v1/health/live", None, live),
    Endpoint("GET", "/v1/health/ready", None, ready),
    Endpoint("GET", "/v1/limits", "read", limits),
    Endpoint("GET", "/metrics", "read", metrics),
    Endpoint("GET", "/v1/models", "read", models),
    Endpoint("PUT", MODEL, "admin", create, events.Config),
    Endpoint("GET", MODEL, "read", describe),
    Endpoint("DELETE", MODEL, "admin", delete),
    Endpoint("GET", f"{MODEL}/certificate", "read", certificate),
    Endpoint("GET", f"{MODEL}/windows", "read", windows),
    Endpoint("GET", f"{MODEL}/alarms", "read", alarms),
    Endpoint("GET", f"{MODEL}/explain", "read", explain),
    Endpoint("POST", f"{MODEL}/explain", "predict", explain_row, events.ExplainRequest),
    Endpoint("GET", f"{MODEL}/file", "read", file),
    Endpoint("GET", f"{MODEL}/verify", "read", last_verification),
    Endpoint("POST", f"{MODEL}/verify", "admin", verify),
    Endpoint("POST", f"{MODEL}/erase", "admin", erase, events.EraseRequest),
    Endpoint("GET", f"{MODEL}/events", "read", watch),
)


def route_by_name(apps: Mapping[Endpoint, ASGIApp]) -> Callable[[Scope], ASGIApp | None]:
    """Return what finds the application of a route of one model, or None for other requests.

    By the name of the route, not by trying one pattern after the other.
    """
    prefix, _, _ = MODEL.partition("{")
    by_route = {(endpoint.method, endpoint.path): app for endpoint, app in apps.items()}

    def find(scope: Scope) -> ASGIApp | None:
        path: str = scope.get("path", "")
        name, _, verb = path.removeprefix(prefix).partition("/")
        app = by_route.get((scope.get("method", ""), f"{MODEL}/{verb}"))
        if app is None or not name or not path.startswith(prefix):
            return None
        scope["path_params"] = {"name": name}
        return app

    return find
