"""`folklearn.Model` as the classifiers of other libraries."""

from typing import Any

from folklearn.errors import InvalidInputError
from folklearn.learners import catalogue


def select_settings(learner: str, **parameters: Any) -> dict[str, Any]:
    """Return the parameters that are not None; raise for one that the learner does not take."""
    takes = catalogue.settings_of(learner)
    settings = {name: value for name, value in parameters.items() if value is not None}
    for name, value in settings.items():
        if name not in takes:
            raise InvalidInputError(
                f"learner={learner!r} takes no {name}, got {name}={value!r}: leave it None"
            )
    return settings
