"""E of a column that may have changed, answer by answer, from its definition.

A question about a column has n answers. Under the hypothesis its answers are independent with one
distribution q. The mixture of Krichevsky and Trofimov predicts the answer a after counts c by
(c_a + 1/2) / (sum c + n/2), anew after row s; with weights w_s over the rows s,

    E = sum_s w_s KT(answers before s) KT(answers from s on) / sup_q P_q(answers).
"""

import math
from collections.abc import Sequence


def log_kt(answers: Sequence[int], n: int) -> float:
    """Return the log probability of answers, each predicted by those before."""
    counts, total = [0.5] * n, 0.0
    for answer in answers:
        total += math.log(counts[answer] / sum(counts))
        counts[answer] += 1.0
    return total


def log_best_fit(answers: Sequence[int]) -> float:
    """Return the log probability by the distribution that fits best."""
    shares = [answers.count(a) / len(answers) for a in set(answers)]
    return sum(len(answers) * share * math.log(share) for share in shares)


def weight(look: int) -> float:
    return 1 / math.log2(look + 2) - 1 / math.log2(look + 3)


def log_evidence(answers: Sequence[int], n: int, looks: Sequence[int], rows_per_look: int) -> float:
    """Return ln E with the changes at certain looks, numbers of `rows_per_look` rows."""
    terms = [
        math.log(weight(look))
        + log_kt(answers[: look * rows_per_look], n)
        + log_kt(answers[look * rows_per_look :], n)
        for look in looks
    ]
    top = max(terms)
    mixture = top + math.log(sum(math.exp(term - top) for term in terms))
    return mixture - log_best_fit(list(answers))
