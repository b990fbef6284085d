"""What the tests of readers share: files on disk, pipes in pieces, and blocks as plain lists."""

import os
import threading

import numpy as np
import pytest

from folklearn.readers import TextColumn


class Rows:
    """Everything that a pass gave: columns as lists, lines, features as dictionaries, bad rows."""

    def __init__(self, reader, kinds, skip, max_rows=8192):
        self.bad, self.error, self.blocks = [], None, []
        try:
            for block in reader.read(
                kinds, max_rows=max_rows, on_bad=self.bad.append if skip else None
            ):
                self.blocks.append(block)
        except ValueError as error:
            self.error = error
        self.lines = [line for block in self.blocks for line in block.lines.tolist()]
        self.names = list(dict.fromkeys(name for block in self.blocks for name in block.columns))

    def __getitem__(self, name):
        return [value for block in self.blocks for value in plain(block, name)]

    @property
    def features(self):
        return [
            dict(zip(row.indices.tolist(), row.values.tolist(), strict=True))
            for block in self.blocks
            for row in block.features
        ]

    @property
    def table(self):
        found = {name: self[name] for name in self.names}
        has_features = any(block.features is not None for block in self.blocks)
        return found, self.lines, self.features if has_features else None


def plain(block, name):
    """A column as a list, None for what is missing."""
    column = block.columns.get(name)
    if column is None:
        return [None] * len(block)
    if isinstance(column, TextColumn):
        return column.to_list()
    if column.dtype.kind == "M":
        return [None if np.isnat(value) else str(value) for value in column]
    return [None if np.isnan(value) else float(value) for value in column]


@pytest.fixture
def read():
    def read(reader, kinds=None, *, skip=False, max_rows=8192):
        kinds = dict.fromkeys(reader.names, "text") if kinds is None else kinds
        return Rows(reader, kinds, skip, max_rows)

    return read


@pytest.fixture
def write(tmp_path):
    def write(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def piped():
    """A function that gives the reading end of a pipe into which pieces are written."""
    opened = []

    def piped(pieces):
        source, sink = os.pipe()

        def feed():
            try:
                for piece in pieces:
                    os.write(sink, piece)
            except BrokenPipeError:  # nobody reads any more
                pass
            finally:
                os.close(sink)

        thread = threading.Thread(target=feed)
        file = os.fdopen(source, "rb")
        opened.append((file, thread))
        thread.start()
        return file

    yield piped
    for file, thread in opened:
        file.close()
        thread.join()
