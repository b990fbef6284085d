"""A name that goes when `folklearn.streams` does."""

from folklearn.model.core import Core

OpenModel = Core
