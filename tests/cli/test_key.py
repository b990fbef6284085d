"""`folklearn key`: the key alone on standard output, everything else beside it."""

import itertools
import re
import subprocess
import sys

import pytest

from folklearn.service.keys import Keys


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "the service"


@pytest.fixture
def key(folklearn, folder):
    return lambda *arguments: folklearn("key", folder, *arguments)


@pytest.fixture
def refused(refusal, folder):
    return lambda *arguments: refusal("key", folder, *arguments)


def test_the_key_is_alone_on_standard_output(key, folder):
    outcome = key("create")
    assert outcome.code == 0
    text, end = outcome.stdout[:-1], outcome.stdout[-1]
    assert end == "\n"
    found = Keys(folder).find(text)
    assert (found.tenant, found.model, found.note, found.expires) == ("main", None, "", None)
    assert found.scopes == {"predict", "learn", "read"}
    assert outcome.stderr == (
        f"Keep this key: it cannot be shown again. What it is for: folklearn key '{folder}' list\n"
    )


def test_every_option(key, folder):
    options = ["--tenant", "acme", "--model", "churn", "--note", "[b]for ci"]
    text = key("create", *options, "--scope", "read", "--scope", "learn", "--expires", "90d").stdout
    found = Keys(folder).find(text.strip())
    assert (found.tenant, found.model, found.note) == ("acme", "churn", "[b]for ci")
    assert found.scopes == {"read", "learn"}
    assert found.expires - found.created == 90 * 86400


def test_the_list_has_everything_but_secrets(key, folder):
    long_ago = Keys(folder, clock=lambda: 86400.0)
    long_ago.create(tenant="acme", model="churn", scopes=["admin"], note="[b]old one", lifetime=60)
    texts = [long_ago.create(), long_ago.create()]
    ids = [one.id for one in long_ago.all()]
    long_ago.revoke(ids[1])
    outcome = key("list")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert outcome.stdout == (
        "id            tenant  model  scopes                created (UTC)     "
        "expires (UTC)     state    note\n"
        f"{ids[0]}  acme    churn  admin                 1970-01-02 00:00  "
        "1970-01-02 00:01  expired  [b]old one\n"
        f"{ids[1]}  main    all    predict, learn, read  1970-01-02 00:00  "
        "never             revoked\n"
        f"{ids[2]}  main    all    predict, learn, read  1970-01-02 00:00  "
        "never             live\n"
    )
    assert not any(text.split("_")[2] in outcome.stdout for text in texts)


def test_revoking(key, folder):
    text = key("create").stdout.strip()
    id = text.split("_")[1]
    outcome = key("revoke", id)
    assert (outcome.code, outcome.stdout) == (0, "")
    assert outcome.stderr == f"The key {id} is revoked.\n"
    assert Keys(folder).find(text) is None


def test_a_running_service_may_use_the_folder_meanwhile(key, folder):
    ticks = itertools.count()
    service = Keys(folder, clock=lambda: next(ticks))
    text = key("create").stdout.strip()
    assert service.find(text) is not None
    key("revoke", text.split("_")[1])
    assert service.find(text) is None


def test_a_folder_that_is_not_there(refused, folder):
    assert refused("list") == (
        f"there are no keys in {folder}; to make one: folklearn key '{folder}' create"
    )
    assert refused("revoke", "abc") == (
        f"there is no key of this id in {folder}; there is none at all"
    )
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--scope", "write"], "there is no scope 'write'; choose from: predict, learn, read, ad"),
        (["--tenant", "../x"], "tenant '../x' must be 1 to 63 of a-z, 0-9, _ and -"),
        (["--model", "Churn"], "model 'Churn' must be 1 to 63 of"),
        (["--expires", "soon"], "--expires 'soon' must be a time such as 60s, 5m, 1h or 90d"),
        (["--expires", "0d"], "a key must last for a second at least and for 100 years at most"),
        (["--expires", "infd"], "a key must last for a second at least and for 100 years at most"),
        (["--note", "a\nb"], "note must be one line"),
    ],
)
def test_refusals_make_no_folder(refused, folder, options, sentence):
    assert refused("create", *options).startswith(sentence)
    assert not folder.exists()


def test_a_place_that_is_a_file(refusal, tmp_path):
    (tmp_path / "file").write_text("")
    assert refusal("key", tmp_path / "file", "create") == f"{tmp_path / 'file'}: File exists"


def test_without_a_command_it_shows_the_commands(key, folder):
    outcome = key()
    assert outcome.code == 0
    assert all(re.search(rf"\b{name}\b", outcome.stdout) for name in ("create", "list", "revoke"))
    assert not folder.exists()


def test_a_missing_extra_is_named(tmp_path):
    script = (
        "import sys; sys.modules['apsw'] = None\n"
        "from folklearn.cli.app import main; sys.exit(main(['key', sys.argv[1], 'create']))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "folklearn: this command needs apsw, which comes with the extra: "
        "pip install 'folklearn[serve]'\n"
    )


def test_the_other_commands_do_without_the_extra():
    script = (
        "import sys\n"
        "for name in ('apsw', 'msgspec', 'starlette', 'urllib3', 'uvicorn'):\n"
        "    sys.modules[name] = None\n"
        "from folklearn.cli.commands import app\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
