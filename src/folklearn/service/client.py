"""A client of the service, which repeats requests until they are answered."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import urllib3

from folklearn.errors import FolklearnError
from folklearn.service.events import new_id

_MAX_BATCH_BYTES, _MAX_BATCH_ITEMS = 900_000, 5_000


class ServiceError(FolklearnError):
    """The service has refused a request; `status` is that of HTTP.

    `limit` is the limit of the service that it is beyond, if so, such as "classes=1000".
    """

    def __init__(self, status: int, detail: str, limit: str = "") -> None:
        super().__init__(detail)
        self.status, self.limit = status, limit


class Prediction(NamedTuple):
    """A prediction of the service; a label that comes later refers to its `id`."""

    label: Any
    probabilities: dict[Any, float]
    version: int
    id: str | None = None
    set: list[Any] | None = None  # of labels, where a coverage was asked for
    unseen: float = 0.0  # probability of a label that never came; the others are given it is none


class Chosen(NamedTuple):
    """The choice of an agent; the reward refers to its `id`."""

    action: str
    propensity: float
    id: str


class Client(AbstractContextManager["Client"]):
    """A connection to a service.

    A request that gets no answer is sent again, under the same Idempotency-Key: whatever happens
    on the way, a label is learned once. May be used by several threads.

    Parameters
    ----------
    address : such as ``"http://127.0.0.1:8080"``.
    key : text that begins with ``flk_``; by default that of the variable FOLKLEARN_KEY.
    tries : how often a request is sent, in about a minute, before `ConnectionError` is raised.
    """

    def __init__(self, address: str, key: str | None = None, *, tries: int = 8) -> None:
        key = key or os.environ.get("FOLKLEARN_KEY")
        if not key:
            raise ServiceError(401, "a key is needed: key='flk_...', or FOLKLEARN_KEY")
        self._address = (address if "://" in address else f"http://{address}").rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        retries = urllib3.Retry(
            total=tries,
            backoff_factor=0.1,
            backoff_max=20.0,
            status_forcelist=(429, 502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
        )
        self._pool = urllib3.PoolManager(maxsize=16, retries=retries)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        repeats: bool = False,
        timeout: float = 30.0,
    ) -> Any:
        """Send a request until it is answered; return what the answer holds."""
        headers = dict(self._headers)
        if repeats:
            headers["Idempotency-Key"] = str(new_id())
        content = None if body is None else _encode(body)
        try:
            answer = self._pool.request(
                method, self._address + path, body=content, headers=headers, timeout=timeout
            )
        except urllib3.exceptions.HTTPError as error:
            why = getattr(error, "reason", None) or error
            raise ConnectionError(f"{self._address} does not answer: {why}") from error
        kind = answer.headers.get("content-type", "")
        if kind.startswith("application/problem+json"):
            problem = msgspec.json.decode(answer.data)
            raise ServiceError(answer.status, problem["detail"], problem.get("limit", ""))
        if answer.status >= 400:  # of a proxy, perhaps
            raise ServiceError(answer.status, answer.data.decode("utf-8", "replace")[:300])
        is_json = kind.startswith("application/json")
        return msgspec.json.decode(answer.data) if is_json else answer.data

    def models(self) -> list[dict[str, Any]]:
        """Return the models that the key can see."""
        return list(self.request("GET", "/v1/models")["models"])

    def model(self, name: str) -> "RemoteModel":
        """Return a model by its name."""
        return RemoteModel(self, name)

    def create(self, name: str, **config: Any) -> "RemoteModel":
        """Create a model, or find that it is there; see the fields of the route ``PUT``."""
        self.request("PUT", f"/v1/models/{name}", config)
        return self.model(name)


class RemoteModel:
    """A model of a service."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name

    def _ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        return self._client.request(method, f"/v1/models/{self.name}{path}", body, **options)

    def predict(self, row: Mapping[str, Any], **options: Any) -> Prediction:
        """Predict a row; options of the route: remember, durable, at_least, coverage."""
        answer = self._ask("POST", "/predict", {"row": row, **options})
        return _read_prediction(answer, answer["version"])

    def predict_many(self, rows: Sequence[Mapping[str, Any]], **options: Any) -> list[Prediction]:
        """Predict rows together."""
        answer = self._ask("POST", "/predict/batch", {"rows": rows, **options})
        return [_read_prediction(item, answer["version"]) for item in answer["predictions"]]

    def learn(
        self,
        label: Any,
        row: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        weight: float = 1.0,
    ) -> int:
        """Learn a label, of a row or of a prediction; return the number of the event."""
        subject = {"row": row} if id is None else {"id": id}
        body = {"label": label, "weight": weight, **subject}
        return int(self._ask("POST", "/learn", body, repeats=True)["event"])

    def learn_many(self, items: Iterable[tuple[Mapping[str, Any], Any]]) -> dict[str, Any]:
        """Learn pairs of row and label, in as many requests as their size needs.

        Returns how many were ``learned``, and which were ``refused``: item, status and detail.
        """
        learned, refused, start = 0, [], 0
        for chunk in _split([_encode({"row": row, "label": label}) for row, label in items]):
            body = {"items": [msgspec.Raw(item) for item in chunk]}
            answer = self._ask("POST", "/learn/batch", body, repeats=True)
            learned += answer["learned"]
            refusals = answer.get("refused", ())
            refused += [{**item, "item": start + item["item"]} for item in refusals]
            start += len(chunk)
        return {"learned": learned, "refused": refused}

    def decide(
        self, context: Mapping[str, Any], actions: list[str] | Mapping[str, Any] | None = None
    ) -> Chosen:
        """Let an agent choose one of its actions, or of these: names, or features by name."""
        body = {"context": context} | ({} if actions is None else {"actions": actions})
        answer = self._ask("POST", "/decide", body, repeats=True)
        return Chosen(answer["action"], answer["propensity"], answer["id"])

    def reward(self, id: str, reward: float) -> int:
        """Tell an agent what came of a decision, from 0 to 1."""
        body = {"id": id, "reward": reward}
        return int(self._ask("POST", "/reward", body, repeats=True)["event"])

    def describe(self) -> dict[str, Any]:
        """Return what the model is, and how it does."""
        return dict(self._ask("GET", ""))

    def certificate(self) -> dict[str, Any]:
        """Return what no linear model could have beaten."""
        return dict(self._ask("GET", "/certificate"))

    def windows(self) -> list[dict[str, Any]]:
        """Return loss, error and lower bound of the last rows."""
        return list(self._ask("GET", "/windows")["windows"])

    def alarms(self) -> list[dict[str, Any]]:
        """Return when the capped loss has risen."""
        return list(self._ask("GET", "/alarms")["alarms"])

    def explain(self, row: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the largest weights, and what columns are worth; or why a row is predicted so."""
        if row is None:
            return dict(self._ask("GET", "/explain"))
        return dict(self._ask("POST", "/explain", {"row": row}))

    def verify(self) -> dict[str, Any]:
        """Replay the journal on the server and compare; return the result."""
        return dict(self._ask("POST", "/verify"))

    def erase(
        self,
        column: str | None = None,
        value: Any = None,
        *,
        ids: Iterable[str] = (),
        rebuild: bool = False,
    ) -> dict[str, Any]:
        """Erase rows by the value of a column, or by ids of predictions or decisions.

        Returns how many rows and labels are gone. The model keeps what it learned of them, unless
        it is to `rebuild`, which takes as long as learning all other labels.
        """
        rows = {"ids": [*ids]} if column is None else {"column": column, "value": value}
        return dict(self._ask("POST", "/erase", {**rows, "rebuild": rebuild}, timeout=3600.0))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that `folklearn.load` reads."""
        Path(path).write_bytes(self._ask("GET", "/file"))

    def delete(self) -> None:
        """Delete the model."""
        self._ask("DELETE", "")


def _encode(body: Any) -> bytes:
    return msgspec.json.encode(body, enc_hook=np.generic.item)


def _split(items: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for stop, item in enumerate(items):
        size += len(item) + 1
        if stop > start and (size > _MAX_BATCH_BYTES or stop - start >= _MAX_BATCH_ITEMS):
            yield items[start:stop]
            start, size = stop, len(item) + 1
    if items:
        yield items[start:]


def _read_prediction(answer: Mapping[str, Any], version: int) -> Prediction:
    p = {item["label"]: item["probability"] for item in answer["probabilities"]}
    optional = answer.get("id"), answer.get("set"), answer.get("unseen", 0.0)
    return Prediction(answer["label"], p, version, *optional)
