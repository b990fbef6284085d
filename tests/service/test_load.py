"""The benchmark of the service in small: all that is sent at once is answered, and counts."""

import asyncio
import os
from types import SimpleNamespace

from benchmarks.service import Server, Stream, closed

from tests.service.running import running

LABELS, PREDICTIONS = "/v1/models/load/learn", "/v1/models/load/predict"


def test_many_clients_are_all_answered(tmp_path):
    stream = Stream()
    labels, rows = ([make(n) for n in range(50)] for make in (stream.single, stream.row))
    with running(tmp_path / "folder") as service:
        service.ask("PUT", "/v1/models/load", {})
        service.post(LABELS, labels[0])  # compiles
        server = Server(service.port, service.key, SimpleNamespace(pid=os.getpid()))

        async def both():
            return await asyncio.gather(
                closed(server, LABELS, labels, 16, 0.5, keys=True),
                closed(server, PREDICTIONS, rows, 16, 0.5, keys=False),
            )

        found = asyncio.run(both())
        assert [one["other_answers"] for one in found] == [0, 0]
        assert min(one["a_second"] for one in found) > 0
        assert service.ask("GET", "/v1/models/load").body["rows"] > 16
        assert service.post("/v1/models/load/verify", None)["same"]
