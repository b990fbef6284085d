"""Logs of decisions: VW's text is read, and refused with its line."""

import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folklearn.errors import InvalidInputError
from folklearn.readers.decision_logs import read_log
from folklearn.readers.reader import BadRow

CB = "1:-1:0.5 'first | age:30 new\n3:0:0.25 |user age:40 |shop q:2\n\n2:-0.25:1 | age:1e1\n"
ADF = """\
shared 'first |user age:30
'red | price:2
0:-0.5:0.25 'blue | price:3 sale

shared |user age:40
1:0:0.5 | price:1
| price:2
| price:3
"""


def read(text, **words):
    return read_log(io.BytesIO(text.encode()), **words)


def test_text_of_actions_by_number():
    log = read(CB)
    assert log.n_actions == 3
    assert log.feature_names == ("age", "new", "user^age", "shop^q")
    assert log.X.tolist() == [[30, 1, 0, 0], [0, 0, 40, 2], [10, 0, 0, 0]]
    assert log.actions.tolist() == [0, 2, 1]
    assert log.rewards.tolist() == [1.0, 0.0, 0.25]
    assert log.propensities.tolist() == [0.5, 0.25, 1.0]
    assert read(CB, n_actions=7).n_actions == 7
    assert read("\n" + CB).actions.tolist() == [0, 2, 1]
    assert read("1:0:0.5 |\n").feature_names == ("constant",)


def test_text_of_actions_with_features():
    log = read(ADF)
    assert log.n_actions is None
    assert log.feature_names == ("user^age", "price", "sale")
    assert log.menu(0).tolist() == [[30, 2, 0], [30, 3, 1]]
    assert log.menu(1).tolist() == [[40, 1, 0], [40, 2, 0], [40, 3, 0]]
    assert (log.actions.tolist(), log.rewards.tolist()) == ([1, 0], [0.5, 0.0])


def test_actions_with_features_that_never_change_are_known_by_number():
    first = ADF.split("\n\n")[0]
    log = read(f"{first}\n\n{first.replace('30', '50')}\n")
    assert (log.n_actions, log.action_names) == (2, ("red", "blue"))
    assert (log.feature_names, log.X.tolist()) == (("user^age",), [[30], [50]])


def test_the_range_of_rewards():
    assert read("1:0.25:0.5 |\n2:1:0.5 |\n", reward_range=(-1, 0)).rewards.tolist() == [0.75, 0.0]
    assert read("1:-5:0.5 |\n", reward_range=(0, 10)).rewards.tolist() == [0.5]
    with pytest.raises(BadRow, match=r"the cost is 0.25, .*between 0 and 1; .*reward_range=\(low"):
        read("1:0.25:0.5 |\n", reward_range=(0, 1))
    for wrong in ((1, 0), (0, 0), (0, np.inf), (-1e308, 1e308)):
        with pytest.raises(InvalidInputError, match="the lower one first"):
            read("1:0:0.5 |\n", reward_range=wrong)


def test_costs_and_rewards_are_told_apart_by_the_first_that_is_not_zero():
    costs, rewards, zeros = "1:0:0.5 |\n1:1:0.5 |\n", "1:0:0.5 |\n2:-1:0.5 |\n", "2:0:0.5 |\n" * 2
    assert read(costs).rewards.tolist() == [1.0, 0.0]
    assert read(rewards).rewards.tolist() == [0.0, 1.0]
    assert read(zeros).rewards.tolist() == [0.0, 0.0]
    for text in (costs + "1:-0.5:0.5 |\n", rewards + "1:0.5:0.5 |\n"):
        with pytest.raises(BadRow, match=r"line 3 .* say what rewards lie between"):
            read(text)
    bad = []
    kept = read("1:5:0.5 |\n" + rewards, on_bad=bad.append)  # a bad one decides nothing
    assert ([row.line for row in bad], kept.rewards.tolist()) == ([1], [0.0, 1.0])


