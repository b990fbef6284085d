"""Ids of requests, and the log of the service: text, or a line of JSON for each request too."""

import itertools
import json
import logging
import os
import re
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

SHORT_ASCII = re.compile(rb"[ -~]{1,64}")  # what clients may name things by
_PROCESS, _numbers = os.urandom(8).hex().encode() + b"-", itertools.count(1)
_REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
_log = logging.getLogger("folklearn.service.requests")


def name_requests(app: ASGIApp) -> ASGIApp:
    """Return an application that gives every request an id, in its answer and in the log."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        asked = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        id = asked if SHORT_ASCII.fullmatch(asked) else _PROCESS + b"%x" % next(_numbers)
        _REQUEST_ID.set(id.decode())  # in the task of this request

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id)]
            await send(message)

        try:
            await app(scope, receive, send_with_id)
        finally:
            if status and _log.isEnabledFor(logging.INFO):
                _log_request(scope, status, time.perf_counter() - began)

    return answer


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log a request without what is in it: sentences of 4xx may quote a value of a row."""
    call, fields = scope.get("call"), dict[str, Any]()
    fields |= {"method": scope["method"], "route": scope.get("route"), "status": status}
    fields["ms"] = round(1e3 * seconds, 2)
    if call is not None:
        fields |= {"tenant": call.key.tenant, "key": call.key.id}
        fields["model"] = scope["path_params"].get("name")
        body = getattr(call.answer, "body", call.answer)
        if isinstance(body, dict):
            names = ("event", "version", "limit") + (("detail",) if status >= 500 else ())
            fields |= {name: body[name] for name in names if name in body}
    level = logging.INFO if status < 400 else logging.WARNING
    fields = {name: value for name, value in fields.items() if value not in (None, "")}
    _log.log(logging.ERROR if status >= 500 else level, "request", extra={"fields": fields})


class LogFormatter(logging.Formatter):
    """Lines with the id of the request that they are about, if it is one."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(of_request)s: %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        id = _REQUEST_ID.get()
        if not self._as_json:
            record.of_request = f", request {id}" if id else ""
            return super().format(record)
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {"time": when, "level": record.levelname.lower()}
        fields |= {"request": id} if id else {}
        plain = {"logger": record.name, "message": record.getMessage()}
        fields |= getattr(record, "fields", None) or plain
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logs(form: str) -> None:
    """Log to standard error as "text", or as "json" and then every request."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(as_json=form == "json"))
    logging.basicConfig(handlers=[handler])
    if form == "json":
        _log.setLevel(logging.INFO)
