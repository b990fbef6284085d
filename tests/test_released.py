"""What a release of 1.x has written, every later one reads: `tests/released/VERSION` holds it.

`python -m tests.test_released` writes the folder of the present version, once, at its release.
Equal bytes are promised on one machine and build only, so that predictions are compared here.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import folklearn
from tests.conftest import ROOT

RELEASED = ROOT / "tests" / "released"
FILES = sorted(RELEASED.glob("*/*.folk"))
ROWS = [{"x": 0.5, "colour": "red"}, {"x": -1.0, "colour": None, "day": "2026-05-17"}]
X = np.array([[0.5, -0.25, 1.0], [-1.0, 0.0, 1.0]])
SIZES = {"n_features": 3, "n_classes": 3}


def present_objects():
    """One of each kind that people save, by name."""
    rng = np.random.default_rng(1)
    Z = np.hstack([rng.normal(size=(300, 2)), np.ones((300, 1))])
    y = np.digitize(Z[:, 0], [-0.5, 0.5])
    rows = [
        {"x": a, "colour": "red" if b > 0 else "blue", "day": f"2026-0{1 + t % 9}-11"}
        for t, (a, b, _) in enumerate(Z.tolist())
    ]
    labels = [("low", "middle", "high")[k] for k in y.tolist()]
    learners = {
        "auto": folklearn.auto(**SIZES),
        "leader": folklearn.Leader(**SIZES),
        "folklore": folklearn.Folklore(**SIZES, B=3.0),
        "aioli": folklearn.Aioli(n_features=3, B=3.0),
        "ogd": folklearn.Ogd(**SIZES, B=3.0),
        "class_gaussians": folklearn.ClassGaussians(**SIZES),
        "shared_gaussian": folklearn.SharedGaussian(**SIZES),
        "sparse_sgd": folklearn.SparseSgd(**SIZES),
        "mixture": folklearn.Mixture([folklearn.Folklore(**SIZES, B=b) for b in (1.0, 9.0)]),
    }
    for learner in learners.values():
        learner.run(Z, np.minimum(y, learner.n_classes - 1))
    evidence = folklearn.Evidence(**SIZES)
    evidence.add(Z, y)
    lines, curves = folklearn.Model(terms="none"), folklearn.Model()
    for model in (lines, curves):
        model.learn_many(rows, labels)
    decisions = folklearn.DecisionModel(["tea", "milk"], terms="none", seed=0)
    for row, label in zip(rows[:100], labels, strict=False):
        decision = decisions.decide(row)
        decisions.reward(decision, float((decision.action == "tea") == (label == "high")))
    return {**learners, "evidence": evidence, "lines": lines, "curves": curves, "agent": decisions}


def answers_of(what):
    """What a saved object says of the rows above, as JSON has it."""
    if isinstance(what, folklearn.Evidence):
        return what.certificate(400.0).regret_bound
    if isinstance(what, folklearn.Learner):
        return [what.predict(x).tolist() for x in X]
    if isinstance(what, folklearn.DecisionModel):
        return [what.policy(row) for row in ROWS]
    return [what.predict_proba_one(row) for row in ROWS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_of_a_release_says_what_it_said(path):
    expected = json.loads((path.parent / "answers.json").read_text())[path.stem]
    said = answers_of(folklearn.load(path))
    flat, wanted = (np.array(list(_numbers(one))) for one in (said, expected))
    np.testing.assert_allclose(flat, wanted, rtol=1e-7, atol=1e-12)


def _numbers(content):
    inner = content.values() if isinstance(content, dict) else content
    if isinstance(content, dict | list):
        for one in inner:
            yield from _numbers(one)
    else:
        yield float(content)


def test_there_is_a_folder_of_this_release():
    version = ".".join(folklearn.__version__.split(".")[:2])
    answers = json.loads((RELEASED / version / "answers.json").read_text())
    assert {path.stem for path in FILES if path.parent.name == version} == set(answers)
    assert len(answers) > 10


def write(folder: Path) -> None:
    """Write the files of the present version, and what they say."""
    folder.mkdir(parents=True)
    answers = {}
    for name, what in present_objects().items():
        path = folder / f"{name}.folk"
        what.save(path, **({"inference": True} if name == "curves" else {}))
        answers[name] = answers_of(folklearn.load(path))
        assert all(map(math.isfinite, _numbers(answers[name])))
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    write(RELEASED / ".".join(folklearn.__version__.split(".")[:2]))
