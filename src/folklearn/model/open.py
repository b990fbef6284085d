from folklearn.model.core import Core as OpenModel  # noqa: F401  (goes with streams)
