"""Agents for bandit feedback: act, and be told only whether the action was right."""

from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.banditron import Banditron
from folklearn.bandits.reduction import BanditReduction

__all__ = ["Agent", "BanditReduction", "Banditron", "Decision"]
