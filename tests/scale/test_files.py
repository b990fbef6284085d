"""Predictions in many files: the same proof whoever adds it up, and below every model's loss."""

from functools import reduce
from operator import add

import numpy as np
import pytest

from folklearn import Certifier, scale
from folklearn.errors import InvalidInputError
from folklearn.evaluate.regression import logistic_regression
from tests.scale.tasks import blocks_of

SIZES = {"n_features": 3, "n_classes": 3}
FILES = range(5)


def everything():
    blocks = [block for file in FILES for block in blocks_of(file)]
    return (np.concatenate(parts) for parts in zip(*blocks, strict=True))


def test_each_file_is_certified_by_itself_and_all_together():
    found = scale.audit_files(FILES, blocks_of, **SIZES, C=4.0)
    own = []
    for file, audited in zip(FILES, found.files, strict=True):
        certifier = Certifier(**SIZES, C=4.0)
        for block in blocks_of(file):
            certifier.observe_many(*block)
        assert (audited.file, audited.certificate) == (file, certifier.certificate())
        own.append(certifier.evidence)
    total = found.certificate
    assert total.n_rounds == 1500
    assert total.loss == pytest.approx(sum(one.certificate.loss for one in found.files))
    assert total.best_linear_at_least == pytest.approx(reduce(add, own).lower_bound())
    assert total.best_linear_at_least == found.evidence.lower_bound()
    assert total.regret_bound == pytest.approx(total.loss - found.evidence.lower_bound())


def test_no_model_gets_below_the_floor_of_all_files():
    X, y, _ = everything()
    best = logistic_regression(X, y, C=4.0, n_classes=3)
    floor = scale.audit_files(FILES, blocks_of, **SIZES, C=4.0).certificate.best_linear_at_least
    total = best.loss + best.penalty
    assert total * (1.0 - 1e-5) < floor <= total


def test_processes_give_the_same_bits():
    one, two = (scale.audit_files(FILES, blocks_of, **SIZES, n_jobs=n) for n in (1, 2))
    assert one.evidence.to_bytes() == two.evidence.to_bytes()
    # By their repr, exact for floats: a NaN that was pickled does not equal the one it came from.
    assert repr((one.files, one.certificate)) == repr((two.files, two.certificate))
    assert repr(one).startswith("FilesAudit of 5 files: ")


def test_an_impossible_label_is_found_by_file_and_round():
    def read(file):
        for X, y, P in blocks_of(file):
            wrong = np.roll(np.eye(3)[y], 1, axis=1)
            yield X, y, wrong if file == 3 else P

    found = scale.audit_files(FILES, read, **SIZES)
    assert found.certificate.valid
    assert found.certificate.loss == np.inf
    assert found.certificate.reason.startswith("3: the prediction gave its label")
    assert 0.0 < found.certificate.best_linear_at_least < np.inf


def test_refusals():
    with pytest.raises(InvalidInputError, match="there is no file to audit"):
        scale.audit_files([], blocks_of, **SIZES)
    with pytest.raises(InvalidInputError, match="C must be a positive number"):
        scale.audit_files(FILES, blocks_of, **SIZES, C=0.0)
