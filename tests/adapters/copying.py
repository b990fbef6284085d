"""Every way in which a scikit-learn estimator is copied or written down."""

import copy
import io
import pickle
from typing import Any

import joblib
import pytest

TRUSTED = ["folklearn.adapters.sklearn.FolkloreClassifier"]


def copies(model: Any) -> list[Any]:
    """Return the model through pickle, joblib and skops, and a deep copy of it."""
    skops = pytest.importorskip("skops.io")
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    skopsed = skops.dumps(model)
    assert skops.get_untrusted_types(data=skopsed) == TRUSTED
    return [
        pickle.loads(pickle.dumps(model)),
        joblib.load(file),
        skops.loads(skopsed, trusted=TRUSTED),
        copy.deepcopy(model),
    ]
