"""A saved agent goes on exactly, with pending decisions and generator; a damaged one is refused."""

import copy
import functools
import math

import numpy as np
import pytest

import folklearn
from folklearn import serialization
from folklearn.bandits import BanditReduction
from folklearn.errors import StateFileError
from folklearn.serialization import Record
from tests.bandits.forced import state
from tests.bandits.registered import AGENTS, contexts, every_agent

D, K = 3, 4


def busy(make, **keywords):
    """An agent in mid-stream: 5 of 45 decisions wait, reported out of order."""
    agent = make.trained(D, K, **keywords)
    rng = np.random.default_rng(1)
    waiting = [agent.act(x) for x in contexts(rng, 9, D)]
    for t in (7, 2, 4, 0):
        agent.learn(waiting[t], t % 2 == 0)
    return agent


def go_on(agent, rng):
    """Report what waits among new rounds; return the actions and propensities."""
    played = []
    waiting = list(agent.pending)[::-1]
    for t, x in enumerate(contexts(rng, 25, D)):
        decision = agent.act(x)
        played.append((decision.id, decision.action, decision.propensity))
        waiting.append(decision)
        agent.learn(waiting.pop(int(rng.integers(len(waiting)))), t % 3 != 0)
    return played


def resume(agent, seed, tmp_path):
    path, again = tmp_path / "agent.safetensors", tmp_path / "again.safetensors"
    agent.save(path)
    resumed = folklearn.load(path)
    assert type(resumed) is type(agent)
    assert state(resumed) == state(agent)
    resumed.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert repr(resumed.pending) == repr(agent.pending)
    assert len(agent.pending) == 5
    assert all(not decision.x.flags.writeable for decision in resumed.pending)
    expected = go_on(agent, np.random.default_rng(seed))
    assert go_on(resumed, np.random.default_rng(seed)) == expected
    agent.save(path)
    resumed.save(again)
    assert again.read_bytes() == path.read_bytes()


@every_agent
def test_resuming_equals_never_stopping(make, seed, tmp_path):
    resume(busy(make, seed=seed), seed, tmp_path)


