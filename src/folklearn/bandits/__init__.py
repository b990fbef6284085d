"""Agents for bandit feedback: act, and learn the outcome of that action only."""

from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.reduction import BanditReduction
from folklearn.bandits.rewards import RegretCertificate, RewardAgent, auto

__all__ = [
    "Agent", "BanditReduction", "Decision", "RegretCertificate", "RewardAgent", "auto",
]  # fmt: skip
