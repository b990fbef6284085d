"""Explanations say what columns do, in nats."""

import numpy as np

from folklearn import Model


def test_a_category_weighs_what_its_being_there_changes(rng):
    """However rare it is: the log odds of a fit, not those of one deviation."""
    rare = rng.random(8000) < 0.1
    odds = np.where(rare, 2.0, -1.0)
    label = np.where(odds + rng.logistic(size=8000) > 0.0, "yes", "no")
    rows = [{"kind": "rare" if one else "plain"} for one in rare.tolist()]
    model = Model().fit([row | {"label": k} for row, k in zip(rows, label, strict=True)], "label")
    explained = model.explain(importance=False)
    weight = dict(zip(explained.names, explained.weights.tolist(), strict=True))
    yes = explained.labels.index("yes")
    between = 2.0 * (weight["kind = rare"][yes] - weight["kind = plain"][yes])
    P = model.predict_proba([{"kind": "rare"}, {"kind": "plain"}])
    logits = np.log(P[:, yes] / P[:, 1 - yes])
    assert np.isclose(between, logits[0] - logits[1], rtol=1e-2)  # rows move the mean
    assert abs(between - 3.0) < 0.6  # five deviations of what is left to chance


def test_words_that_nobody_wrote_have_no_weights():
    model = Model(roles={"text": "words"})
    for label in "ab":
        model.learn_one({"text": None}, label)
    found = model.explain()
    assert (found.names, found.weights.shape) == ((), (0, 2))
