"""The learners that the command line knows by name, and the options that each takes."""

from collections.abc import Mapping

from folklearn import memory
from folklearn.errors import FolklearnError
from folklearn.kernels.blas import device_named
from folklearn.learners import catalogue, lanes
from folklearn.learners.auto import lane_taken
from folklearn.learners.base import Learner
from folklearn.learners.mixture import Mixture
from folklearn.learners.sparse_sgd import Wide
from folklearn.model.model import Model
from folklearn.utils import counted

DEFAULT = "auto"
CLASSIC = "folklore"  # what the options lam, gamma and memory belong to

OPTIONS = ("R", "lam", "gamma", "memory")
NAMES = tuple(catalogue.CATALOGUE)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options that a learner takes."""
    takes = catalogue.settings_of(name)
    return tuple(option for option in OPTIONS if option in takes)


def choose(name: str | None, given: Mapping[str, float]) -> str:
    """Return the learner to use; refuse an unknown name and options that it does not take.

    Without a name, options that the default does not take select Folklore.
    """
    if name is None:
        return DEFAULT if set(given) <= set(options_of(DEFAULT)) else CLASSIC
    check_known(name)
    options = options_of(name)
    for option in given:
        if option not in options and name == DEFAULT:
            raise FolklearnError(f"{name} needs no {option}; choose --learner {CLASSIC}")
        if option not in options:
            its_own = " and ".join(f"--{word}" for word in ("B", *options))
            raise FolklearnError(f"{name} takes no --{option}; its options are {its_own}")
    return name


def check_known(name: str) -> None:
    """Raise if there is no learner of this name."""
    if name not in NAMES:
        raise FolklearnError(f"there is no learner {name!r}; choose one of: {', '.join(NAMES)}")


def check_growing(name: str) -> None:
    """Raise if a learner cannot take classes as they come."""
    if not catalogue.grows(name):
        raise FolklearnError(
            f"{name} must know all classes beforehand, and one pass brings them as they come: "
            "let it read a file twice, name them (--classes FILE), or choose one of: "
            f"{', '.join(catalogue.growing())}"
        )


def check_size(name: str, n_inputs: int, n_classes: int) -> None:
    """Raise if the state of a learner cannot fit in this machine."""
    needed = catalogue.n_bytes(name, n_inputs + 1, n_classes)
    check_present(needed, f"for {name}", n_inputs, n_classes, "; ogd needs next to none")


def check_present(
    needed: int, what_for: str, n_inputs: int, n_classes: int, advice: str = ""
) -> None:
    """Raise if this machine has less memory than the `needed` bytes."""
    present = memory.bytes_present()
    if present is not None and needed > present:
        raise FolklearnError(
            f"{n_classes} classes and {counted(n_inputs, 'feature')} and a constant need "
            f"{needed / 1e9:.1f} GB of memory {what_for}, and this machine has "
            f"{present / 1e9:.1f} GB{advice}"
        )


def described(model: Model) -> str:
    """Return the learner of a model with all of its settings, before it begins too."""
    learner = model.learner or catalogue.make(model.learner_name, 1, 2, model.settings)
    if model.learner_name != DEFAULT:
        return _settings(learner)
    scaled = learner.experts[0] if isinstance(learner, Mixture) else learner
    lane = _lane_to_come(model) if model.learner is None else lane_taken(learner)
    what = "chosen by the size of the first rows" if lane is None else lanes.WORDS[lane]
    return f"auto, R={scaled.R:g}: {what}"


def _lane_to_come(model: Model) -> str | None:
    """Return the lane that rows will be learned in; None before their size is known."""
    columns = model.encoder
    if columns is not None and columns.sparse:
        return lanes.WIDE
    if columns is None or not columns.keys or not model.labels:
        return None
    size = len(columns.keys) + model.intercept, len(model.labels)
    return lanes.lane_of(*size, device_named(model.device))


def sizes_of(model: Model) -> str:
    """Return how large the learner of a model is that has begun."""
    classes = f"{len(model.labels)} classes"
    return f"{counted(n_inputs_of(model), 'scaled feature')} and a constant, {classes}"


def n_inputs_of(model: Model) -> int:
    """Return the scaled features of a model that has begun; of wide rows those that occurred."""
    learner = model.learner
    assert learner is not None
    n_columns = learner.n_columns if isinstance(learner, Wide) else learner.n_features
    return max(1, n_columns - model.intercept)


def _settings(learner: Learner) -> str:
    values = {word: getattr(learner, word) for word in ("B", *OPTIONS) if word in learner.PARAMS}
    words = [f"{word}={value:g}" for word, value in values.items() if value is not None]
    if "gamma" in values and values["gamma"] is None:
        words.append("gamma=the largest valid in each round")
    return ", ".join([type(learner).__name__, *words])
