"""What the service can bear: durable labels and predictions a second, beside the disk's own rate.

python -m benchmarks.service [--minutes 10]   writes results/service.json and results/service.md.
A service on a fresh folder, in one process and with two workers, 20 features, 5 classes, the model
that a user gets by default, after 20,000 rows. This process is the client: connections that stay
open, requests encoded beforehand, so all share the cores of the machine. Closed loops: every
connection sends the next request when it has its answer. Open loop: requests leave at a fixed rate,
half of the highest that was answered, and what counts is the time from when they should have left.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from experiments.provenance import provenance, stated, write_json

RESULTS = Path(__file__).parent / "results"
FEATURES, CLASSES, BATCH, WARM = 20, 5, 1_000, 20_000
SECONDS = 8.0
CLIENTS, PREDICTING = (1, 64, 256), 64  # connections that tell labels, and that ask

Requests = Callable[[int], bytes]  # the content of the n-th request


class Server:
    """A running service, and how to speak to it."""

    def __init__(self, port: int, key: str, process: Any) -> None:
        self.port, self.key, self.process = port, key, process

    def request(self, method: str, path: str, content: bytes = b"", key: str = "") -> bytes:
        """Return a request as it goes over the wire."""
        repeats = f"Idempotency-Key: {key}\r\n" if key else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\n{repeats}Content-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    @property
    def pids(self) -> list[int]:
        """The process, and its workers."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        children = [(task / "children").read_text().split() for task in tasks]
        return [self.process.pid, *(int(pid) for pids in children for pid in pids)]

    @property
    def memory(self) -> float:
        """Resident memory of all processes, in MB; what they share counts for each."""
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids]
        return sum(int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024 for text in texts)  # type: ignore[index]

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, of all processes."""
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.pids]
        fields = [text.rpartition(")")[2].split() for text in stats]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(folder: Path, n_workers: int) -> Iterator[Server]:
    """Serve a folder in processes of its own."""
    command = [sys.executable, "-m", "folklearn.cli.app", "serve", str(folder), "--port", "0"]
    command += ["--workers", str(n_workers)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    key = port = ""
    while not port:
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the service did not start")
        key = next(iter(re.findall(r"flk_\w+", line)), key)
        port = next(iter(re.findall(r"listening.*:(\d+)", line)), "")
    try:
        yield Server(int(port), key, process)
    finally:
        process.terminate()
        process.wait()


class Connection:
    """One connection that stays open."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __aenter__(self) -> "Connection":
        self._in, self._out = await asyncio.open_connection("127.0.0.1", self._server.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._out.close()

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return status and content of the answer."""
        self._out.write(request)
        head = await self._in.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
        return int(head[9:12]), await self._in.readexactly(length)


class Stream:
    """Rows of a linear model, as the requests have them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._X = rng.normal(size=(5_000, FEATURES)).round(4)
        W = rng.normal(size=(CLASSES, FEATURES))
        self._y = np.argmax(self._X @ W.T + rng.gumbel(size=(5_000, CLASSES)), axis=1)

    def item(self, n: int) -> dict[str, Any]:
        """Return the n-th row with its label."""
        x = self._X[n % len(self._X)].tolist()
        return {"row": {f"f{j}": v for j, v in enumerate(x)}, "label": f"c{self._y[n % 5_000]}"}

    def single(self, n: int) -> bytes:
        """Return one label."""
        return json.dumps(self.item(n)).encode()

    def row(self, n: int) -> bytes:
        """Return one row to be predicted."""
        return json.dumps({"row": self.item(n)["row"], "remember": False}).encode()

    def batch(self, n: int) -> bytes:
        """Return a batch of labels."""
        return json.dumps({"items": [self.item(n * BATCH + i) for i in range(BATCH)]}).encode()


async def closed(
    server: Server, path: str, bodies: list[bytes], clients: int, seconds: float, *, keys: bool
) -> dict[str, float]:
    """Let so many clients send as fast as they are answered."""
    ends, times, other = time.perf_counter() + seconds, [], 0

    async def client(number: int) -> None:
        nonlocal other
        async with Connection(server) as connection:
            n = number
            while time.perf_counter() < ends:
                # Ordered in time, as those of the Python client are.
                key = f"{time.time_ns():020d}-{number}" if keys else ""
                request = server.request("POST", path, bodies[n % len(bodies)], key)
                began = time.perf_counter()
                status, _ = await connection.send(request)
                times.append(time.perf_counter() - began)
                other += status != 200
                n += clients

    began, cpu = time.perf_counter(), server.cpu
    await asyncio.gather(*(client(number) for number in range(clients)))
    spent = time.perf_counter() - began
    return {
        "clients": clients,
        "a_second": len(times) / spent,
        "other_answers": other,
        "server_cpu": (server.cpu - cpu) / spent,
        **_quantiles(times),
    }


async def opened(
    server: Server, path: str, bodies: list[bytes], rate: float, seconds: float
) -> dict[str, Any]:
    """Send at a fixed rate whatever happens; return times, and memory on the way."""
    n, clients, times = int(rate * seconds), 64, []
    began = time.perf_counter() + 0.1
    memory: list[float] = []

    async def client(number: int) -> None:
        async with Connection(server) as connection:
            for i in range(number, n, clients):
                due = began + i / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                key = f"{time.time_ns():020d}-{number}"
                await connection.send(server.request("POST", path, bodies[i % len(bodies)], key))
                times.append(time.perf_counter() - due)

    async def watch() -> None:
        while time.perf_counter() < began + seconds:
            memory.append(server.memory)
            await asyncio.sleep(min(5.0, seconds / 4))

    await asyncio.gather(watch(), *(client(number) for number in range(clients)))
    return {"rate": rate, "seconds": seconds, "memory_mb": memory, **_quantiles(times)}


def _quantiles(times: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(times, [0.5, 0.99]).tolist() if times else (0.0, 0.0)
    return {"p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99}


def sync_rate(folder: Path, seconds: float = 3.0) -> float:
    """Return how often a second the disk makes 4 kB durable, one after the other."""
    handle = os.open(folder / "sync", os.O_WRONLY | os.O_CREAT)
    ends, n = time.perf_counter() + seconds, 0
    while time.perf_counter() < ends:
        os.write(handle, bytes(4096))
        os.fdatasync(handle)
        n += 1
    os.close(handle)
    return n / seconds


async def measured(server: Server, config: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Measure everything about one model."""
    stream, path = Stream(), "/v1/models/load"
    batches = [stream.batch(n) for n in range(5)]
    singles = [stream.single(n) for n in range(5_000)]
    rows = [stream.row(n) for n in range(5_000)]
    async with Connection(server) as connection:
        await connection.send(server.request("PUT", path, json.dumps(config).encode()))
        for n in range(WARM // BATCH):
            await connection.send(server.request("POST", f"{path}/learn/batch", batches[n % 5]))
    found: dict[str, Any] = {"config": config}
    found["single"] = [
        await closed(server, f"{path}/learn", singles, clients, SECONDS, keys=True)
        for clients in CLIENTS
    ]
    found["batch"] = await closed(server, f"{path}/learn/batch", batches, 4, SECONDS, keys=True)
    found["batch"]["labels_a_second"] = BATCH * found["batch"]["a_second"]
    found["predict"] = await closed(
        server, f"{path}/predict", rows, PREDICTING, SECONDS, keys=False
    )
    found["predict_beside"], found["learn_beside"] = await asyncio.gather(
        closed(server, f"{path}/predict", rows, PREDICTING, SECONDS, keys=False),
        closed(server, f"{path}/learn", singles, CLIENTS[-1], SECONDS, keys=True),
    )
    peak = max(one["a_second"] for one in found["single"])
    half = found["predict"]["a_second"] / 2
    found["open_predict"] = await opened(server, f"{path}/predict", rows, half, SECONDS)
    found["open"] = await opened(server, f"{path}/learn", singles, peak / 2, 60.0 * minutes)
    await closed(server, f"{path}/learn", singles[:1], 1, 0.1, keys=True)
    async with Connection(server) as connection:
        found["verified"] = json.loads(
            (await connection.send(server.request("POST", f"{path}/verify")))[1]
        )
    return found


def table(found: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    lines = [
        "# The service under load",
        "",
        f"{stated(found['origin'])}. {FEATURES} features, {CLASSES} classes; a label counts when "
        "its answer has come, and it is on the disk by then. Server and clients share "
        f"{found['origin']['cores']} cores. Musts: 3,000 labels/s one by one, 25,000 by batch, "
        "8,000 predictions/s, each at least a third of its rate beside the other.",
        "",
        f"The disk itself: {found['syncs_before']:,.0f} syncs of 4 kB a second before, "
        f"{found['syncs_after']:,.0f} after.",
        "",
        "| model | workers | what | clients | a second | p50, ms | p99, ms | cores of the server |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for own in found["models"]:
        name = ", ".join(f"{k}={v}" for k, v in own["config"].items()) or "default"
        name += f" | {own['workers']}"

        def line(what: str, one: dict[str, float], rate: float, name: str = name) -> str:
            return (
                f"| {name} | {what} | {one['clients']} | {rate:,.0f} | {one['p50_ms']:.2f} | "
                f"{one['p99_ms']:.2f} | {one['server_cpu']:.2f} |"
            )

        lines += [line("labels, one a request", one, one["a_second"]) for one in own["single"]]
        batch = own["batch"]
        lines.append(line(f"labels, {BATCH:,} a request", batch, batch["labels_a_second"]))
        lines.append(line("predictions", own["predict"], own["predict"]["a_second"]))
        beside = own["predict_beside"], own["learn_beside"]
        lines.append(line("predictions while learning", beside[0], beside[0]["a_second"]))
        lines.append(line("labels meanwhile", beside[1], beside[1]["a_second"]))
    for own in found["models"]:
        one, memory, predict = own["open"], own["open"]["memory_mb"], own["open_predict"]
        lines += [
            "",
            f"Open loop ({own['config'] or 'default'}, {own['workers']} workers): predictions at "
            f"half of their rate, {predict['rate']:,.0f} a second, p50 {predict['p50_ms']:.2f} ms, "
            f"p99 {predict['p99_ms']:.2f} ms. {one['rate']:,.0f} labels/s for "
            f"{one['seconds']:,.0f} s: p50 {one['p50_ms']:.2f} ms, p99 {one['p99_ms']:.2f} ms; "
            f"memory {memory[0]:.0f} MB at first, {memory[len(memory) // 2]:.0f} MB half way, "
            f"{memory[-1]:.0f} MB at the end. Replay of {own['verified']['events']:,} events: "
            f"{'the same bytes' if own['verified']['same'] else 'OTHER BYTES'}.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, show and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the open loop")
    arguments = parser.parse_args()
    sizes = {"features": FEATURES, "classes": CLASSES, "batch": BATCH, "warm": WARM}
    libraries = ["apsw", "uvicorn", "starlette", "msgspec"]
    origin = provenance(
        "benchmarks.service", sys.argv[1:], seeds=[0], sizes=sizes, libraries=libraries
    )
    found: dict[str, Any] = {"origin": origin, "models": []}
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place)
        found["syncs_before"] = sync_rate(folder)
        for n_workers in (0, 2):
            with serving(folder / f"served{len(found['models'])}", n_workers) as server:
                found["models"].append(
                    {"workers": n_workers} | uvloop.run(measured(server, {}, arguments.minutes))
                )
        found["syncs_after"] = sync_rate(folder)
    write_json(RESULTS / "service.json", found)
    text = table(found)
    (RESULTS / "service.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
