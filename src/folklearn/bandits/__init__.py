"""Agents for bandit feedback: act, and be told only whether the action was right."""

from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.banditron import Banditron
from folklearn.bandits.gaptron import Gaptron
from folklearn.bandits.newtron import Newtron
from folklearn.bandits.obama import Obama
from folklearn.bandits.reduction import BanditReduction
from folklearn.bandits.soba import Soba

__all__ = [
    "Agent",
    "BanditReduction",
    "Banditron",
    "Decision",
    "Gaptron",
    "Newtron",
    "Obama",
    "Soba",
]
