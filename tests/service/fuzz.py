"""Requests drawn from the OpenAPI document, by schemathesis: nothing may be a server error."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from folklearn.service.http import describe_api
from folklearn.service.routes import ENDPOINTS
from tests.service.running import Running, running

ROOT = Path(__file__).parents[2]
Serve = Callable[[Path], AbstractContextManager[Running]]
_CHECKS = "tests.service.fuzz_checks"
_MODELS = ["churn", "offer", "ghost"]
_ENDLESS = ("watch", "verify")  # one never ends, the other starts a process


def fuzz(folder: Path, seconds: int, serve: Serve = running) -> subprocess.CompletedProcess[str]:
    """Send requests for so many seconds to a service with a classifier and an agent.

    `serve` is what serves the folder; what happens beside goes on within it.
    """
    document = describe_api(ENDPOINTS)
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "name":  # mostly models that are there
                    parameter["schema"] = {"enum": _MODELS}
    (folder / "openapi.json").write_text(json.dumps(document))
    with serve(folder / "served") as service:
        service.ask("PUT", "/v1/models/churn", {"wait": 0.5, "default": "go"})
        config = {"actions": ["a", "b"], "context": {"x": "number"}, "wait": 0.5, "default": 0.5}
        service.ask("PUT", "/v1/models/offer", config)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", str(folder / "openapi.json")),
                *("--url", service.address, "--max-time", str(seconds)),
                *("--request-timeout", "120"),
                *("--checks", "no_fault_of_the_server,ignored_auth", "--workers", "2"),
                *("--phases", "coverage,fuzzing", "--continue-on-failure", "--no-color"),
                *("--header", f"Authorization: Bearer {service.key}", "--warnings", "off"),
                *(word for one in _ENDLESS for word in ("--exclude-operation-id", one)),
            ],
            cwd=folder,
            env=os.environ | {"SCHEMATHESIS_HOOKS": _CHECKS, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert service.ask("GET", "/v1/health/live").status == 200
        there = [model["name"] for model in service.ask("GET", "/v1/models").body["models"]]
        for name in set(there) & set(_MODELS):
            verified = service.ask("POST", f"/v1/models/{name}/verify")
            assert verified.body["same"], verified
    return done
