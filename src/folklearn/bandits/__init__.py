"""Agents for bandit feedback: act, and learn the outcome of that action only."""

from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.lists import ListAgent
from folklearn.bandits.reduction import BanditReduction
from folklearn.bandits.rewards import RegretCertificate, RewardAgent, auto

__all__ = [
    "Agent", "BanditReduction", "Decision", "ListAgent", "RegretCertificate", "RewardAgent", "auto",
]  # fmt: skip