@pytest.mark.parametrize(
    ("text", "number", "sentence"),
    [
        (CB + "2 | age:3\n", 5, "the label is '2'; expected action:cost:probability"),
        (CB + "1:0:0.5 2:0:0.5 | x\n", 5, "there are 2 words before the bar"),
        (CB + "0:0:0.5 | x\n", 5, "the action is 0; they are counted from 1"),
        (CB + "1.5:0:0.5 | x\n", 5, "the action is '1.5'; expected a whole number"),
        (CB + "inf:0:0.5 | x\n", 5, "the action is 'inf'; expected a whole number"),
        (CB + "1:nan:0.5 | x\n", 5, "the cost is nan, a reward of nan"),
        (CB + "1:-2:0.5 | x\n", 5, "a reward of 2, which is not between 0 and 1"),
        (CB + "1:0:0 | x\n", 5, "the probability is 0; that of an action that was played"),
        (CB + "1:0:1.5 | x\n", 5, "the probability is 1.5"),
        (CB + "1:0:0.5 x\n", 5, "it has no bar"),
        (CB + "1:0:0.5 | x:a\n", 5, "feature 'x': 'a' is not a number"),
        (CB + "\n1:0:0.5 | \0\n", 6, "it has a NUL byte"),
        (ADF + "\n\nshared | a\n| b\n", 11, "0 of 1 actions have a label"),
        (ADF + "\n0:0:1 | a\n0:0:1 | b\n", 10, "2 of 2 actions have a label"),
        (ADF + "\n0:0:1 | a\nshared | b\n", 10, "line 2 of this decision has 'shared' before"),
        (ADF + "\n0:0:1 | a\nb\n", 10, "line 2 of this decision: it has no bar"),
    ],
)
def test_bad_lines_are_refused_by_number_or_left_out(text, number, sentence):
    with pytest.raises(BadRow, match=f"^line {number} of the stream: .*{sentence}") as error:
        read(text)
    assert str(error.value).endswith(("to leave bad rows out: on_bad=print", "encoding='utf-16'"))
    bad = []
    log = read(text, on_bad=bad.append)
    assert [one.line for one in bad] == [number]
    good = {"1": CB, "s": ADF}[text[0]]
    assert log.rewards.tolist() == read(good).rewards.tolist()


def test_a_second_line_that_is_nonsense_is_no_action():
    bad = []
    assert read("1:0:0.5 | a\nnonsense\n2:0:0.5 | a\n", on_bad=bad.append).n_rounds == 2
    assert [one.line for one in bad] == [2]


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_log_without_decisions(text):
    with pytest.raises(InvalidInputError, match="there is no decision in this log"):
        read(text)


def test_packed_files(tmp_path):
    (tmp_path / "log.vw.gz").write_bytes(gzip.compress(ADF.encode()))
    assert read_log(tmp_path / "log.vw.gz").n_rounds == 2


def test_a_table_that_would_be_too_large(monkeypatch):
    monkeypatch.setattr("folklearn.readers.decision_logs._MAX_TABLE_NUMBERS", 11)
    with pytest.raises(InvalidInputError, match="3 rows with 4 different features are too many"):
        read(CB)
    with pytest.raises(InvalidInputError, match="3 decisions among 4 actions are too many"):
        read("1:0:0.5 |\n4:0:0.5 |\n2:0:0.5 |\n")


def test_numbers_of_actions_that_cannot_be_meant():
    for text in ("1e300:0:0.5 |\n", "1000000000:0:0.5 |\n"):
        with pytest.raises(InvalidInputError, match="1 decision among .* actions are too many"):
            read(text)
    for n_actions in (0, 1):
        with pytest.raises(InvalidInputError, match="n_actions must be at least 2"):
            read("1:0:0.5 |\n", n_actions=n_actions)


# Whatever is in a file, there is a log or a sentence.


@given(
    st.sampled_from([CB, ADF]),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(" |:'\n0-1.{}[]\",ans\t\0é"))),
)
def test_spoiled_files_are_read_or_refused(text, changes):
    for place, character in changes:
        text = text[: place % len(text)] + character + text[place % len(text) + 1 :]
    bad = []
    try:
        log = read(text, on_bad=bad.append)
    except InvalidInputError:
        return
    assert log.n_rounds + len(bad) <= text.count("\n") + 1
    assert ((log.rewards >= 0.0) & (log.rewards <= 1.0)).all()
