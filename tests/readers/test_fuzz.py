"""Whatever the bytes are: rows or one sentence, the same from a file and from a pipe."""

import io
import os
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from folklearn.errors import FolklearnError
from folklearn.readers import open_reader
from tests.readers.conftest import Rows

FORMATS = [None, "csv", "jsonlines", "svmlight", "vw", "parquet", "arrow"]
GOOD = [
    b"a,y\n1,p\n2,q\n3,p\n",
    b'a;y\n1,5;"p"\n2;"q\nr"\n',
    b'{"a": 1, "y": "p"}\n{"a": 2.5, "y": "q"}\n',
    b"1 1:2 3:4\n2 1:1 # c\n",
    b"p 2 't|w a b:3\nq |w c\n",
]
PIECES = [
    b"a,y", b"1,p", b"x,q", b",", b";", b"\n", b"\r", b"\r\n", b'"', b'"\n"', b"p |a:1", b"1 2:3",
    b'{"a":1,"y":2}', b"\x1f\x8b", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"nan", b"\0", b"\xff",
    b"\xff\xfe", b"\xef\xbb\xbf", b" ", b"\t", b"|", b"1e400", b"\xe2\x82", b"\x28\xb5\x2f\xfd",
]  # fmt: skip


class Slow(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content, size):
        super().__init__(content)
        self._at_once = size

    def read1(self, size=-1):
        return super().read(self._at_once)


def outcome(source, format, kind):
    """The rows and what was bad, or the sentence."""
    try:
        reader = open_reader(source, format=format)
    except FolklearnError as error:
        return str(error)
    head = reader.head(3)
    kinds = {name: kind if name == "a" else "text" for name in reader.names}
    rows = Rows(reader, kinds, skip=True)
    assert rows.error is None or isinstance(rows.error, FolklearnError)
    assert len(head) <= max(3, len(rows.lines))
    assert all(bad.line not in rows.lines for bad in rows.bad)
    if reader.can_reread and rows.bad:
        stopped = Rows(reader, kinds, skip=False)
        first = rows.bad[0].line
        assert stopped.lines == [line for line in rows.lines if line < first]
        assert str(stopped.error) == str(rows.bad[0])
    return (reader.names, reader.decimal), rows.table, [(bad.line, bad.text) for bad in rows.bad]


def mutated(content, edits):
    for place, old, new in edits:
        place %= len(content) + 1
        content = content[:place] + new + content[place + old :]
    return content


EDITS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 3), st.sampled_from(PIECES)), max_size=3
)
CONTENTS = (
    st.binary(max_size=60)
    | st.lists(st.sampled_from(PIECES), max_size=8).map(b"\n".join)
    | st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
    | st.builds(mutated, st.sampled_from(GOOD), EDITS)
)


@settings(max_examples=int(os.environ.get("FOLKLEARN_FUZZ", "150")))
@given(
    content=CONTENTS,
    format=st.sampled_from(FORMATS),
    kind=st.sampled_from(["number", "text", "date"]),
    size=st.integers(1, 40),
)
@example(content=b"a,y\n1,p\n\xef\xbb\xbf2,q\n", format="csv", kind="text", size=4)
@example(content=b'a,y\r\n1,"p\r\nq"\r\n', format="csv", kind="number", size=1)
def test_bytes_of_any_kind_give_rows_or_a_sentence(content, format, kind, size):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(content)
        of_file = outcome(path, format, kind)
    of_pipe = outcome(Slow(content, size), format, kind)
    if isinstance(of_file, str) or isinstance(of_pipe, str):
        # What pyarrow says of a damaged file may depend on how it reads it.
        shown = str(of_file).replace(str(path), "the stream")
        assert shown.split("cannot be read: ")[0] == str(of_pipe).split("cannot be read: ")[0]
    elif of_file[0] == of_pipe[0]:  # the first piece may not have every key, or no decimals
        assert of_file == of_pipe
