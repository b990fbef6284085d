"""Bytes of requests and answers that are on their way, bounded over all clients."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from starlette.types import Send

from folklearn.service.answers import RefusedError
from folklearn.service.limits import Limits

_FREE_BYTES = 65_536  # of a request or an answer, so that small ones pass while large ones wait


class Share:
    """What one request holds of the traffic until it is answered."""

    def __init__(self, traffic: "Traffic") -> None:
        self._traffic, self.n_bytes = traffic, 0

    def take(self, n_bytes: int) -> None:
        """Hold so many bytes in all, or refuse to."""
        more = max(0, n_bytes - _FREE_BYTES) - self.n_bytes
        if more > 0:
            traffic = self._traffic
            if traffic.n_bytes + more > traffic.limits.traffic:
                raise RefusedError(
                    503,
                    "too many large requests and answers are on their way: try again, and read "
                    "answers as they come",
                    retry_after=5,
                )
            traffic.n_bytes += more
            self.n_bytes += more

    async def send(self, send: Send, content: bytes) -> None:
        """Send the body of an answer as fast as it is read; leave who reads nothing."""
        for start in range(0, len(content), _FREE_BYTES):
            part = content[start : start + _FREE_BYTES]
            has_more = start + len(part) < len(content)
            message = {"type": "http.response.body", "body": part, "more_body": has_more}
            with suppress(TimeoutError):
                async with asyncio.timeout(self._traffic.limits.unread if start else None):
                    await send(message)
                continue
            return  # the server hangs up on an answer that is not whole
        if not content:
            await send({"type": "http.response.body", "body": b""})


class Traffic:
    """Requests that are read and answers that are sent, large ones, in bytes."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.n_bytes = limits, 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Give a request its share, and take it back."""
        own = Share(self)
        try:
            yield own
        finally:
            self.n_bytes -= own.n_bytes
