"""Saved files of every kind with changes that nobody who saves would make, their digests right.

A digest has no key: anyone can write such files. `check` sees that one is refused with a sentence,
or that what was loaded learns and predicts, or says in a sentence why it cannot.
"""

import copy
import re
import warnings
from functools import cache
from unittest import mock

import numpy as np
from hypothesis import strategies as st

import folklearn
from folklearn import bandits, baselines, batch, boosting, evaluate, learners, registry
from folklearn.errors import FolklearnError
from folklearn.evidence import evidence as evidence_module
from folklearn.serialization import Record, Serializable, as_bytes, of_bytes

D, K = 3, 3
_SIZES = {"n_features": D, "n_classes": K}
_TWO = {"n_features": D, "n_classes": 2}


def _rows(T, seed=0, n_classes=K):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(T, D)) / 2
    return X, np.argmax(X + 0.3 * rng.gumbel(size=X.shape), axis=1) % n_classes


def _with_terms():
    """A mixture whose contexts have a term in front of two columns."""
    lines = folklearn.Folklore(n_features=D - 1, n_classes=K)
    mixture = registry.find("TermMixture").of_lines(lines, 1)
    mixture.run(*_rows(40))
    return mixture


def _learned(learner, T=40):
    X, y = _rows(T, n_classes=learner.n_classes)
    learner.run(X, y)
    return learner


def _evidence(kind):
    with mock.patch.multiple(evidence_module, KEPT_ROWS=16, SETTLED_ROWS=8):  # has sums
        evidence = kind(**_SIZES)
        evidence.add(*_rows(40))
        evidence.lower_bound()
    return evidence


def _acted(agent, outcome=lambda t: t % 2 == 0):
    X, _ = _rows(20)
    for t, x in enumerate(X):
        decision = agent.act(x)
        if t < 17:  # the others wait
            agent.learn(decision, outcome(t))
    return agent


def _boosted(kind):
    sizes = {"n_features": D, "n_classes": K}
    weak = [
        boosting.Probabilistic(boosting.NaiveBayes(**sizes)),
        boosting.Probabilistic(folklearn.Folklore(**sizes)),
    ]
    return _learned(kind(**sizes, n_learners=2, weak_learner=weak), 10)


def _model(T=150, **words):
    rng = np.random.default_rng(0)
    model = folklearn.Model(**words)
    model.learn_many(
        [
            {
                "size": float(rng.normal()),
                "colour": ["red", "blue", None][t % 3],
                "day": f"2024-05-{1 + t % 28:02}",
                "said": f"word{t % 5} and word{t % 7} or none at all",
            }
            for t in range(T)
        ],
        [["cat", "dog", "cow"][int(k)] for k in rng.integers(0, 3, T)],
    )
    model.learn_one({"size": 2.0, "late": 1.0}, "dog")
    return model


def _model_of_words_alone():
    model = folklearn.Model(roles={"said": "words"})
    for t in range(60):
        model.learn_one({"said": f"word{t % 5} and word{t % 7}"}, t % 3)
    return model


def _model_of_arrays():
    model = folklearn.Model("folklore")
    model.learn_many(*_rows(60))
    return model


def _decided(*menu, **words):
    model = folklearn.DecisionModel(*menu, **words)
    for t in range(90):
        decision = model.decide({"size": t % 7 / 2, "colour": ["red", "blue", None][t % 3]})
        if t < 87:  # the others wait
            model.reward(decision.id, t % 5 / 4)
    return model


def _monitored():
    monitor = evaluate.Monitor()
    monitor.observe_many(np.r_[np.full(400, 0.1), np.full(700, 3.0)])
    return monitor


def _scaled():
    scaler = folklearn.OnlineScaler(n_features=D)
    scaler.learn_transform(_rows(20)[0])
    return scaler


def _certified(kind):
    own = kind(**_SIZES)
    X, y = _rows(100)
    own.observe_many(X, y, np.full((100, K), 1.0 / K))
    return own


