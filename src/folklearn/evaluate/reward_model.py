"""What an action would have earned, modelled from a log."""

from typing import Any

import numpy as np

from folklearn import validation
from folklearn.arrays import Array
from folklearn.evaluate.interactions import Interactions
from folklearn.learners.folklore import Folklore

_UNKNOWN = 0.5  # before the first reward


class RewardModel:
    """Rewards as probabilities: a `Folklore` per action, or one over the features of actions.

    Contexts are standardised, and a constant is added. What was never played is expected to earn
    what all that was learned earned on average.

    Parameters
    ----------
    like : a log of decisions as they will come, whose contexts say how to standardise; nothing
        else of it is used.
    """

    def __init__(self, like: Interactions) -> None:
        self.n_actions = like.n_actions
        empty = not len(like.X)
        self._mean = np.zeros(like.X.shape[1]) if empty else like.X.mean(axis=0)
        spread = np.zeros(like.X.shape[1]) if empty else like.X.std(axis=0)
        # A column that is constant but for rounding must not be blown up.
        self._scale = np.where(spread > 1e-9 * (1.0 + np.abs(self._mean)), spread, 1.0)
        self._models: dict[int, Folklore] = {}
        self._total, self._count = 0.0, 0

    def learn(self, log: Interactions) -> None:
        """Learn what was played and what it earned."""
        shared = self.n_actions is None
        Z = self._standardised(log.X[log.pairs] if shared else log.X)
        who = np.zeros(log.n_rounds, np.int64) if shared else log.actions
        soft = np.column_stack([1.0 - log.rewards, log.rewards])
        for k in np.unique(who).tolist():
            if k not in self._models:
                self._models[k] = Folklore(n_features=Z.shape[1], n_classes=2)
            self._models[k].run(Z[who == k], soft[who == k])
        self._total += float(log.rewards.sum())
        self._count += log.n_rounds

    def expected(self, X: Array) -> Array:
        """Return the expected rewards: (T, K) of contexts (T, d), or (m,) of actions (m, d)."""
        Z = self._standardised(X)
        n_models = 1 if self.n_actions is None else self.n_actions
        q = np.full((len(X), n_models), self._total / self._count if self._count else _UNKNOWN)
        for k, model in self._models.items():
            q[:, k] = model.predict(Z)[:, 1]
        return q[:, 0] if self.n_actions is None else q

    def _standardised(self, X: Array) -> Array:
        return np.column_stack([(X - self._mean) / self._scale, np.ones(len(X))])


def reward_model(log: Interactions, *, n_blocks: int = 10) -> Array:
    """Return q (T, K), what each action would have earned as a model expects it.

    Of a log with features of actions, one number per pair of a decision and an action, (N,).

    The log is cut into consecutive blocks, and a block is predicted from the earlier ones only.
    So q_t is known before action t is drawn, and the mean of the doubly robust term over that
    draw is exactly the policy's value in round t, even if the agent adapted to everything before.
    A model that saw later rounds would depend on action t, through the agent that learned from
    it, and bias the estimate. (Contexts are standardised by all of them: they are taken not to
    depend on actions.)

    One binary `Folklore` per action, on the contexts and a constant, learns the rounds in which
    that action was played; with features of actions there is one for all. An action that has not
    been played yet is expected to earn what the others did, 0.5 in the first block: any constant
    is unbiased.

    Examples
    --------
    >>> from folklearn import interact
    >>> from folklearn.baselines import Banditron
    >>> from folklearn import synthetic
    >>> X, y = synthetic.separable(0, 2000, d=3, K=2)
    >>> q = reward_model(interact(Banditron(n_features=3, n_classes=2, exploration=0.2), X, y))
    >>> q[0].tolist(), bool((q[200:].argmax(axis=1) == y[200:]).mean() > 0.9)
    ([0.5, 0.5], True)
    """
    model = RewardModel(log)
    parts: list[Any] = [np.empty((0,) if log.n_actions is None else (0, log.n_actions))]
    for start, stop in log.blocks(validation.count("n_blocks", n_blocks, 1)):
        block = log[start:stop]
        parts.append(model.expected(block.X))
        model.learn(block)
    return np.concatenate(parts)
