"""Values of rows to be predicted that a model has never learned: mostly a code that was renamed."""

from typing import TYPE_CHECKING, Self

import numpy as np

from folklearn.errors import warn_of_data
from folklearn.model.roles import CATEGORY
from folklearn.readers.table import Table, TextColumn, as_text_column
from folklearn.utils import counted, listed

if TYPE_CHECKING:
    from folklearn.model.model import Model

_MOST_VALUES_SHOWN = 3


class UnlearnedValues:
    """Counts, by column, the rows whose category a model never learned.

    Such a value speaks for no class, as if it were missing. Of a column with more than a hundred
    categories those that share places cannot be told apart, and are not counted.

    Attributes
    ----------
    n_rows : by column.
    values : some of the values, by column, in the order in which they came.
    """

    def __init__(self) -> None:
        self.n_rows: dict[str, int] = {}
        self.values: dict[str, dict[str, None]] = {}

    @classmethod
    def of(cls, model: "Model", block: Table) -> Self:
        """Return those of one block."""
        found = cls()
        found.count(model, block)
        return found

    def count(self, model: "Model", block: Table) -> None:
        """Count the rows of a block that is predicted."""
        assert model.columns is not None
        for name, role in model.columns.roles.items():
            if role == CATEGORY and name in block.columns:
                self._count_column(model, name, as_text_column(block.columns[name]))

    def _count_column(self, model: "Model", name: str, texts: TextColumn) -> None:
        found = np.bincount(texts.codes + 1, minlength=len(texts.values) + 1)[1:]
        present = np.flatnonzero(found)
        values = [texts.values[code] for code in present.tolist()]
        is_new = ~model._has_learned(name, values)
        if is_new.any():
            n_rows = int(found[present[is_new]].sum())
            self.n_rows[name] = self.n_rows.get(name, 0) + n_rows
            shown = self.values.setdefault(name, {})
            for place in np.flatnonzero(is_new)[:_MOST_VALUES_SHOWN].tolist():
                shown[values[place]] = None

    def warn(self) -> None:
        """Warn of what was found, if anything was."""
        if sentence := self.sentence():
            warn_of_data(sentence)

    def sentence(self) -> str:
        """Return what was found, columns with most rows first; nothing if there was nothing."""
        columns = sorted(self.n_rows, key=lambda name: -self.n_rows[name])
        parts = [
            f"{counted(self.n_rows[name], 'row')} "
            f"{'has' if self.n_rows[name] == 1 else 'have'} a value of {name!r} that was never "
            f"learned ({listed([*self.values[name]][:_MOST_VALUES_SHOWN])})"
            for name in columns
        ]
        return f"{'; '.join(parts)}: such values count as missing" if parts else ""