_MAKERS = {
    "Folklore": lambda: _learned(folklearn.Folklore(**_SIZES)),
    "Aioli": lambda: _learned(folklearn.Aioli(**_TWO)),
    "Gaf": lambda: _learned(folklearn.Gaf(**_SIZES, n_points=8)),
    "Laplace": lambda: _learned(folklearn.Laplace(**_SIZES)),
    "Ogd": lambda: _learned(folklearn.Ogd(**_SIZES)),
    "Ons": lambda: _learned(folklearn.Ons(**_SIZES, B=0.5)),
    "Auto": lambda: _learned(folklearn.auto(**_SIZES)),
    "Leader": lambda: _learned(folklearn.Leader(**_SIZES)),
    "ClassGaussians": lambda: _learned(folklearn.ClassGaussians(**_SIZES)),
    "SharedGaussian": lambda: _learned(folklearn.SharedGaussian(**_SIZES, leak=0.01)),
    "FixedGaussian": lambda: _learned(folklearn.SharedGaussian(**_SIZES)).copy_to_predict(),
    "FixedExperts": lambda: _learned(folklearn.auto(**_SIZES)).copy_to_predict(),
    "TermMixture": _with_terms,
    "Mixture": lambda: _learned(folklearn.auto(**_SIZES, backend="blocks")),
    "SparseSgd": lambda: _learned(folklearn.SparseSgd(**_SIZES)),
    "StackedSgd": lambda: _learned(learners.StackedSgd(**_SIZES)),
    "Aggregating": lambda: _learned(folklearn.Aggregating(**_SIZES, n_particles=12, n_moves=1), 10),
    "Evidence": lambda: _evidence(folklearn.Evidence),
    "LinearEvidence": lambda: _evidence(folklearn.LinearEvidence),
    "OnlineScaler": _scaled,
    "Certifier": lambda: _certified(folklearn.Certifier),
    "Monitor": _monitored,
    "Banditron": lambda: _acted(baselines.Banditron(**_SIZES, exploration=0.4)),
    "Newtron": lambda: _acted(baselines.Newtron(**_SIZES, exploration=0.4, beta=0.1)),
    "Soba": lambda: _acted(baselines.Soba(**_SIZES, exploration=0.4)),
    "Obama": lambda: _acted(baselines.Obama(**_SIZES, exploration=0.5, n_particles=12, n_moves=1)),
    "BanditReduction": lambda: _acted(
        bandits.BanditReduction(folklearn.Folklore(**_SIZES), exploration=0.5)
    ),
    "RewardAgent": lambda: _acted(bandits.auto(n_features=D, n_actions=K)),
    "OnlineToBatch": lambda: batch.OnlineToBatch(folklearn.Folklore(**_SIZES)).fit(*_rows(30)),
    "AdaBoostOLMpp": lambda: _boosted(boosting.AdaBoostOLMpp),
    "AdaBoostOLM": lambda: _boosted(baselines.AdaBoostOLM),
    "Model": lambda: _model(roles={"said": "ignored"}, windows=True),
    "Model of words": lambda: _model(roles={"said": "words"}),
    "Model of words alone": _model_of_words_alone,
    "Model of arrays": _model_of_arrays,
    "DecisionModel": lambda: _decided(["a", "b"], default_reward=0.5),
    "DecisionModel of features": lambda: _decided({"a": {"price": 1}, 2: {"price": 3}}),
    "DecisionModel of a context": lambda: _decided(
        ["a", "b"], context={"size": "number", "colour": ["red"]}, terms="none"
    ),
    "Model that only predicts": lambda: _model(roles={"said": "ignored"})._copy_to_save(),
}
KINDS = tuple(_MAKERS)


@cache
def saved(kind):
    """Return the bytes of a small saved object of a kind, the same every time."""
    made = _MAKERS[kind]()
    return made.to_bytes()


