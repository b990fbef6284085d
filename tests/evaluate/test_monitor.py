"""The monitor is its definition, and what its false-alarm rate rests on holds."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import folklearn
from folklearn.errors import InvalidInputError
from folklearn.evaluate import Monitor
from folklearn.evaluate import monitor as inside
from tests.reference import monitor as twin

LOOK = twin.LOOK


def stream(rng, *means, each=20 * LOOK):
    """Losses whose mean changes."""
    return np.concatenate([rng.exponential(mean, size=each) for mean in means])


def test_it_is_its_definition(rng):
    losses = stream(rng, 0.2, 1.0, 0.5, 3.0)
    for settings in ({}, {"alpha": 0.3, "rise": 0.5, "cap": 2.0}):
        monitor = Monitor(**settings)
        monitor.observe_many(losses)
        expected = twin.alarms(losses.tolist(), **settings)
        assert len(expected) >= 2
        np.testing.assert_allclose(monitor.alarms, expected, rtol=1e-12)


def test_the_bound_of_the_past_is_its_definition(rng):
    monitor, losses = Monitor(alpha=0.1, cap=3.0), stream(rng, 0.1, 2.0, 0.4, each=5 * LOOK)
    clipped = losses.clip(0.0, 3.0).tolist()
    for look, rows in enumerate(losses.reshape(-1, LOOK), 1):
        monitor.observe_many(rows)
        state, stop = monitor.state(), look * LOOK
        if state["since"] < stop:
            expected = twin.at_most(clipped, state["since"], stop, 0.1, 3.0)
            assert math.isclose(state["capped_at_most"], expected, rel_tol=1e-12)
    assert monitor.alarms  # so that the bound was asked for beginnings other than the first


def test_suspicions_are_those_of_the_definition(rng):
    """Which are kept, at which level, and with how much capital."""
    monitor, losses = Monitor(), rng.exponential(0.5, size=70 * LOOK)
    monitor.observe_many(losses)
    clipped, now = losses.clip(0.0, 4.0).tolist(), 69
    kept = [look for look in range(1, now + 1) if twin.is_kept(look, now)]
    table = monitor._suspicions
    assert table[inside._BEGINNING].tolist() == kept
    for look, column in zip(kept, table.T, strict=True):
        level = 1.01 * twin.at_most(clipped, 0, look * LOOK, 0.01, 4.0)
        own = twin.capital(clipped, look, level, 70 * LOOK)
        assert math.isclose(column[inside._LEVEL], level, rel_tol=1e-12)
        assert math.isclose(column[inside._CAPITAL :].sum(), own, rel_tol=1e-9)


# What the proof rests on.


def test_beginnings_share_one_alpha():
    shares = [inside._share(look) for look in range(100_000)]
    assert min(shares) > 0.0
    assert 0.9 < sum(shares) <= 1.0


def test_a_fair_bet_has_no_gain():
    """On losses of two values, whose mean is the level: the capital is a martingale."""
    for level, high in [(0.3, 4.0), (1.0, 1.5), (2.0, 4.0)]:
        p = level / high
        for bet in inside._BETS:
            mean = p * (1.0 + bet * (high / level - 1.0)) + (1.0 - p) * (1.0 - bet)
            assert math.isclose(mean, 1.0)


@given(
    mean=st.floats(0.0, 1.0),
    value=st.floats(0.0, 1.0),
    expected=st.floats(0.0, 1.0),
    place=st.integers(0, len(inside._RATES) - 1),
)
def test_the_past_is_a_supermartingale(mean, value, expected, place):
    """Lemma 1, in units of the cap, for losses of two values: `value` or 1 (or 0), of mean `mean`.

    E exp(rate (mean - x) - psi (x - expected)^2) is at most 1.
    """
    other = 1.0 if value <= mean else 0.0
    p = (mean - other) / (value - other) if value != other else 1.0
    rate, psi = inside._RATES[place], inside._PRICES[place]
    total = sum(
        q * math.exp(rate * (mean - x) - psi * (x - expected) ** 2)
        for q, x in ((p, value), (1.0 - p, other))
    )
    assert total <= 1.0 + 1e-12


def test_no_price_is_lower_than_it_must_be():
    """At the worst case, x = cap where 0 was expected, the lemma is an equality."""
    for rate, psi in zip(inside._RATES, inside._PRICES, strict=True):
        assert math.isclose(math.exp(-rate - psi), 1.0 - rate)


@pytest.mark.parametrize("draw", ["rare", "even", "falling"])
def test_false_alarms_are_as_rare_as_stated(rng, draw):
    """At alpha = 0.2, of 100 streams: more than 40 would be five standard deviations too many."""
    n_alarms = 0
    for _ in range(100):
        T = 60 * LOOK
        mean = np.full(T, 0.4) if draw != "falling" else 0.2 + 0.8 / np.sqrt(1.0 + np.arange(T))
        high = 2.0 if draw == "even" else 4.0
        losses = high * (rng.random(T) < mean / high)
        monitor = Monitor(alpha=0.2, rise=0.0)
        monitor.observe_many(losses)
        n_alarms += bool(monitor.alarms)
    assert n_alarms <= 40


def test_an_alarm_waits_for_all_of_the_capital():
    """Rows a little worse than the level: the capital grows by less than half in a look."""
    monitor, totals = Monitor(alpha=0.5), [0.0]
    monitor.observe_many(np.full(40 * LOOK, 0.5))
    worse = 1.01 * 1.01 * monitor.state()["capped_at_most"]
    while not monitor.alarms:
        totals.append(monitor._suspicions[inside._CAPITAL :].sum())
        monitor.observe_many(np.full(LOOK, worse))
        assert len(totals) < 100
    assert 0.6 * 2.0 / 0.5 < max(totals) < 2.0 / 0.5


def test_losses_that_rise_by_less_than_is_allowed_are_no_alarm(rng):
    losses = stream(rng, 0.5, 0.55, each=400 * LOOK)
    silent, strict = Monitor(rise=0.1), Monitor(rise=0.0)
    silent.observe_many(losses)
    strict.observe_many(losses)
    assert not silent.alarms
    assert strict.alarms


# How it is used.


def test_it_says_when_and_how_much(rng):
    heard = []
    monitor = Monitor(heard.append, start=1000)
    monitor.observe_many(stream(rng, 0.3, 1.2))
    (alarm,) = heard
    assert monitor.alarms == heard
    assert abs(alarm.since - 1000 - 20 * LOOK) <= 2 * LOOK
    assert alarm.since < alarm.row <= 1000 + 25 * LOOK
    assert 0.2 < alarm.before < 0.4 < 0.8 < alarm.now < 2.0
    assert alarm.in_words() == (
        f"After row {alarm.row}: the loss, capped at 4 a row, has risen from "
        f"{alarm.capped_before:.3f} to {alarm.capped_now:.3f}, since about row {alarm.since}; "
        f"uncapped, from {alarm.before:.3f} to {alarm.now:.3f}."
    )
    state = monitor.state()
    assert state["rows"] == 1000 + 40 * LOOK
    assert state["since"] == alarm.row
    assert state["alarms"] == 1
    assert 0.8 < state["capped_loss"] < state["capped_at_most"]
    assert state["capped_loss"] < state["loss"]


def test_an_alarm_says_so_where_the_uncapped_loss_has_fallen(rng):
    """Few losses of 30 become many small ones, as where an overconfident model is calibrated."""
    losses = np.where(rng.random(3000) < 0.05, 30.0, 0.01)
    monitor = Monitor()
    monitor.observe_many(losses)
    monitor.observe_many(rng.exponential(0.4, size=1000) + 0.05)
    (alarm,) = monitor.alarms
    before = losses[: alarm.since]
    assert alarm.before == pytest.approx(before.mean(), rel=0.02)
    assert alarm.capped_before == pytest.approx(before.clip(max=4.0).mean(), rel=0.05)
    assert alarm.capped_before < alarm.capped_now
    assert alarm.now < 0.5 * alarm.before
    words = alarm.in_words()
    assert f"capped at 4 a row, has risen from {alarm.capped_before:.3f}" in words
    assert f"uncapped, it has fallen from {alarm.before:.3f} to {alarm.now:.3f}" in words


def test_before_the_first_look_nothing_is_known():
    monitor = Monitor()
    monitor.observe(0.5)
    nothing = {"loss": None, "capped_loss": None, "capped_at_most": None, "alarms": 0}
    assert monitor.state() == {"rows": 1, "since": 0, **nothing}


def test_pieces_and_files_change_nothing(rng, tmp_path):
    losses = stream(rng, 0.2, 1.0, 0.3)
    whole, pieces = Monitor(), Monitor()
    whole.observe_many(losses)
    for loss in losses[:777].tolist():
        pieces.observe(loss)
    pieces.save(tmp_path / "m")
    pieces = folklearn.load(tmp_path / "m")
    for part in np.split(losses[777:], [0, 5, 1500, 1501]):
        pieces.observe_many(part)
    whole.save(tmp_path / "whole")
    pieces.save(tmp_path / "pieces")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()
    assert whole.alarms == folklearn.load(tmp_path / "whole").alarms != []


def test_a_copy_alerts_nobody():
    copy = pickle.loads(pickle.dumps(Monitor(lambda alarm: None, alpha=0.2)))
    assert copy.alert is None
    assert copy.alpha == 0.2


def test_an_alert_that_fails_loses_no_row(rng):
    def fail(alarm):
        raise RuntimeError("no line")

    losses = stream(rng, 0.2, 1.0, 0.3)
    failing, calm = Monitor(fail), Monitor()
    calm.observe_many(losses)
    with pytest.raises(RuntimeError, match="no line"):
        failing.observe_many(losses)
    assert failing.state() == calm.state()


def test_a_loss_may_be_infinite_but_must_be_a_number():
    monitor = Monitor()
    monitor.observe(math.inf)
    monitor.observe_many([math.inf] * LOOK)
    assert monitor.state()["capped_loss"] == monitor.cap
    assert monitor.state()["loss"] == math.inf
    for observe in (monitor.observe, lambda loss: monitor.observe_many([loss])):
        with pytest.raises(InvalidInputError, match="leave out rows without a label"):
            observe(math.nan)
    assert monitor.n_rows == LOOK + 1


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.0}, {"alpha": 1.5}, {"rise": -0.1}, {"cap": 0.0}, {"start": -1}]
)
def test_settings_are_checked(settings):
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        Monitor(**settings)
