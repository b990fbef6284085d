"""`SparseSgd` straight from its definition: dense models, dictionaries, no table, no kernels."""

import numpy as np

from tests.reference.class_blocks import least_of_planes

# kind, rate, offset; see `SparseSgd`
EXPERTS = (
    ("dual", 1.5, 1.0),
    ("constant", 1.0, 0.0),
    ("root", 1.0, 0.1),
    ("root", 2.0, 0.1),
    ("root", 4.0, 0.1),
    ("root", 8.0, 0.1),
    ("whole", 8.0, 1.0),
    ("whole", 16.0, 1.0),
)
# of `StackedSgd`, with what they see: all values, the words alone, or the words on top of a base
STACKED = (
    *((*expert, "all") for expert in EXPERTS[:2]),
    ("constant", 0.0, 0.0, "top"),
    *((*expert, "all") for expert in EXPERTS[2:]),
    ("dual", 1.5, 1.0, "words"),
    ("constant", 1.0, 0.0, "words"),
    ("root", 2.0, 0.1, "words"),
    ("root", 8.0, 0.1, "words"),
    ("whole", 16.0, 1.0, "words"),
    ("dual", 1.5, 1.0, "top"),
    ("constant", 0.25, 0.0, "top"),
    ("constant", 1.0, 0.0, "top"),
    ("root", 1.0, 0.1, "top"),
    ("root", 4.0, 0.1, "top"),
    ("whole", 32.0, 1.0, "top"),
)


class Expert:
    def __init__(self, d, K, R, kind, rate, offset, view="all"):
        self.view = view
        self.kind, self.offset = kind, offset * R**2
        self.rate = rate / {"whole": 1.0, "constant": R**2}.get(kind, R)
        self.W, self.G, self.h = np.zeros((K, d)), np.zeros((K, d)), np.zeros(d)
        self.loss, self.recent, self.constant = 0.0, 0.0, 0.0

    def sees(self, x, words):
        return x if self.view == "all" else words

    def predict(self, x, words, base):
        z = self.W @ self.sees(x, words) + (base if self.view == "top" else 0.0)
        p = np.exp(z - z.max())
        return p / p.sum()

    def learn(self, x, y, w, words, base):
        p = self.predict(x, words, base)
        x = self.sees(x, words)
        loss = -w * float(y @ np.log(p))
        self.loss += loss
        self.recent += loss
        self.constant -= w * float(p @ np.log(p))
        gradient = w * np.outer(p - y, x)
        self.G += gradient
        self.h += w * x**2 * ((p - y) ** 2).sum()
        divisor = self.offset + self.h
        if self.kind == "dual":
            self.W = -self.rate * self.G / np.sqrt(divisor)
        elif self.kind == "constant":
            self.W = self.W - self.rate * gradient
        else:
            power = {"root": 0.5, "whole": 1.0}[self.kind]
            self.W = self.W - self.rate * gradient / divisor**power
        return loss


class SparseSgd:
    def __init__(self, d, K, R=1.0, max_weight=1.0, first_review=1024, experts=EXPERTS, kept=2):
        self.experts, self.kept = [Expert(d, K, R, *expert) for expert in experts], kept
        self.weights = np.full(len(self.experts), 1.0 / len(self.experts))
        self.max_weight, self.first_review = max_weight, first_review
        self.n, self.n_weighed, self.loss = 0, 0, 0.0

    def predict(self, x, *view):
        view = view or (None, None)
        return self.weights @ np.array([expert.predict(x, *view) for expert in self.experts])

    def learn(self, x, y, w=1.0, *view):
        view = view or (None, None)
        w = w / self.max_weight
        self.n += 1
        if w > 0.0:
            self.loss -= w * float(y @ np.log(self.predict(x, *view))) * self.max_weight
            losses = np.array([expert.learn(x, y, w, *view) for expert in self.experts])
            self.n_weighed += 1
            share = 1.0 / (self.n_weighed + 1)
            posterior = self.weights * np.exp(-losses)
            self.weights = (1 - share) * posterior / posterior.sum() + share / len(losses)
        if self.n >= self.first_review and self.n.bit_count() == 1:
            self.review()

    def review(self):
        best = min(expert.recent for expert in self.experts)
        stays = [
            place < self.kept or expert.recent <= best + 20.0 or expert.recent <= 1.1 * best
            for place, expert in enumerate(self.experts)
        ]
        for expert in self.experts:
            expert.recent = 0.0
        self.experts = [one for one, stay in zip(self.experts, stays, strict=True) if stay]
        self.weights = self.weights[stays] / self.weights[stays].sum()

    def floor(self):
        """What the planes say no model goes below, its penalty (C = 1) counted."""
        first, unit = self.experts[0], self.max_weight
        tau = 2.0 if len(first.G) == 2 else 1.0
        return least_of_planes(unit * first.constant, 0.5 * unit**2 * (first.G**2).sum() / tau)
