"""Keys: what they open, when they end, and what of them can be found on the disk."""

import fcntl
import os
import re
import stat
import subprocess
import sys
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import InvalidInputError, StateFileError
from folklearn.service.keys import Keys, is_well_formed
from folklearn.service.limits import SCOPES, check_name

DAY = 86400
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def signed(body):
    return f"{body}_{zlib.crc32(body.encode()):08x}"


UNKNOWN = signed(f"flk_{'a' * 12}_{'b' * 50}")


class Time:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "service"


@pytest.fixture
def another(folder, time):
    """Open the folder once more, as another process does."""
    return lambda: Keys(folder, clock=time)


@pytest.fixture
def keys(another):
    return another()


def test_a_key_is_found_by_its_text(keys):
    text = keys.create(tenant="acme", model="churn", scopes=["read", "learn"], note="für Zoë")
    found = keys.find(text)
    assert (found.tenant, found.model, found.note) == ("acme", "churn", "für Zoë")
    assert found.scopes == {"read", "learn"}
    assert (found.created, found.expires, found.revoked) == (1_000_000, None, None)
    assert found.id == text.split("_")[1]
    assert keys.all() == keys.live() == [found]


def test_keys_outlast_the_process(keys, another):
    text = keys.create(scopes=["admin"], note="first", lifetime=DAY)
    found = keys.find(text)
    assert another().find(text) == found
    assert keys.find(text) == found


def test_a_file_that_is_opened_again_is_read_again(keys, another):
    text = keys.create()
    assert keys.live() == keys.all()
    another().revoke(text.split("_")[1])
    assert keys.live() == []


@pytest.mark.parametrize("scope", SCOPES)
def test_scopes(keys, scope):
    key = keys.find(keys.create(scopes=[scope]))
    allowed = {other for other in SCOPES if key.allows(other, "m")}
    assert allowed == (set(SCOPES) if scope == "admin" else {scope})


def test_a_key_without_scopes_named_is_no_administrator(keys):
    key = keys.find(keys.create())
    assert {scope for scope in SCOPES if key.allows(scope, None)} == set(SCOPES) - {"admin"}


def test_a_key_for_one_model_opens_neither_another_nor_the_tenant(keys):
    one, every = (keys.find(keys.create(model=name, scopes=["admin"])) for name in ("m", None))
    assert [one.allows("read", name) for name in ("m", "n", None)] == [True, False, False]
    assert [every.allows("read", name) for name in ("m", "n", None)] == [True, True, True]


def test_expiry(keys, time):
    text = keys.create(lifetime=DAY)
    key = keys.find(text)
    time.now += DAY - 0.5
    assert keys.find(text) == key
    assert key.state(time.now) == "live"
    time.now += 0.5
    assert keys.find(text) is None
    assert key.state(time.now) == "expired"
    assert (keys.live(), keys.all()) == ([], [key])


def test_revoking(keys, time):
    text, other = keys.create(), keys.create()
    id = keys.find(text).id
    time.now += 5
    keys.revoke(id)
    assert keys.find(text) is None
    assert keys.find(other) is not None
    time.now += 5
    keys.revoke(id)
    gone = keys.all()[0]
    assert (gone.revoked, gone.state(time.now)) == (1_000_005, "revoked")


def test_what_another_process_does_is_noticed_within_a_second(keys, another, time):
    mine = keys.create()
    other = another()
    theirs = other.create(scopes=["admin"])
    assert keys.find(mine) is not None  # looks at the disk
    other.revoke(keys.find(mine).id)
    newest = other.create(scopes=["read"])
    assert keys.find(mine) is not None  # looked a moment ago
    time.now += 0.99
    assert keys.find(mine) is None
    assert keys.find(theirs) is not None
    assert keys.find(newest) is not None


def test_the_first_key_of_all_is_noticed(keys, another, time):
    assert keys.find(UNKNOWN) is None  # looks, and there is no folder yet
    text = another().create()
    assert keys.find(text) is None
    time.now += 0.99
    assert keys.find(text) is not None


def test_what_is_known_is_always_what_is_listed(keys, another):
    other = another()
    for scope in SCOPES:
        text = keys.create(scopes=[scope])
        assert other.all() == keys.all()
        other.revoke(text.split("_")[1])
        assert keys.all() == other.all()
    assert keys.live() == []


def test_looking_makes_nothing(keys, folder):
    assert keys.find("flk_") is None
    assert keys.find(UNKNOWN) is None
    assert (keys.all(), keys.live()) == ([], [])
    with pytest.raises(InvalidInputError, match="there is none at all"):
        keys.revoke("a" * 12)
    assert not folder.exists()


def test_rotation_needs_two_keys(keys, another, time):
    old, new = keys.create(lifetime=DAY), another().create()
    assert [keys.find(text) for text in (old, new)] == keys.all()
    time.now += DAY  # the old one ends by itself
    assert keys.find(old) is None
    assert keys.live() == [keys.find(new)]


@pytest.mark.parametrize("scopes", [["admin"], SCOPES, ["admin", "read"]])
def test_admin_implies_the_other_scopes(keys, scopes):
    assert keys.find(keys.create(scopes=scopes)).scopes == {"admin"}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tenant": "Acme"}, "tenant 'Acme' must be 1 to 63 of a-z, 0-9, _ and -"),
        ({"model": ""}, "model '' must be"),
        ({"scopes": ["read", "write"]}, "there is no scope 'write'; choose from: predict, learn"),
        ({"scopes": []}, "a key needs a scope; choose from: predict, learn, read, admin"),
        ({"lifetime": 0.0}, "a key must last for a second at least"),
        ({"lifetime": float("nan")}, "a key must last for a second at least"),
        ({"lifetime": float("inf")}, "for 100 years at most; one without an end needs no time"),
        ({"note": "two\nlines"}, "note must be one line of at most 200 characters"),
        ({"note": "\x1b[31m"}, "note must be one line"),
        ({"note": "\udcff"}, "note must be one line"),
        ({"note": "a" * 201}, "note must be one line"),
    ],
)
def test_what_is_refused_leaves_nothing(keys, folder, given, sentence):
    with pytest.raises(InvalidInputError, match=re.escape(sentence)):
        keys.create(**given)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["a", "0", "a_b-c", "9" * 63])
