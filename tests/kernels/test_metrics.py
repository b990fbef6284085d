import numpy as np

from folklearn.kernels import metrics as kernels


def test_predictions_that_are_no_numbers_are_counted_inside_the_tables():
    T, K = 3, 2
    segments, classes = np.zeros((5, kernels.N_SEGMENTS)), np.zeros((3, K), np.int64)
    class_weights, soft = np.zeros((3, K)), np.zeros((0, 0))
    confusion = np.zeros((K, K), np.int64)
    around = np.zeros((3 * K, 2, kernels.N_SCORES))
    scores, given = around[K : 2 * K], np.zeros((K, kernels.N_BINS))
    P = np.array([[np.nan, 1.0], [-np.inf, np.inf], [0.25, 0.75]])
    labels, best, known = np.array([0, 1, 1]), np.zeros(T, np.int64), np.full(T, K)
    ones = np.ones(T)
    totals, windows = np.zeros(4), np.zeros((1 + 2 * kernels.N_WINDOW_LEVELS, 3))
    size = kernels.count_predictions(
        P, ones, 0.0 * ones, 0.0 * ones, labels, soft, best, known, ones, ones, ones, 0, 1,
        totals, segments, windows, classes, class_weights, confusion, scores, given,
    )  # fmt: skip
    assert size == 1
    assert scores.sum() == around.sum() == T * K
    assert scores[0, 1, 0] == 1  # the NaN is nothing
