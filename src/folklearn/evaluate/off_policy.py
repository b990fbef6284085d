"""Off-policy evaluation: the value of a policy, estimated from the log of an agent."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from folklearn import validation
from folklearn.arrays import Array
from folklearn.errors import InvalidInputError
from folklearn.evaluate.interactions import Interactions
from folklearn.evaluate.policies import (
    LearnedPolicy,
    probabilities,
    probabilities_while_learning,
    reward_model,
)

IPS = "ips"
SNIPS = "snips"
DR = "dr"
METHODS = (IPS, SNIPS, DR)

NORMAL = "normal"
BERNSTEIN = "bernstein"
INTERVALS = (NORMAL, BERNSTEIN)

_MIN_PROPENSITY = 1e-100  # squares of the weights stay finite


@dataclass(frozen=True)
class Estimate:
    """The estimated mean reward of a policy, and how far to trust it.

    Attributes
    ----------
    value : the estimate. It is not clipped, since that would bias it: IPS and DR may fall
        outside 0..1, and outside of the interval.
    low, high : confidence interval, clipped to 0..1, where the truth is, and all of 0..1 if
        it lies outside.
    std_error : standard error of the value.
    effective_size : Kish's :math:`(\\sum w)^2 / \\sum w^2` of the importance weights: how
        many rounds played by the policy itself the log is worth. Below some 30, or a small
        part of the rounds, a few outcomes decide, and the normal interval is too short.
    n_rounds : number of rounds in the log.
    method, interval, confidence : how it was made.
    """

    value: float
    low: float
    high: float
    std_error: float
    effective_size: float
    n_rounds: int
    method: str
    interval: str
    confidence: float


def off_policy(
    log: Interactions,
    policy: Any,
    *,
    method: str = DR,
    rewards: ArrayLike | None = None,
    confidence: float = 0.95,
    interval: str = NORMAL,
    least_propensity: float | None = None,
) -> Estimate:
    r"""Estimate what a policy would have earned on average in the rounds of a log.

    With the policy's probabilities :math:`\pi_t` in round t, the action :math:`a_t` that was
    played, its propensity :math:`p_t` and reward :math:`r_t`, the weight is
    :math:`w_t = \pi_t(a_t) / p_t`, and the value

    * ``"ips"``, inverse propensity scores: the mean of :math:`w_t r_t`. Unbiased.
    * ``"snips"``, self-normalised: :math:`\sum w_t r_t / \sum w_t`. Biased by O(1/T), within
      0..1, and 1 minus itself if rewards are. Often far less variable.
    * ``"dr"``, doubly robust: the mean of :math:`\sum_k \pi_t(k) q_t(k) + w_t (r_t -
      q_t(a_t))` with a model q of what an action earns. Unbiased whatever q is, and the less
      variable the better q is.

    Unbiased means over the draws of the actions, also if the agent learned as it went, and
    supposes that: the propensities are those of the draws; every action that the policy plays
    could have been drawn, which no log can show; and the policy was *not learned from this
    log*, or it is judged by what it was fitted to: for that there is `LearnedPolicy`, which judges
    every part of a policy's life by later rounds. Look at `Estimate.effective_size` first.

    The interval ``"normal"`` is asymptotic, by the delta method for SNIPS, with the standard
    error enlarged by what a single outcome can change, 1 / `Estimate.effective_size`. It is for the
    expected value over contexts like those of the log, hence cautious about the value on
    these very contexts; with an agent that goes on learning, its propensities should not
    vanish. ``"bernstein"`` holds for every number of rounds if they are independent: a
    logging policy that does not learn, and rewards that were not learned from the log. With
    M = 1 / `least_propensity` the terms of IPS lie in 0..M and those of DR in 1-M..M; with V
    their sample variance and :math:`1 - \delta` the confidence, the half width is

    .. math:: \sqrt{2 V \ln(4/\delta) / T} + \text{range} \cdot 7 \ln(4/\delta) / (3(T - 1))

    Time O(T K) and that of the policy; the default rewards take T rounds of a binary
    `Folklore`.

    Parameters
    ----------
    log : what an agent did (`interact`), or logged data of any origin.
    policy : action probabilities (T, K); or what makes them from the contexts (T, d): an agent,
        by its `policy`; a learner, by its `predict`, played by sampling; a function. If actions
        have features, probabilities (m,) of each decision, or what makes them from its rows
        (m, d). Or `LearnedPolicy`, which is learned from the log itself.
    method : ``"ips"``, ``"snips"`` or ``"dr"``.
    rewards : q (T, K) between 0 and 1, for DR only, such as the predictions of a learner
        trained elsewhere; if actions have features, q (N,) of all of them, one decision after
        the other. What is for round t must not depend on action t, nor on what came of it. By
        default `reward_model(log)`.
    confidence : above 0 and below 1.
    interval : ``"normal"`` or ``"bernstein"``.
    least_propensity : the least with which any action *could* be played, for the Bernstein
        interval only; an agent's exploration divided by K. By default the least in the log,
        which is only proven if nothing less was possible.

    Examples
    --------
    Log one agent on a labelled stream, and ask what another policy would have got:

    >>> import numpy as np
    >>> from folklearn import Folklore, interact, off_policy
    >>> from folklearn.bandits import BanditReduction
    >>> from folklearn import synthetic
    >>> X, y = synthetic.stochastic(0, 3000, d=3, K=3, B=10.0)
    >>> other = Folklore(n_features=3, n_classes=3)
    >>> P = other.run(X[:1000], y[:1000])
    >>> agent = BanditReduction(Folklore(n_features=3, n_classes=3), exploration=0.2)
    >>> log = interact(agent, X[1000:], y[1000:])
    >>> estimate = off_policy(log, other)
    >>> truth = np.mean(other.predict(X[1000:])[np.arange(2000), y[1000:]])
    >>> bool(estimate.low < truth < estimate.high)
    True
    >>> bool(estimate.std_error < off_policy(log, other, method="ips").std_error)
    True

    References
    ----------
    Horvitz and Thompson (1952), "A Generalization of Sampling Without Replacement From a
    Finite Universe", for IPS. Swaminathan and Joachims (2015), "The Self-Normalized Estimator
    for Counterfactual Learning", for SNIPS. Dudík, Langford and Li (2011), "Doubly Robust
    Policy Evaluation and Learning", for DR. Maurer and Pontil (2009), "Empirical Bernstein
    Bounds and Sample Variance Penalization", Theorem 4, once for either side; of its proof
    only independence is needed, since unequal means enlarge the sample variance.
    """
    validation.choice("method", method, METHODS)
    validation.choice("interval", interval, INTERVALS)
    confidence = validation.probability("confidence", confidence)
    is_learned = isinstance(policy, LearnedPolicy)
    _check_length(log, 3 if is_learned else 2)
    if rewards is not None and method != DR:
        raise InvalidInputError(f'rewards are for method="dr", not for {method!r}')
    if least_propensity is not None and interval != BERNSTEIN:
        raise InvalidInputError(f'least_propensity is for interval="bernstein", not {interval!r}')
    if interval == BERNSTEIN:
        _check_dependence(method, rewards is not None, is_learned)
    least = _least_propensity(float(log.propensities.min()), least_propensity)
    q = _modelled_rewards(log, rewards) if method == DR else None
    if isinstance(policy, LearnedPolicy):
        first, P = probabilities_while_learning(log, policy)
        log, q = log[first:], None if q is None else q[log.offsets[first] :]
    else:
        P = probabilities(log, policy)
    w = P[log.pairs] / log.propensities
    if not w.any():
        raise InvalidInputError(
            "the policy gives no probability to any action of the log, which therefore says "
            "nothing about it"
        )
    if method == SNIPS:
        value, std_error = _ratio_of_means(w, log.rewards)
    else:
        terms = w * log.rewards
        if q is not None:
            terms = log.sums(P * q) + w * (log.rewards - q[log.pairs])
        value, std_error = float(terms.mean()), _standard_error(terms)
    effective_size = _kish(w)
    if interval == NORMAL:
        half = _normal_half_width(std_error, effective_size, confidence)
    else:
        # From r = 1 and q = 1 elsewhere a doubly robust term is at most 1 + pi (1 - q) (M - 1),
        # from r = 0 and q = 0 elsewhere at least -pi q (M - 1), M = 1 / least.
        width = 1.0 / least if method == IPS else 2.0 / least - 1.0
        half = _bernstein_half_width(std_error, width, log.n_rounds, confidence)
    low, high = _clipped_interval(value, half)
    return Estimate(
        value, low, high, std_error, effective_size, log.n_rounds, method, interval, confidence
    )


def logged_value(log: Interactions, *, confidence: float = 0.95) -> Estimate:
    """Return what the policy that made a log earned, with the normal interval of `off_policy`.

    Examples
    --------
    >>> log = Interactions([[1.0]] * 4, [0, 1, 1, 0], [0.5] * 4, [1.0, 0.5, 0.0, 0.5], 2)
    >>> estimate = logged_value(log)
    >>> estimate.value, estimate.effective_size
    (0.5, 4.0)
    """
    _check_length(log, 2)
    confidence = validation.probability("confidence", confidence)
    value, std_error, size = log.mean_reward, _standard_error(log.rewards), float(log.n_rounds)
    low, high = _clipped_interval(value, _normal_half_width(std_error, size, confidence))
    return Estimate(value, low, high, std_error, size, log.n_rounds, "mean", NORMAL, confidence)


def _check_length(log: Interactions, least: int) -> None:
    if log.n_rounds < least:
        raise InvalidInputError(
            f"an interval needs at least {least} rounds; the log has {log.n_rounds}"
        )


def _ratio_of_means(w: Array, rewards: Array) -> tuple[float, float]:
    """Return the mean of rewards weighted by w, and its standard error by the delta method.

    A ratio of means deviates like the mean of w (r - value) / E w.
    """
    T, total = len(w), float(w.sum())
    value = float(w @ rewards) / total
    return value, math.sqrt(T / (T - 1) * float(np.sum((w * (rewards - value)) ** 2))) / total


def _standard_error(terms: Array) -> float:
    return float(terms.std(ddof=1)) / math.sqrt(len(terms))


def _clipped_interval(value: float, half: float) -> tuple[float, float]:
    low, high = max(value - half, 0.0), min(value + half, 1.0)
    return (low, high) if low <= high else (0.0, 1.0)  # all of it outside: it says nothing


def _normal_half_width(std_error: float, effective_size: float, confidence: float) -> float:
    # What one more outcome could change: without it, equal outcomes would look like certainty.
    enlarged = math.hypot(std_error, 1.0 / effective_size)
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence) * enlarged


def _modelled_rewards(log: Interactions, rewards: ArrayLike | None) -> Array:
    """Return the modelled reward of every pair of a decision and an action, (N,)."""
    if rewards is None:
        return reward_model(log).ravel()
    q = validation.numbers("rewards", rewards)
    expected = (log.offsets[-1],) if log.n_actions is None else (log.n_rounds, log.n_actions)
    if q.shape != expected:
        raise InvalidInputError(
            f"rewards has shape {q.shape}; expected what each action is expected to earn: "
            f"{expected}"
        )
    bad = np.argwhere(~((q >= 0.0) & (q <= 1.0)))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise InvalidInputError(
            f"rewards{list(index)} is {q[index]:g}; expected a number from 0 to 1"
        )
    return q.ravel()


def _check_dependence(method: str, rewards_given: bool, is_learned: bool) -> None:
    if is_learned:
        raise InvalidInputError(
            'interval="bernstein" needs independent rounds, and a policy learned from the log ties '
            'them together: use interval="normal"'
        )
    if method == SNIPS:
        raise InvalidInputError(
            'interval="bernstein" is for means of independent terms, and SNIPS is a ratio: '
            'use method="ips" or "dr", or interval="normal"'
        )
    if method == DR and not rewards_given:
        raise InvalidInputError(
            'interval="bernstein" needs independent rounds, and rewards learned from the log '
            'tie them together: pass rewards made without it, or use method="ips", or '
            'interval="normal"'
        )


def _least_propensity(logged: float, declared: float | None) -> float:
    if logged < _MIN_PROPENSITY:
        raise InvalidInputError(
            f"the log has a propensity of {logged:g}; below {_MIN_PROPENSITY:g} the weights "
            "overflow: no action of that probability is ever drawn"
        )
    if declared is None:
        return logged
    least = validation.probability("least_propensity", declared, certain=True)
    if least > logged:
        raise InvalidInputError(
            f"least_propensity is {least:g}, and the log has a propensity of {logged:g}"
        )
    return least


def _bernstein_half_width(std_error: float, width: float, T: int, confidence: float) -> float:
    """Return the half width of Maurer and Pontil's Theorem 4 for terms of a given range."""
    log_term = math.log(4.0 / (1.0 - confidence))
    return std_error * math.sqrt(2.0 * log_term) + width * 7.0 * log_term / (3.0 * (T - 1))


def _kish(w: Array) -> float:
    largest = float(w.max())
    if not largest > 0.0:
        return 0.0
    relative = w / largest  # so that no square overflows
    return float(relative.sum() ** 2 / np.sum(relative**2))
