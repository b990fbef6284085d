"""Every release opens the folders of every earlier one, and refuses those of later ones."""

import json
import shutil
from pathlib import Path

import pytest

from folklearn.errors import StateFileError
from folklearn.service import journal
from folklearn.service.server import application
from folklearn.service.service import Service
from folklearn.service.store import ModelStore
from tests.service import audit
from tests.service.clients import MODEL, Answer, Request, ShortLine

FORMATS = sorted((Path(__file__).parent / "data").glob("format*"))


@pytest.fixture(params=FORMATS, ids=lambda path: path.name)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(request.param, tmp_path / "folder")
    return tmp_path / "folder"


def test_a_folder_of_an_earlier_release_is_served(folder: Path) -> None:
    content = json.loads((folder / "answers.json").read_text())
    service = Service(folder, audit.LIMITS)
    line = ShortLine(application(service), content["secret"])
    for request, answer in content["requests"]:
        if request[2] is not None:  # its key
            assert line.send(Request(*request)) == Answer(*answer)
    learned = line.send(Request(f"{MODEL}/learn", {"label": "yes", "row": {"x": 1.0}}, "a new key"))
    assert learned.status == 200
    predicted = line.send(Request(f"{MODEL}/predict", {"row": {"x": 1.0}}))
    assert [one["label"] for one in predicted.body["probabilities"]] == ["yes", "no", "perhaps"]
    service.close()


def test_its_journal_is_replayed_to_its_snapshots(folder: Path) -> None:
    """Up to rounding: equal bytes are promised between equal builds."""
    shutil.copytree(folder, folder.with_name("bare"))
    shutil.rmtree(folder.with_name("bare") / "snapshots")
    predicted, n_replayed = [], []
    for path in (folder, folder.with_name("bare")):
        store = ModelStore(path, audit.LIMITS)
        model = store.hosts["main", "labels"].published.model
        predicted.append(model.predict_proba_one({"x": 0.5, "colour": "red"}))
        n_replayed.append(store.n_replayed)
        store.abandon()
    assert n_replayed[0] == 0
    assert n_replayed[1] > 20
    assert predicted[0] == pytest.approx(predicted[1], rel=1e-9)


def test_there_is_a_folder_of_the_present_format() -> None:
    assert FORMATS[-1].name == f"format{journal.FORMAT}"


def test_a_folder_of_a_later_release_is_refused(folder: Path) -> None:
    database = journal.open_database(folder / journal.NAME)
    database.pragma("user_version", journal.FORMAT + 1)
    database.close()
    with pytest.raises(StateFileError, match="upgrade folklearn to serve this folder"):
        ModelStore(folder)