@pytest.mark.parametrize("name", ["banditron", "obama", "reduction, aggregating"])
@pytest.mark.parametrize("bits", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_generator_is_resumed(name, bits, seed, tmp_path):
    rng = np.random.Generator(getattr(np.random, bits)(seed))
    resume(busy(AGENTS[name], seed=rng), seed, tmp_path)


@every_agent
def test_saving_changes_nothing(make, tmp_path):
    agent, other = busy(make), busy(make)
    agent.save(tmp_path / "agent")
    rngs = [np.random.default_rng(2) for _ in range(2)]
    assert go_on(agent, rngs[0]) == go_on(other, rngs[1])
    assert state(agent) == state(other)


@every_agent
def test_a_decision_of_the_saved_agent_is_known_to_the_resumed_one(make, tmp_path):
    agent = busy(make)
    agent.save(tmp_path / "agent")
    resumed = folklearn.load(tmp_path / "agent")
    for decision in agent.pending:
        resumed.learn(decision, True)
        agent.learn(decision, True)
    assert state(resumed) == state(agent)


@every_agent
def test_a_record_holds_no_live_arrays(make):
    agent = busy(make)
    record, before = agent.to_record(), state(agent)
    for name, array in record.arrays.items():
        if not name.startswith("learner."):
            array[...] = 0
    assert state(agent) == before


def damaged(record, name, value):
    """A copy of the record with an array or a word of the configuration changed."""
    config, arrays = copy.deepcopy(record.config), dict(record.arrays)
    place = arrays if name in arrays else config
    assert name in place
    if value is DROP:
        del place[name]
    else:
        place[name] = value(copy.deepcopy(place[name])) if callable(value) else value
    return Record(record.kind, config, arrays)


DROP = object()


def put(index, value):
    def change(array):
        array[index] = value
        return array

    return change


DAMAGES = {
    "a count of the wrong kind": ("n_decisions", [1, 2, 3]),
    "no count of decisions": ("n_decisions", DROP),
    "no count of outcomes": ("n_outcomes", DROP),
    "no count of the dropped": ("n_dropped", DROP),
    "a negative count": ("n_outcomes", -1),
    "a broken count": ("n_decisions", 49.5),
    "counts that do not add up": ("n_outcomes", lambda n: n + 1),
    "fewer decisions than ids": ("n_decisions", 3),
    "no generator": ("generator", DROP),
    "an unknown generator": ("generator", lambda s: s | {"bit_generator": "Dice"}),
    "a generator without state": ("generator", lambda s: {"bit_generator": s["bit_generator"]}),
    "a generator of the wrong kind": ("generator", 7),
    "no max_pending": ("max_pending", DROP),
    "a bad max_pending": ("max_pending", 0),
    "max_pending below what waits": ("max_pending", 2),
    "no exploration": ("exploration", DROP),
    "a bad exploration": ("exploration", 1.5),
    "no ids": ("pending.id", DROP),
    "no actions": ("pending.action", DROP),
    "no propensities": ("pending.propensity", DROP),
    "no contexts": ("pending.x", DROP),
    "nothing seen": ("pending.seen", DROP),
    "too few ids": ("pending.id", lambda a: a[:-1]),
    "too few actions": ("pending.action", lambda a: a[:-1]),
    "too few propensities": ("pending.propensity", lambda a: a[:-1]),
    "too few contexts": ("pending.x", lambda a: a[:-1]),
    "too little seen": ("pending.seen", lambda a: a[:-1]),
    "an id twice": ("pending.id", lambda a: put(1, a[0])(a)),
    "ids out of order": ("pending.id", lambda a: a[::-1]),
    "a negative id": ("pending.id", put(0, -1)),
    "an id of the future": ("pending.id", put(-1, 10**6)),
    "broken ids": ("pending.id", lambda a: a + 0.5),
    "an action too large": ("pending.action", put(0, K)),
    "a negative action": ("pending.action", put(0, -1)),
    "broken actions": ("pending.action", lambda a: a + 0.5),
    "a propensity of 0": ("pending.propensity", put(0, 0.0)),
    "a negative propensity": ("pending.propensity", put(0, -0.5)),
    "a propensity above 1": ("pending.propensity", put(0, 1.5)),
    "a propensity that is no number": ("pending.propensity", put(0, math.nan)),
    "propensities of the wrong shape": ("pending.propensity", lambda a: a[:, None]),
    "a context that is no number": ("pending.x", put((0, 0), math.nan)),
    "contexts too wide": ("pending.x", lambda a: np.hstack([a, a])),
    "contexts flattened": ("pending.x", lambda a: a[:, 0]),
    "too much seen": ("pending.seen", lambda a: np.hstack([a, a])),
    "seen in columns": ("pending.seen", lambda a: a[:, None].copy()),
    "seen that is no number": ("pending.seen", put(0, math.nan)),
    "seen of the wrong type": ("pending.seen", lambda a: a.astype(np.float32)),
}


# One agent of each class: they read their pending decisions alike.
CLASSES = {type(make(D, K)).__name__: make for make in AGENTS.values()}


@functools.cache
def record_of(kind):
    return busy(CLASSES[kind]).to_record()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused(kind, damage, tmp_path):
    name, value = DAMAGES[damage]
    serialization.write(tmp_path / "agent", damaged(record_of(kind), name, value))
    with pytest.raises(StateFileError, match="agent cannot be loaded: .{10}"):
        folklearn.load(tmp_path / "agent")


@every_agent
def test_every_word_is_needed(make):
    agent = busy(make)
    record = agent.to_record()
    for word in type(agent).PARAMS:
        with pytest.raises(StateFileError, match=word):
            type(agent).from_record(damaged(record, word, DROP))


@every_agent
def test_every_part_is_needed_in_its_shape_and_type(make):
    agent = busy(make)
    record = agent.to_record()
    for part, array in record.arrays.items():
        if part.startswith("pending."):
            continue
        wrong = [DROP]
        if part in type(agent).ARRAYS:  # a learner reads its own parts
            wrong += [array[None], array[:-1], array.astype(np.float32)]
        for value in wrong:
            with pytest.raises(StateFileError, match="needs|incomplete"):
                type(agent).from_record(damaged(record, part, value))


@every_agent
def test_a_part_that_is_no_number_is_refused(make):
    agent = busy(make)
    record = agent.to_record()
    for part in type(agent).ARRAYS:
        broken = record.arrays[part].copy()
        broken.flat[0] = math.nan
        with pytest.raises(StateFileError):
            type(agent).from_record(damaged(record, part, broken))


@pytest.mark.parametrize("entry", [None, 3, {}, {"kind": "Unheard", "config": {}}])
def test_a_reduction_needs_its_learner(entry):
    record = AGENTS["reduction, ogd"](D, K).to_record()
    with pytest.raises(StateFileError):
        BanditReduction.from_record(damaged(record, "learner", entry))


def test_a_learner_of_another_size_does_not_fit_what_waits():
    """Contexts (D,) wait, and the learner now takes D + 1 features."""
    record = busy(AGENTS["reduction, ogd"]).to_record()
    other = AGENTS["reduction, ogd"](D + 1, K).to_record()
    arrays = record.arrays | {k: v for k, v in other.arrays.items() if k.startswith("learner.")}
    mixed = Record(record.kind, record.config | {"learner": other.config["learner"]}, arrays)
    with pytest.raises(StateFileError):
        BanditReduction.from_record(mixed)
