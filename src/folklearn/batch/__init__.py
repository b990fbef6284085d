"""From a sample to one predictor: online learners stopped and averaged, and SMP."""

from folklearn.batch.online_to_batch import OnlineToBatch
from folklearn.batch.smp import SMP

__all__ = ["SMP", "OnlineToBatch"]
