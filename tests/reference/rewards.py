"""Agents of rewards by their definitions: dense regressions, and maxima found by search."""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from folklearn.model.model import Model

from .dense_folklore import DenseFolklore
from .loss import Array


def probabilities(rule: str, losses: Array, gamma: float) -> Array:
    """The mixture that a rule plays, one action after the other."""
    K = len(losses)
    best = min(range(K), key=lambda a: losses[a])
    gaps = [loss - losses[best] for loss in losses]
    shares = {
        "squarecb": lambda gap: 1 / (K + gamma * gap),
        "fastcb": lambda gap: losses[best] / (K * losses[best] + gamma * gap) if gap else 1 / K,
    }
    P = np.array([0.0 if a == best else shares[rule](gaps[a]) for a in range(K)])
    P[best] = 1 - P.sum()
    return P


def divergence(q: Array | float, f: Array | float) -> Array:
    """KL of two coins, the true one first."""
    q, f = np.asarray(q), np.asarray(f)
    return xlogy(q, q) - xlogy(q, f) + xlogy(1 - q, 1 - q) - xlogy(1 - q, 1 - f)


def regret_beyond(P: Array, losses: Array, eta: float, truth: Array) -> float:
    """Regret of a round in a world of these true losses, minus eta times its excess log loss."""
    return float(P @ truth - truth.min() - eta * P @ divergence(truth, losses))


def most_regret(P: Array, losses: Array, eta: float) -> float:
    """The worst world, found action by action: each true loss matters in one concave term."""

    def most(slope: float, weight: float, loss: float) -> float:
        found = minimize_scalar(
            lambda q: weight * float(divergence(q, loss)) - slope * q,
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-12},
        )
        return -found.fun

    played = [most(P[a], eta * P[a], losses[a]) for a in range(len(P))]
    return max(
        sum(played) - played[best] + most(P[best] - 1, eta * P[best], losses[best])
        for best in range(len(P))
    )


class DenseRewards:
    """K dense FOLKLOREs of two classes, played by a rule at gamma = strength sqrt(K t)."""

    def __init__(
        self, n_features: int, n_actions: int, B: float, rule: str, strength: float, price: float
    ) -> None:
        self.regressions = [DenseFolklore(n_features, 2, B, 2 / B) for _ in range(n_actions)]
        self.rule, self.strength, self.price = rule, strength, price
        self.explored, self.eta, self.t = 0.0, 0.0, 0

    def losses(self, x: Array) -> Array:
        return np.array([one.predict(x)[0] for one in self.regressions])

    @property
    def gamma(self) -> float:
        return self.strength * float(np.sqrt(len(self.regressions) * (self.t + 1)))

    def probabilities(self, x: Array) -> Array:
        return probabilities(self.rule, self.losses(x), self.gamma)

    def act(self, x: Array) -> tuple[Array, float]:
        """What is kept with a decision: the expected losses, and gamma."""
        seen = self.losses(x), self.gamma
        self.t += 1
        return seen

    def learn(self, x: Array, action: int, seen: tuple[Array, float], reward: float) -> None:
        losses, gamma = seen
        eta = self.price * gamma
        self.explored += most_regret(probabilities(self.rule, losses, gamma), losses, eta)
        self.eta = max(self.eta, eta)
        self.regressions[action].update(x, [1 - reward, reward])

    def bound(self) -> float:
        nats = sum(one.lam * 2 * one.B**2 + one.certificate_sum for one in self.regressions)
        return self.explored + self.eta * nats


class PlainDecisions:
    """A plain `Model` of the reward for each action, or for "all", rows as they come."""

    def __init__(self, strength: float, key=lambda row, action: action) -> None:
        self.models, self.strength, self.key, self.t = {}, strength, key, 0

    def losses(self, rows: dict) -> Array:
        """Return what each action is expected to miss: half where nothing was learned."""
        models = [self.models.get(self.key(row, action)) for action, row in rows.items()]
        return np.array(
            [
                0.5 if m is None else m.predict_proba_one(row)[0]
                for m, row in zip(models, rows.values(), strict=True)
            ]
        )

    def probabilities(self, rows: dict) -> Array:
        gamma = self.strength * np.sqrt(len(rows) * (self.t + 1))
        return probabilities("fastcb", self.losses(rows), gamma)

    def learn(self, row: dict, action: str, reward: float) -> None:
        key = self.key(row, action)
        if key not in self.models:
            self.models[key] = Model(classes=[0, 1], roles={"action": "ignored"}, worst_case=False)
        soft = {0: 1.0 - reward, 1: reward}
        self.models[key].learn_one(row, int(reward) if reward in (0, 1) else soft)
