"""The frozen record, straight from its definition: copies of a model, one row at a time."""

import copy

import numpy as np

FIRST, LONGEST, SHARE, SPACED = 64, 288, 4, 16
KEEP, SHARPNESS = 0.8, 10.0


def stripes(n_rows, wide=False):
    """Yield where every stripe begins and ends, as long as it ends within the rows."""
    begin = FIRST
    while True:
        length = min(LONGEST, begin // SHARE)
        if begin + length > n_rows:
            return
        yield begin, begin + length
        begin += max(2 * length, begin // SPACED if wide else 0)


def played(core, X, y, weight=None):
    """Learn rows one by one; return the record: losses by name, average loss, weights."""
    weight = np.ones(len(y)) if weight is None else weight
    bounds = dict(stripes(len(y), core.sparse))
    copies, record, totals = {}, {}, np.zeros(2)
    for t in range(len(y)):
        if t in bounds and core.learner is not None:
            copies[bounds[t]] = t, copy.deepcopy(core)
        core.run(X[t : t + 1], y[t : t + 1], weight=weight[t : t + 1])
        if t + 1 in copies:
            begin, frozen = copies.pop(t + 1)
            names, losses, mixed = _scored(frozen, X, y, weight, begin, t + 1, record)
            total = weight[begin : t + 1].sum()
            record = {
                name: KEEP * record.get(name, 0.0) + loss / total
                for name, loss in zip(names, losses, strict=True)
            }
            totals = KEEP * totals + (mixed, total)
    return record, totals[0] / totals[1]


def weights_of(record, names):
    scores = np.array([-SHARPNESS * record.get(name, 0.0) for name in names])
    w = np.exp(scores - scores.max())
    return w / w.sum()


def _scored(frozen, X, y, weight, begin, end, record):
    names = frozen.learner._expert_names()
    w = weights_of(record, names)
    losses, mixed = np.zeros(len(names)), 0.0
    for t in range(begin, end):
        Z = frozen.scaler.transform(X[t : t + 1])
        P = frozen.learner._expert_predictions(Z)[:, 0]
        losses += -weight[t] * np.log(P[:, y[t]])
        mixed += -weight[t] * np.log(w @ P[:, y[t]])
    return names, losses, mixed
