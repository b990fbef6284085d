"""Files of any kind: exit code 0 or 2, one sentence, nothing half written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli import strange


@settings(max_examples=300)
@given(strange.contents(), strange.endings, strange.options, strange.learners, st.booleans())
def test_any_file_gives_a_result_or_a_sentence(content, ending, chosen, learner, has_target):
    strange.check(content, ending, chosen, learner, has_target)
