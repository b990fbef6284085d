"""Files of any kind: exit code 0 or 2, one sentence, nothing half written."""

from hypothesis import given, settings

from tests.cli import strange


@settings(max_examples=60)
@given(strange.cases)
def test_any_file_gives_a_result_or_a_sentence(case):
    strange.check(case)
