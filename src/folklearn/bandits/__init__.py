"""Agents for bandit feedback: act, and be told only what came of that action."""

from folklearn.bandits.agent import Agent, Decision
from folklearn.bandits.banditron import Banditron
from folklearn.bandits.gaptron import Gaptron
from folklearn.bandits.lists import ListAgent
from folklearn.bandits.newtron import Newtron
from folklearn.bandits.obama import Obama
from folklearn.bandits.reduction import BanditReduction
from folklearn.bandits.regret import RegretCertificate
from folklearn.bandits.rewards import RewardAgent, auto
from folklearn.bandits.soba import Soba

__all__ = [
    "Agent",
    "BanditReduction",
    "Banditron",
    "Decision",
    "Gaptron",
    "ListAgent",
    "Newtron",
    "Obama",
    "RegretCertificate",
    "RewardAgent",
    "Soba",
    "auto",
]
