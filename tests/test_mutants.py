"""The list of mutants cannot rot: every snippet and every test that it names is there."""

from collections import Counter

import pytest

from tests.mutants import MUTANTS, ROOT, SOURCES


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_its_tests(mutant):
    assert (SOURCES / mutant.file).read_text().count(mutant.snippet) == 1
    assert mutant.replacement != mutant.snippet
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name}(" in (ROOT / file).read_text()


def test_names_are_unique():
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
