"""What can go wrong, as types. All are ValueErrors: the message says what to do."""


class FolklearnError(ValueError):
    """Base of every error that this library raises on purpose."""


class InvalidInputError(FolklearnError):
    """A parameter, context, label, weight or comparator that cannot be used."""


class StateFileError(FolklearnError):
    """A file that does not hold a state this version can read."""
