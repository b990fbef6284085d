"""From a sample to one predictor: online learners stopped and averaged, and penalised fits."""

from folklearn.batch.online_to_batch import OnlineToBatch

__all__ = ["OnlineToBatch"]
