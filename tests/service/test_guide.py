"""The pages about the service: what they print to be typed does what they say."""

import contextlib
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from folklearn.cli.app import main
from tests.service.running import running

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


def blocks(page: str, kind: str) -> list[str]:
    text = (GUIDE / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", text, flags=re.M | re.S)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_of_curl(tmp_path):
    _, *lines = blocks("serve.md", "bash")  # the first starts the service
    with running(tmp_path / "served") as service:
        script = "\n".join(lines).replace("http://127.0.0.1:8080", service.address)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script.replace("curl -s", "curl -sS --fail")],
            cwd=tmp_path,
            env={"KEY": service.key, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert '"same":true' in done.stdout
        # Two labels, one by id, two together, one of two that were the same; two were erased.
        assert service.ask("GET", "/v1/models/churn").body["rows"] == 4
    assert (tmp_path / "churn.folk").exists()


def test_the_code_of_python(tmp_path):
    with running(tmp_path / "served") as service:
        scope = {"key": service.key}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for code in blocks("serve.md", "{code-block} python"):
                exec(code.replace("http://127.0.0.1:8080", service.address), scope)
        # Predictions never wait for the writer: on a busy machine they are of a moment before.
        said = r"(billing|login) \{'billing': [01]\.\d+(, 'login': 0\.\d+)?\}\n"
        assert re.match(said, out.getvalue())
        found = {one["name"]: one for one in service.ask("GET", "/v1/models").body["models"]}
        assert (found["tickets"]["rows"], found["offers"]["rows"]) == (4, 1)


def test_the_keys_of_the_page_about_deploying(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    create, show, revoke = blocks("deploy.md", "bash")[0].splitlines()
    assert main([word.strip('"') for word in create.split()[1:]]) == 0
    key = capsys.readouterr().out.strip()
    assert main(show.split()[1:]) == 0
    assert key.split("_")[1] in capsys.readouterr().out
    assert main([*revoke.split()[1:-1], key.split("_")[1]]) == 0


def test_a_backup_is_the_whole_truth(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    (command,) = [block for block in blocks("deploy.md", "bash") if "backup" in block]
    with running(tmp_path / "served") as service:
        service.ask("PUT", "/v1/models/churn", {})
        for label in ("go", "stay", "go"):
            service.post("/v1/models/churn/learn", {"row": {"age": 3}, "label": label})
        assert main(command.split()[1:]) == 0
        assert "4 events" in capsys.readouterr().out
        assert main(command.split()[1:]) == 2  # a backup is not overwritten
        key, before = service.key, service.post("/v1/models/churn/verify", None)["digest"]
    caplog.clear()
    with running(tmp_path / "backup-monday") as service:
        assert service.ask("GET", "/v1/models/churn", key=key).body["rows"] == 3
        assert service.post("/v1/models/churn/verify", None)["digest"] == before
    assert "snapshot" not in caplog.text