def record_of(kind):
    """Return a record of a kind that may be changed."""
    record = of_bytes(saved(kind))
    return Record(record.kind, copy.deepcopy(record.config), dict(record.arrays))


def leaves(entry, path=()):
    """Yield the path of every entry of a configuration."""
    if path:
        yield path
    entries = entry.items() if isinstance(entry, dict) else enumerate(entry)
    for key, value in entries:
        if isinstance(value, dict | list):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def entry(config, path):
    """Return an entry of a configuration."""
    for key in path:
        config = config[key]
    return config


def owner(record, path):
    """Return the kind of the object to which an entry of a record belongs."""
    kind, config = record.kind, record.config
    for key in path:
        if isinstance(config, dict) and isinstance(config.get("kind"), str):
            kind = config["kind"]
        config = config[key]
    return kind


def replace(config, path, value):
    """Set an entry of a configuration."""
    *way, last = path
    for key in way:
        config = config[key]
    config[last] = value


def remove(config, path):
    """Leave an entry of a configuration out."""
    *way, last = path
    for key in way:
        config = config[key]
    del config[last]


WORDS = (
    None, True, False, -1, 0, 1, 2, 3, 4, 7, 1000, 10**5, 10**9, 10**18, 2**62, 2**63, 10**30,
    0.5, -0.5, 1e-300, 1e16, 1e308, "", "x", "0x1p+3", [], [1, 1, 1], [[]], [["str", "cat"]] * 3,
    {}, {"kind": "Ogd", "config": {}}, {"kind": "Evidence", "config": {"n_features": 1}},
)  # fmt: skip
NUMBERS = (
    float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1.0, 1e-300, 1e99, -1e99, 1e308, 2.0**53,
    2.0**63,
)  # fmt: skip
_TYPES = (np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_)


@st.composite
def changes(draw):
    """Return a kind, and its record after one to three changes."""
    kind = draw(st.sampled_from(KINDS))
    record = record_of(kind)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        if draw(st.booleans()) and record.arrays:
            _change_array(draw, record.arrays)
        else:
            _change_word(draw, record.config)
    return kind, record


def _change_word(draw, config):
    paths = list(leaves(config))
    if not paths:
        return
    path = draw(st.sampled_from(paths))
    if draw(st.integers(0, 5)) == 0:
        remove(config, path)
    else:
        replace(config, path, copy.deepcopy(draw(st.sampled_from(WORDS))))


def _change_array(draw, arrays):
    name = draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    what = draw(st.sampled_from(["value", "value", "all", "shape", "type", "gone", "longer"]))
    number = draw(st.sampled_from(NUMBERS))
    with np.errstate(all="ignore"):
        value = np.array(number).astype(array.dtype)
        if what in ("value", "all") and array.size:
            array = array.copy()
            place = slice(None) if what == "all" else draw(st.integers(0, array.size - 1))
            array.reshape(-1)[place] = value
        elif what == "shape":
            array = array[..., :-1] if array.ndim and array.shape[-1] else array.reshape(-1)
        elif what == "longer" and array.ndim:
            array = np.concatenate([array, array[:1]]) if len(array) else array[None]
        elif what == "type":
            array = array.astype(draw(st.sampled_from(_TYPES)))
    if what == "gone":
        del arrays[name]
    else:
        arrays[name] = np.ascontiguousarray(array)