def test_names(name):
    check_name("model", name)


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a.b", "a/b", "ä", "a\n", "²", "a" * 64])
def test_names_that_are_refused(name):
    with pytest.raises(InvalidInputError, match="^model .* must be 1 to 63 of"):
        check_name("model", name)


def test_an_unknown_id_is_not_repeated(keys):
    """It may be a whole key that was given by mistake."""
    text = keys.create()
    with pytest.raises(InvalidInputError) as refused:
        keys.revoke(text)
    assert text not in str(refused.value)
    assert text.split("_")[1] in str(refused.value)


@given(st.text() | st.text(LETTERS + "_", max_size=90) | st.text(st.characters()))
def test_other_texts_are_no_keys(text):
    assert not is_well_formed(text)
    assert Keys("nowhere").find(text) is None


@pytest.mark.parametrize("tail", ["\n", " ", "?", "\udcff", "_", "a" * 100_000])
def test_what_only_begins_like_a_key_opens_nothing(keys, tail):
    text = keys.create()
    assert keys.find(text) is not None
    for other in (text + tail, tail + text, text[:-1] + tail, text[: -len("_12345678")] + tail):
        assert not is_well_formed(other)
        assert keys.find(other) is None


def test_form(keys):
    text = keys.create()
    assert re.fullmatch("flk_[a-z0-9]{12}_[a-z0-9]{50}_[0-9a-f]{8}", text)
    assert is_well_formed(text)


def test_every_typing_mistake_is_told_apart_from_a_key_that_is_unknown(keys):
    text = keys.create()
    for i, letter in enumerate(text):
        wrong = "x" if letter != "x" else "y"
        assert not is_well_formed(text[:i] + wrong + text[i + 1 :])
        assert not is_well_formed(text[:i] + text[i + 1 :])
        swapped = text[:i] + text[i : i + 2][::-1] + text[i + 2 :]
        assert is_well_formed(swapped) == (swapped == text)


def test_a_true_id_with_another_secret_opens_nothing(keys):
    text = keys.create()
    _, id, secret, _ = text.split("_")
    for other in ("a" * 50, secret[1:] + secret[0], secret[::-1]):
        guess = signed(f"flk_{id}_{other}")
        assert is_well_formed(guess)
        assert keys.find(guess) is None
    assert keys.find(signed(f"flk_{id}_{secret}")) is not None


def test_the_secret_is_nowhere(keys, folder):
    text = keys.create(note="seen")
    secret = text.split("_")[2]
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    assert b"seen" in content
    assert secret.encode() not in content
    assert secret not in repr(keys) + repr(keys.all()) + repr(vars(keys))


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_only_the_owner_may_look(keys, folder):
    before = os.umask(0)
    try:
        keys.create()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} == {"keys.json"}


def test_what_is_created_is_on_the_disk(keys, folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    keys.create()
    assert synced == [(folder / "keys.json").stat().st_ino, folder.stat().st_ino]


def test_of_processes_that_begin_at_once_each_gets_a_key(keys, folder):
    script = (
        "import sys; from folklearn.service.keys import Keys\n"
        "keys = Keys(sys.argv[1]); print('ready', flush=True); sys.stdin.readline()\n"
        "print(keys.create())"
    )
    command = [sys.executable, "-c", script, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    created = [process.communicate()[0].strip() for process in processes]
    assert sorted(keys.find(text).id for text in created) == sorted(key.id for key in keys.all())
    assert len({*created}) == 4


@pytest.mark.parametrize("content", [b"something else" * 100, b"", b"{}", b"\xff"])
def test_a_file_that_holds_no_keys(keys, folder, content):
    folder.mkdir()
    (folder / "keys.json").write_bytes(content)
    for use in (keys.all, keys.create, lambda: keys.find(UNKNOWN)):
        with pytest.raises(StateFileError, match=r"keys\.json cannot be used: "):
            use()
        keys._refreshed = -1.0


def test_every_damaged_byte_is_noticed(keys, another, folder):
    keys.create(note="mine")
    content = (folder / "keys.json").read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        (folder / "keys.json").write_bytes(damaged)
        with pytest.raises(StateFileError, match="keys.json"):
            another().all()


def test_a_file_of_a_newer_version(keys, another, folder):
    keys.create()
    content = (folder / "keys.json").read_bytes().replace(b'"version":1', b'"version":2')
    (folder / "keys.json").write_bytes(content)
    with pytest.raises(StateFileError, match="newer version of folklearn: use that one"):
        another().all()


def test_reading_goes_on_while_another_process_writes(keys, another, folder):
    text = keys.create()
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    thread = threading.Thread(target=keys.create)
    thread.start()
    assert another().find(text) is not None
    assert len(another().all()) == 1
    os.close(descriptor)
    thread.join()
    assert len(another().all()) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(keys, folder):
    keys.create()
    folder.chmod(0o500)
    with pytest.raises(StateFileError, match=r"keys\.json cannot be written"):
        keys.create()
