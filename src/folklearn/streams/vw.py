"""Vowpal Wabbit's text: ``label [weight] ['tag]|namespace[:scale] feature[:value] ...``.

Read as VW reads it:

* a word that touches the first bar, or starts with an apostrophe, is a tag and no label;
* a value that is left out is 1, and a namespace may scale all of its values;
* a feature that occurs twice in a line has the sum of its values;
* a feature without a name is called by its position in the namespace.

A column is called ``namespace^feature``, or just ``feature`` if the namespace has no name.
Labels are text and stay as they are written; VW's labels of several actions, with costs or
probabilities, are refused.
"""

from folklearn.errors import InvalidInputError
from folklearn.problem import MAX_WEIGHT
from folklearn.streams import sparse
from folklearn.streams.scanned import FileTable
from folklearn.streams.sparse import Parsed, SparseSource
from folklearn.streams.tape import Tape
from folklearn.streams.text import Path, fault, number

_BAR, _TAG = "|", "'"


def source(path: Path | Tape, name: str | None = None) -> SparseSource:
    """Return a file in this format."""
    return SparseSource(path, name, parse)


def scan(path: Path, name: str | None = None) -> FileTable:
    """Read a whole file once: find its features and labels, and check every value."""
    return sparse.scan(source(path, name))


def parse(text: str) -> Parsed:
    """Return what one line says.

    >>> row = parse("spam 2.5 'mail7|words:2 cheap offer:3 |size :40")
    >>> row.label, row.weight
    ('spam', 2.5)
    >>> row.features
    {'words^cheap': 2.0, 'words^offer': 6.0, 'size^0': 40.0}
    """
    before, bar, after = text.partition(_BAR)
    if not bar:
        raise InvalidInputError(f"it has no bar {_BAR!r} between the label and the features")
    label, weight, hint = _label(before)
    features: dict[str, float] = {}
    for namespace in after.split(_BAR):
        _add(namespace.replace("\t", " "), features)
    return Parsed(label, features, weight, hint)


def _label(text: str) -> tuple[str | None, float, str]:
    """Return the label, the weight, and why there is no label if that may surprise."""
    if "\t" in text:
        raise InvalidInputError("there is a tab before the bar; put spaces there")
    words = [word for word in text.split(" ") if word]
    hint = ""
    if words and (words[-1].startswith(_TAG) or not text.endswith(" ")):
        tag = words.pop()
        if not words and not tag.startswith(_TAG):
            hint = f": {tag!r} touches the bar, which makes it a tag; put a space between them"
    if not words:
        return None, 1.0, hint
    label, *rest = words
    if ":" in label or "," in label:
        raise InvalidInputError(
            f"{label!r} is not a class: labels of several actions, costs or probabilities cannot "
            "be learned"
        )
    if label.lower() == "nan":
        raise InvalidInputError("the label is missing")
    if len(rest) > 1:
        raise InvalidInputError(
            f"there are {len(words)} words before the bar; expected a label and perhaps a weight"
        )
    return label, _weight(rest[0]) if rest else 1.0, ""


def _weight(text: str) -> float:
    weight = number(text)
    if weight is None or not 0.0 <= weight <= MAX_WEIGHT:
        raise InvalidInputError(
            f"the weight is {text!r}; expected a number from 0 to {MAX_WEIGHT:g}"
        )
    return weight


def _add(text: str, features: dict[str, float]) -> None:
    """Add the features of one namespace, the text between two bars."""
    words = [word for word in text.split(" ") if word]
    prefix, scale = "", 1.0
    if words and not text.startswith(" "):
        space, colon, factor = words.pop(0).partition(":")
        if not space:
            raise InvalidInputError(f"the namespace {space + colon + factor!r} has no name")
        prefix = f"{space}^"
        scale = _value(factor, f"the scale of namespace {space!r}") if colon else 1.0
    n_nameless = 0
    for word in words:
        name, colon, value = word.partition(":")
        if not name:
            name = str(n_nameless)
            n_nameless += 1
        column = prefix + name
        x = scale * (_value(value, f"feature {column!r}") if colon else 1.0)
        features[column] = features.get(column, 0.0) + x


def _value(text: str, where: str) -> float:
    problem = fault(text) if text else "there is no value after the colon"
    if problem:
        raise InvalidInputError(f"{where}: {problem}")
    return float(text)