def check(kind, record):
    """Load a record; return whether it was taken."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = folklearn.load(as_bytes(record))
            _use(loaded)
        except FolklearnError as error:
            said = str(error)
        else:
            return True
    assert re.fullmatch(r"\S[^\n]+", said), said
    return False


def _use(loaded):
    """Predict, learn, prove, save and load again."""
    for step in _STEPS:
        if isinstance(loaded, step):
            try:
                _STEPS[step](loaded)
            except FolklearnError:
                continue
    again = folklearn.load(loaded.to_bytes())
    assert type(again) is type(loaded)


def _use_learner(learner):
    repr(learner)
    if learner.n_features > 100:
        return
    X, y = np.full((3, *learner._shape), 0.25), [0, 1, 1]
    learner.predict(X[0])
    learner.predict(X)
    learner.update(X[0], 1)
    learner.run(X, y)
    learner.certificate()
    learner.regret_bound(100)
    learner.grown(n_features=learner.n_features + 1, n_classes=learner.n_classes + 1)


def _use_evidence(evidence):
    evidence.lower_bound()
    if evidence.n_features > 100:
        return
    evidence.value(np.zeros((evidence.n_classes, evidence.n_features)))
    evidence.add(np.full((2, evidence.n_features), 0.5), [0, 1])
    (evidence + evidence).lower_bound()
    evidence.grown(n_features=evidence.n_features + 1).certificate(10.0)


def _use_agent(agent):
    x = np.full(agent.n_features, 0.25)
    for decision in agent.pending[:2]:
        agent.learn(decision, 1)
    agent.policy(x)
    for _ in range(3):
        agent.learn(agent.act(x), 1)
    if hasattr(agent, "regret_certificate"):
        agent.regret_certificate()


def _use_batch(predictor):
    predictor.predict(np.full((2, predictor.n_features), 0.25))
    predictor.guarantee(**{"X": np.zeros((1, D)), "B": 1.0} if hasattr(predictor, "lam") else {})


def _use_watcher(watcher):
    X, y = _rows(70)
    watcher.observe_many(X, y, np.full((70, K), 1.0 / K))
    watcher.certificate()


def _use_monitor(monitor):
    monitor.observe_many(np.full(200, 0.5))
    monitor.state()


def _use_scaler(scaler):
    scaler.transform(np.zeros((2, scaler.n_features)))
    scaler.learn_transform(np.ones((3, scaler.n_features)))
    scaler.line()


def _use_model(model):
    repr(model)
    of_arrays = model.encoder is not None and model.encoder.is_matrix
    rows = [[0.5] * D] * 3 if of_arrays else [{"size": 1.0, "colour": "red", "said": "word1"}] * 3
    if of_arrays:
        model.predict_proba(np.array(rows))
    else:
        model.predict_one(rows[0])
        model.learn_one(rows[0], "cat")
    labels = model.labels[:2] or ["cat", "dog"]
    model.learn_many(rows, [*labels, labels[0]])
    model.certificate()
    for look in (model.windows, model.explain, model.report):
        look()


def _use_decisions(model):
    repr(model)
    for decision in model.pending[:2]:
        model.reward(decision, 1)
    for _ in range(3):
        model.reward(model.decide({"size": 1.0, "colour": "red"}), 1)
    model.expected_rewards({"size": 1.0})
    model.expire(model.decide({}))
    model.regret_certificate()


_STEPS = {
    folklearn.Learner: _use_learner,
    folklearn.Evidence: _use_evidence,
    folklearn.LinearEvidence: _use_evidence,
    bandits.Agent: _use_agent,
    batch.OnlineToBatch: _use_batch,
    folklearn.Certifier: _use_watcher,
    evaluate.Monitor: _use_monitor,
    folklearn.OnlineScaler: _use_scaler,
    folklearn.Model: _use_model,
    folklearn.DecisionModel: _use_decisions,
}


def kinds_within(entry):
    """Yield the kinds of the objects of a configuration."""
    if isinstance(entry, dict) and {"kind", "config"} <= entry.keys():
        yield entry["kind"]
    for value in entry.values() if isinstance(entry, dict) else entry:
        if isinstance(value, dict | list):
            yield from kinds_within(value)


def registered():
    """Return the names of all classes that save themselves."""
    found = {name: registry.find(name) for name in registry.HOMES}
    return {
        name
        for name, kind in found.items()
        if isinstance(kind, type)
        and issubclass(kind, Serializable)
        and not getattr(kind, "__abstractmethods__", None)
    }
