"""Change one line that the certificates rest on, and see that a test notices.

``make mutants`` applies each change below to a copy of the sources, runs the tests that are
named with it, and prints whether they killed it. A mutant that survives is a line on which
soundness rests and which no test guards, unless it says why it is equivalent. Kernels run as
plain Python (`tests.interpreted`), so that nothing is compiled; words name the mutants to run.

To add one: the file below ``src/folklearn``, a snippet that occurs in it exactly once, what to
write instead, and the tests that must fail. `tests/test_mutants.py` checks that snippets and
tests are still there.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "folklearn"


class Mutant(NamedTuple):
    """One changed snippet; `equivalent` says why no test can notice, if none can."""

    name: str
    file: str
    snippet: str
    replacement: str
    tests: tuple[str, ...]
    equivalent: str = ""


_CURVATURE = "kernels/curvature.py"
_RULES = "kernels/prediction_rules.py"
_BLOCKS, _FOLKLORE = "kernels/second_order_blocks.py", "learners/folklore.py"
_SECOND = "kernels/second_order.py"
_FIRST = "baselines/kernels.py"
_BOOSTING = "kernels/boosting.py"
_EXPLORATION = "kernels/exploration.py"

_EVIDENCE = "kernels/evidence.py"
_POINTS, _TANGENTS = "evidence/points.py", "evidence/evidence.py"
_BOUND = "evidence/lower_bound.py"
_MONITOR = "evaluate/monitor.py"
_SETS, _FOLLOW = "evaluate/prediction_sets.py", "kernels/metrics.py"

_OF_HINDSIGHT = (
    "tests/evaluate/test_best_linear.py::test_a_huge_weight_does_not_lift_the_bound_above_the_loss",
    "tests/evaluate/test_best_linear.py::test_a_sum_of_losses_is_rounded_up",
    "tests/evaluate/test_best_linear.py::test_the_rounding_of_logits_is_part_of_a_loss",
)
_OF_MONITOR = ("tests/evaluate/test_monitor.py",)
_OF_SETS = ("tests/evaluate/test_prediction_sets.py",)
_OF_SETS_OF_MODELS = (
    "tests/model/test_sets.py::test_late_labels_count_with_the_set_that_was_issued",
)
_OF_EXPLORATION = ("tests/kernels/test_exploration.py",)
_OF_EVIDENCE = ("tests/kernels/test_evidence.py",)
_OF_PLANES = ("tests/evidence/test_linear_evidence.py",)
_OF_POINTS = ("tests/evidence/test_points.py",)
_OF_TANGENTS = ("tests/evidence/test_tangent.py",)
_OF_JOINS = ("tests/evidence/test_evidence.py::test_a_joined_point_lies_within_both",)
_OF_RELEASES = (
    "tests/evidence/test_evidence.py"
    "::test_rows_that_are_expanded_beside_a_point_pay_for_the_way_to_it",
)
_OF_STREAMS = tuple(  # of those that compile nothing
    f"tests/model/test_stream_evidence.py::test_{name}"
    for name in (
        "the_bound_is_below_the_best_model_and_near_it",
        "columns_and_classes_that_come_late",
        "planes_touch_at_distributions_also_where_no_class_was_known",
        "a_model_is_the_same_in_either_coordinates",
    )
)
_TERMS = "tests/learners/test_term_mixture.py"
_OF_CURVATURE = ("tests/kernels/test_curvature.py",)
_OF_SURROGATE = ("tests/kernels/test_surrogate.py",)
_OF_RULES = ("tests/kernels/test_prediction_rules.py",)
_OF_STATE = ("tests/kernels/test_state.py",)
_OF_FIRST = ("tests/baselines/test_ons_kernels.py",)
_OF_BOOSTING = ("tests/boosting/test_regression_kernels.py",)
_OF_BOUNDS = (
    "tests/test_bounds.py::test_bounds_do_not_depend_on_the_unit_of_x",
    "tests/test_bounds.py::test_aiolis_bound_does_not_depend_on_the_unit_of_x",
)

MUTANTS = (
    # Bounds in columns that are standardised once, and of every linear model.
    Mutant(
        "the gradient of a regression is not taken off", _EVIDENCE,
        "return c - bent if", "return c if", ("tests/evaluate/test_regression.py",),
    ),
    Mutant(
        "a share of planes is taken for a larger one", _EVIDENCE,
        "c * (c / (4.0 * bent))", "c * (c / (3.0 * bent))", _OF_PLANES,
    ),
    Mutant(
        "a column that comes late is scaled by nothing", "scaler.py",
        "opened.means[new] = np.where(is_number, means, 0.0)[new]", "pass",
        ("tests/test_scaler.py::test_a_column_that_comes_late_is_standardised_by_the_rows_that_bring_it",),
    ),
    Mutant(
        "planes touch where nothing was predicted", "model/stream_evidence.py",
        "return np.where(missing[:, None], 1.0 / n_classes, P)", "return P", _OF_STREAMS,
    ),
    Mutant(
        "rows whose loss was not counted are in the bound", "model/model.py",
        "self.pipeline.evidence.n_rows == self.metrics.n_rows", "True",
        ("tests/model/test_attacks.py::test_an_interrupt_leaves_no_rows_for_later_floors",),
    ),
    # Evidence about every linear model: curvatures, steps, and the rounding of tangents.
    Mutant(
        "curvatures do not shrink", _POINTS,
        "_SHRUNK = 1.0 - 1e-8", "_SHRUNK = 1.0", _OF_POINTS,
    ),
    Mutant(
        "what cancels in a reach is not counted", _POINTS,
        "near += (4.0 * len(q.T) * UNIT) * (distances + mean)", "near += 0.0", _OF_POINTS,
    ),
    Mutant(
        "a reach does not cover what logits are off by", _POINTS,
        "radius * near + off[:, None]", "radius * near", _OF_POINTS,
    ),
    Mutant(
        "logits are taken for exact", _TANGENTS,
        "off = (self.n_features + 4.0) * UNIT * norms", "off = 0.0 * norms", _OF_POINTS,
    ),
    Mutant(
        "distances are taken for exact", _TANGENTS,
        "lengths += (2.0 * self.n_features * UNIT)", "lengths += 0.0", _OF_POINTS,
    ),
    Mutant(
        "an inverse is taken for exact", _POINTS,
        "(1.0 + 1e-12) / (1.0 - error)", "(1.0 + 1e-12)", _OF_POINTS,
    ),
    Mutant(
        "a step is not rounded up", _POINTS,
        "+ 4.0 * (d + 4.0) * UNIT * np.linalg.norm(rounding)", "", _OF_POINTS,
    ),
    Mutant(
        "a joined metric does not pay for its rounding", _POINTS,
        "*= 1.0 + 4.0 * d * (d + 4.0) * UNIT", "*= 1.0", _OF_POINTS,
    ),
    Mutant(
        "a joined point forgets how far apart both are", _POINTS,
        "min(self.radius - self.step_to(other.W), other.radius)",
        "min(self.radius, other.radius)", _OF_JOINS,
    ),
    Mutant(
        "a joined point has the radius of one", _POINTS,
        "min(self.radius - self.step_to(other.W), other.radius)",
        "self.radius - self.step_to(other.W)", _OF_JOINS,
    ),
    Mutant(
        "rows beside a point do not pay for the way to it", _TANGENTS,
        "radius += point.step_to(W)", "pass",
        _OF_RELEASES,
    ),
    Mutant(
        "tangents lie outside of where curvatures hold", _TANGENTS,
        "return 1.0 / max(1.0, max(ratios, default=0.0) * (1.0 + 1e-12))", "return 1.0",
        _OF_TANGENTS,
    ),
    Mutant(
        "a radius of 0 holds the point itself", _TANGENTS,
        "if point.radius > 0.0 else math.inf", "if point.radius > 0.0 else 0.0", _OF_POINTS,
    ),
    Mutant(
        "part of the way has all of the curvature", _TANGENTS,
        "(2.0 * s - s * s) * bent", "bent", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent is not rounded down", _TANGENTS,
        "float(value - kappa * allowance)", "float(value)", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent forgets the rounding of the weights", _TANGENTS,
        "(1.0 + log_K) ** 2 * totals[WEIGHT] + abs(c)", "abs(c)", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent forgets the rounding of the entropies", _TANGENTS,
        "totals[WEIGHT] + abs(c) +", "totals[WEIGHT] +", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent forgets the rounding of the quadratics' constant", _TANGENTS,
        "abs(c) + quadratic.totals[CONSTANT]", "abs(c)", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent forgets the rounding of the slopes", _TANGENTS,
        "constants + 2.0 * K * slopes * lengths.max()", "constants", _OF_TANGENTS,
    ),
    Mutant(
        "a tangent forgets the rounding of the curvature", _TANGENTS,
        "        allowance += (traces * lengths_apart**2).sum()\n", "", _OF_TANGENTS,
    ),
    Mutant(
        "the slope of a tangent is taken for exact", _TANGENTS,
        "kappa * (2.0 * slopes + size)", "0.0 * size", _OF_TANGENTS,
    ),
    Mutant(
        "the slope of a tangent forgets the rounding of the curvature", _TANGENTS,
        "kappa * (2.0 * slopes + size)", "kappa * (2.0 * slopes + 0.0 * size)", _OF_TANGENTS,
    ),
    Mutant(
        "rows that wait have no depth", _TANGENTS,
        "reach, len(rows.X)\n", "reach, 0\n", _OF_TANGENTS,
    ),
    Mutant(
        "scaling is not counted", _TANGENTS,
        "        scaled._totals[DEPTH] += 1.0\n", "", _OF_TANGENTS,
    ),
    Mutant(
        "merging takes the depth of one side", "kernels/quadratic.py",
        "np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0", "one[..., DEPTH] + 1.0",
        _OF_TANGENTS,
    ),
    Mutant(
        "a merge is not counted", "kernels/quadratic.py",
        "np.maximum(one[..., DEPTH], other[..., DEPTH]) + 1.0",
        "np.maximum(one[..., DEPTH], other[..., DEPTH])", _OF_TANGENTS,
    ),
    Mutant(
        "the rounding of a slope is not in the least value", _BOUND,
        " + self.rounding[:, None]", "", _OF_TANGENTS,
    ),
    Mutant(
        "a penalty is not rounded down", _BOUND,
        "penalty * (1.0 - share)", "penalty", _OF_TANGENTS,
    ),
    Mutant(
        "what is taken off is not rounded up", _BOUND,
        "bent * (1.0 + share)", "bent", _OF_TANGENTS,
    ),
    Mutant(
        "the rounding of a penalty forgets the classes", _BOUND,
        "share = (self.W.size + 8.0)", "share = (len(tau) + 8.0)", _OF_TANGENTS,
    ),
    Mutant(
        "a loss is not rounded up", _BOUND,
        "return loss + abs(loss) * UNIT * (n_rounds + 2)", "return loss", _OF_TANGENTS,
    ),
    Mutant(
        "two classes are penalised as one", _BOUND,
        "(2.0 if n_classes == 2 else 1.0) / C", "1.0 / C",
        ("tests/evaluate/test_regression.py",),
    ),
    Mutant(
        "a touching plane forgets the rounding of its slope", "evidence/linear_evidence.py",
        "(tangent.rounding * np.abs(W).sum(axis=1)).sum()", "0.0", _OF_PLANES,
    ),
    Mutant(
        "a touching plane forgets it for other models", "evidence/linear_evidence.py",
        "max(totals[REACH], float(tangent.rounding.max()) / (2.0 * kappa))", "totals[REACH]",
        _OF_PLANES,
    ),
    Mutant(
        "small exponentials are added to the largest", "evaluate/best_linear.py",
        "others = P.sum(axis=0) + (ones.sum(axis=0) - 1.0)",
        "others = (P + ones).sum(axis=0) - 1.0",
        ("tests/evaluate/test_best_linear.py::"
         "test_many_classes_that_are_next_to_nothing_are_added_up_without_the_largest",),
    ),
    # Rewards, decisions, and sums over rows.
    Mutant(
        "the cost of a round forgets how the best action is played", _EXPLORATION,
        "math.expm1((P[a] - 1.0) / share)", "math.expm1(-1.0 / share)", _OF_EXPLORATION,
    ),
    Mutant(
        "the cost of a round takes half the price", _EXPLORATION,
        "math.expm1(1.0 / eta)", "math.expm1(0.5 / eta)", _OF_EXPLORATION,
    ),
    Mutant(
        "FastCB explores less than it says", _EXPLORATION,
        "least / (K * least + gamma * gap)", "least / (K + gamma * gap)", _OF_EXPLORATION,
    ),
    Mutant(
        "a late reward counts as a prompt one", "bandits/rewards.py",
        "self.n_late += decision.id < self.n_decisions - 1", "self.n_late += 0",
        ("tests/bandits/test_rewards.py::test_what_the_certificate_does_not_cover_is_said",),
    ),
    Mutant(
        "a log between a decision and its reward goes unnoticed", "bandits/rewards.py",
        "self.n_late += len(self._pending)", "self.n_late += 0",
        ("tests/bandits/test_rewards.py::"
         "test_a_log_that_is_learned_before_a_reward_makes_it_late",),
    ),
    Mutant(
        "rows beyond the first block are forgotten", _EVIDENCE,
        "coefficients, start * P, P, 1.0, S, 0, D", "coefficients, 0, P, 1.0, S, 0, D",
        _OF_EVIDENCE,
    ),
    # Evidence of first order.
    Mutant(
        "planes do not count their rows", _EVIDENCE,
        "totals[DEPTH] += 1.0", "totals[DEPTH] += 0.0", _OF_PLANES,
    ),
    Mutant(
        "planes do not count their weight", _EVIDENCE,
        "totals[WEIGHT] += weight", "totals[WEIGHT] += 1.0", _OF_PLANES,
    ),
    Mutant(
        "planes do not count their reach", _EVIDENCE,
        "totals[REACH] += weight * length", "totals[REACH] += weight", _OF_PLANES,
    ),
    Mutant(
        "the pull of a penalised plane is taken for exact", _EVIDENCE,
        "(np.abs(G) + rounding) ** 2", "np.abs(G) ** 2", _OF_PLANES,
    ),
    Mutant(
        "the constant of planes is taken for exact", _EVIDENCE,
        "totals[CONSTANT] - kappa * room", "totals[CONSTANT]", _OF_PLANES,
    ),
    Mutant(
        "the pull of planes is taken for exact", _EVIDENCE,
        "float(pulls.sum()) * (1.0 + kappa) + kappa * reach", "float(pulls.sum())", _OF_PLANES,
    ),
    Mutant(
        "the product with planes is taken for exact", _EVIDENCE,
        "float(products.sum()) - room)", "float(products.sum()))", _OF_PLANES,
    ),
    Mutant(
        "a plane counts the label for its entropy", _EVIDENCE,
        "entropy -= p[i] * math.log(p[i])", "entropy -= math.log(p[i]) / p.shape[0]", _OF_PLANES,
    ),
    Mutant(
        "the evidence of the wide learner is that of another expert", "learners/sparse_sgd.py",
        "unit * self._table[:n, 0, : self.n_classes]",
        "unit * self._table[:n, 2, : self.n_classes]",
        ("tests/learners/test_sparse_sgd.py::test_it_is_its_definition",),
    ),
    Mutant(
        "weights of planes stay divided by the largest", "learners/sparse_sgd.py",
        "totals[[CONSTANT, WEIGHT, REACH]] *= unit", "totals[[WEIGHT, REACH]] *= unit",
        ("tests/learners/test_sparse_sgd.py::test_it_is_its_definition",),
    ),
    # The curvature constant.
    Mutant(
        "the self-concordant constant ignores how far apart the logits are", _CURVATURE,
        "self_concordant(reach + high - low)", "self_concordant(reach)",
        ("tests/kernels/test_curvature.py::test_the_chosen_curvature_is_valid_for_many_classes",),
    ),
    Mutant(
        "gamma* ignores the number of classes", _CURVATURE,
        "gamma_star_below(reach + math.log(K - 1.0))", "gamma_star_below(reach)", _OF_CURVATURE,
    ),
    Mutant(
        "gamma* is not lowered against rounding", _CURVATURE,
        "SAFE = 1.0 - 1e-11", "SAFE = 1.0 + 1e-11", _OF_CURVATURE,
    ),
    Mutant(
        "gamma* near 0 is its limit", _CURVATURE,
        "series = 0.5 - L**2 / 36.0", "series = 0.5 - 0.0 * L", _OF_CURVATURE,
    ),
    Mutant(
        "the table is extrapolated with half the slope", _CURVATURE,
        "INVERSES[-1] + (L - NODES[-1])", "INVERSES[-1] + 0.5 * (L - NODES[-1])",
        _OF_CURVATURE,
    ),
    Mutant(
        "the table is read one node too early", _CURVATURE,
        "1.0 / (INVERSES[i] + slope * (L - NODES[i]))", "1.0 / INVERSES[i]", _OF_CURVATURE,
    ),
    Mutant(
        "the exact binary constant is not capped", _CURVATURE,
        "_binary_ratio(m, -L - m)), 0.5)", "_binary_ratio(m, -L - m)), 9.5)", _OF_CURVATURE,
    ),
    Mutant(
        "the exact binary constant forgets the side of m", _CURVATURE,
        "    m = abs(m)\n", "    m = -abs(m)\n", _OF_CURVATURE,
    ),
    Mutant(
        "the exact binary constant looks at the far side only", _CURVATURE,
        "min(_binary_ratio(m, L - m), _binary_ratio(m, -L - m))", "_binary_ratio(m, -L - m)",
        _OF_CURVATURE,
    ),
    Mutant(
        "the exact binary constant looks at the near side only", _CURVATURE,
        "min(_binary_ratio(m, L - m), _binary_ratio(m, -L - m))", "_binary_ratio(m, L - m)",
        _OF_CURVATURE,
        "m is not negative, so that by symmetry the far point -L never gives the minimum",
    ),
    # The surrogate of a round: five allowances, and three reasons to call it lost.
    Mutant(
        "no allowance for sums of k products", _RULES,
        "allowance = _SUM_ROUNDING * (k + 8) * largest * size +", "allowance =", _OF_SURROGATE,
    ),
    Mutant(
        "no allowance for what cancels along V", _RULES,
        "abs(along_away) - _SUM_ROUNDING * (k + 8) * blur", "abs(along_away)", _OF_SURROGATE,
    ),
    Mutant(
        "no allowance for what is not known of C", _RULES,
        "slope * noise_C + 2.0 * noise_q", "2.0 * noise_q", _OF_SURROGATE,
    ),
    Mutant(
        "no allowance for what is not known of q", _RULES,
        "slope * noise_C + 2.0 * noise_q", "slope * noise_C", _OF_SURROGATE,
    ),
    Mutant(
        "the slope of the bracket is that of the loss alone", _RULES,
        "            e[j] += along_away * V[c, j]", "            e[j] += 0.0 * V[c, j]",
        _OF_SURROGATE,
    ),
    Mutant(
        "a C that is noise loses no round", _RULES,
        "n_lost = 1 if curvature * noise_C > _MAX_NOISE else 0", "n_lost = 0", _OF_SURROGATE,
    ),
    Mutant(
        "a pivot that costs S its digits loses no round", _RULES,
        "    n_lost += largest > _MAX_SHRINKAGE\n", "", _OF_SURROGATE,
    ),
    Mutant(
        "a negative C is learned from", _RULES,
        "if n_negative > 0 or", "if n_negative < 0 or",
        _OF_SURROGATE,
    ),
    Mutant(
        "the surrogate's gradient is the loss's (the paper's Algorithm 1)", _RULES,
        "r[i] = e[i] - 2.0 * curvature * b[i]", "r[i] = e[i]",
        ("tests/learners/test_folklore.py::test_equals_the_dense_twin",),
    ),
    Mutant(
        "the bracket takes too much", _RULES,
        "bracket -= certain * certain", "bracket -= 1.001 * certain * certain", _OF_SURROGATE,
    ),
    # What a round adds up.
    Mutant(
        "too large a curvature is not counted", _RULES,
        "totals[OVERCURVED] += 1.0", "totals[OVERCURVED] += 0.0", _OF_RULES,
    ),
    Mutant(
        "lost rounds are not counted", _RULES,
        "totals[IMPRECISE] += n_lost > 0", "totals[IMPRECISE] += 0.0", _OF_RULES,
    ),
    Mutant(
        "what an implicit rule predicts worse is not in the bracket", _RULES,
        "totals[BRACKET] += weight * (loss - at_point) + bracket", "totals[BRACKET] += bracket",
        _OF_RULES,
    ),
    Mutant(
        "a loss counts once whatever its weight", _RULES,
        "totals[LOSS] += weight * loss", "totals[LOSS] += loss", _OF_RULES,
    ),
    Mutant(
        "S is taken for exact", _RULES,
        "_NOISE * length * length / constants[LAM]", "0.0 * length / constants[LAM]", _OF_RULES,
    ),
    Mutant(
        "theta is taken for exact", _RULES,
        "_NOISE * length * mean", "0.0 * mean", _OF_RULES,
    ),
    Mutant(
        "an integral may give a class nothing", _RULES,
        "+ mu / (k + 1.0), FLOOR)", "+ mu / (k + 1.0), 0.0)",
        (
            "tests/test_soundness.py::test_an_integral_never_gives_a_class_nothing",
            "tests/test_soundness.py::test_the_softmax_at_the_mean_never_loses_infinity",
        ),
    ),
    # The state.
    Mutant(
        "growth forgets what voids a certificate", _FOLKLORE,
        "larger._totals[:] = self._totals", "larger._totals[:3] = self._totals[:3]", _OF_STATE,
    ),
    Mutant(
        "a file forgets what voids a certificate", _FOLKLORE,
        "self._theta[:], self._totals[:] = theta, totals",
        "self._theta[:], self._totals[:3] = theta, totals[:3]",
        _OF_STATE,
    ),
    Mutant(
        "an update may take more from S than is there", _SECOND,
        "enough &= left[i] >= 0.0", "enough &= left[i] >= -9.0e99", _OF_STATE,
    ),
    Mutant(
        "an update that was not made is not counted", _SECOND,
        "totals[rules.IMPRECISE] = n_lost + 1.0", "totals[rules.IMPRECISE] = n_lost", _OF_STATE,
    ),
    Mutant(
        "a block that is learned again is counted twice", _BLOCKS,
        "totals[i] = totals_before[i]", "pass", _OF_STATE,
    ),
    # The online Newton step.
    Mutant(
        "ONS does not count what projections lack", _FIRST,
        "(gap + _WEIGHT_ROUNDING * largest", "(0.0 * gap + _WEIGHT_ROUNDING * largest", _OF_FIRST,
    ),
    Mutant(
        "ONS does not count the rounding of W", _FIRST,
        "(gap + _WEIGHT_ROUNDING * largest", "(gap + 0.0 * largest", _OF_FIRST,
    ),
    Mutant(
        "ONS does not count slack at all", "baselines/ons.py",
        "totals[kernels.NEWTON] + totals[kernels.SLACK] + norm", "totals[kernels.NEWTON] + norm",
        _OF_FIRST,
    ),
    Mutant(
        "ONS does not count heavy rounds", _FIRST,
        "totals[HEAVY] += weight > 1.0", "totals[HEAVY] += 0.0", _OF_FIRST,
    ),
    Mutant(
        "ONS does not count long contexts", _FIRST,
        "totals[FAR] += size > R * _MAX_NORM_RATIO", "totals[FAR] += 0.0", _OF_FIRST,
    ),
    Mutant(
        "ONS does not count lost rounds", _FIRST,
        "totals[LOST] += 1.0", "totals[LOST] += 0.0", _OF_FIRST,
    ),
    # Boosting regressions.
    Mutant(
        "boosting does not count what clipping costs", _BOOSTING,
        "row[CLIPPED] += weight * (clipped - whole)", "row[CLIPPED] += 0.0", _OF_BOOSTING,
    ),
    Mutant(
        "boosting does not count the rounding of margins", _BOOSTING,
        "bracket += _MARGIN_ROUNDING * scale * slope", "bracket += 0.0", _OF_BOOSTING,
        "the other allowances covered it in every round tried; the derivation asks for it",
    ),
    Mutant(
        "boosting does not count the rounding of sums", _BOOSTING,
        "return abs((before - (row[at] - added)) + (term - added))", "return 0.0", _OF_BOOSTING,
    ),
    Mutant(
        "boosting does not count the rounding of losses", _BOOSTING,
        "    lost += _MARGIN_ROUNDING * weight * loss\n", "", _OF_BOOSTING,
    ),
    Mutant(
        "boosting does not count the rounding of the rest", _BOOSTING,
        "lost += _MARGIN_ROUNDING * weight * _MAX_EXPONENT * rest", "lost += 0.0", _OF_BOOSTING,
    ),
    Mutant(
        "boosting loses ln(1 + tiny)", _BOOSTING,
        "math.log1p(total)", "math.log(1.0 + total)", _OF_BOOSTING,
    ),
    # What a model in hindsight truly loses.
    Mutant(
        "a small loss is the difference of two large numbers", "arrays.py",
        "np.log1p(others.sum(axis=1)) - label_logits",
        "np.log(1.0 + others.sum(axis=1)) - label_logits",
        ("tests/evaluate/test_best_linear.py::test_a_small_loss_has_all_its_digits",),
    ),
    Mutant(
        "the rounding of logits is not counted into a loss", _EVIDENCE,
        "_UNIT * (of_sum + of_logits)", "_UNIT * of_sum", _OF_HINDSIGHT,
    ),
    Mutant(
        "the rounding of a sum of losses is not counted", _EVIDENCE,
        "_UNIT * (of_sum + of_logits)", "_UNIT * of_logits", _OF_HINDSIGHT,
    ),
    # Experts that never retire.
    Mutant(
        "every expert that is far behind retires", "kernels/expert_state.py",
        "{e for e in spec.dear if hopeless[e]}", "{*np.flatnonzero(hopeless)}",
        ("tests/learners/test_auto.py::test_only_dear_experts_retire",),
    ),
    # Prediction sets that miss as often as said.
    Mutant(
        "a late label counts with the set of now", _FOLLOW,
        "issued[t, c] if issued.shape[0] > 0 else group[THRESHOLD, c]", "group[THRESHOLD, c]",
        _OF_SETS,
    ),
    Mutant(
        "a label told late to a model counts with the set of now", "model/model.py",
        "self.sets.observe(p_label, number, None if asked is None else asked.thresholds)",
        "self.sets.observe(p_label, number)", _OF_SETS_OF_MODELS,
    ),
    Mutant(
        "steps of a threshold grow again", _FOLLOW,
        "0.01 if n > 678.0 else", "0.02 if n > 678.0 else", _OF_SETS,
    ),
    Mutant(
        "a threshold stays where nothing is missed", _FOLLOW,
        "step * (missed - miss_rates[c])", "step * missed * (1.0 - miss_rates[c])", _OF_SETS,
    ),
    Mutant(
        "the bound forgets how far late labels moved a threshold", _SETS,
        "max(1.0 + kernels.step_of_threshold(1.0), highest - lowest)",
        "1.0 + kernels.step_of_threshold(1.0)", _OF_SETS,
    ),
    Mutant(
        "the bound forgets the first step", _SETS,
        "max(1.0 + kernels.step_of_threshold(1.0), highest - lowest)", "highest - lowest", _OF_SETS,
    ),
    Mutant(
        "the lowest threshold is not kept", _FOLLOW,
        "group[LOWEST, c] = min(group[LOWEST, c], group[THRESHOLD, c])", "pass", _OF_SETS,
    ),
    Mutant(
        "every row moves the threshold of the first class", _SETS,
        'if self.by == "all" else y.astype(np.int64)', "", _OF_SETS,
    ),
    Mutant(
        "sets that are shown may be empty", _SETS, "are_in[:, :1] = True", "pass", _OF_SETS,
    ),
    # False alarms of a monitor.
    Mutant(
        "every beginning gets all of alpha", _MONITOR,
        "return 1.0 / math.log2(look + 2.0) - 1.0 / math.log2(look + 3.0)", "return 1.0",
        _OF_MONITOR,
    ),
    Mutant(
        "every beginning but the first gets twice its share", _MONITOR,
        "- 1.0 / math.log2(look + 3.0)", "- 1.0 / math.log2(look + 4.0)", _OF_MONITOR,
    ),
    Mutant(
        "the past of a later beginning has the share of the first", _MONITOR,
        "(self.alpha * _share(self._n_before))", "(self.alpha * _share(0))", _OF_MONITOR,
    ),
    Mutant(
        "the past takes all of alpha", _MONITOR,
        "math.log(2.0 * len(_RATES)", "math.log(1.0 * len(_RATES)", _OF_MONITOR,
    ),
    Mutant(
        "the past does not pay for its rates", _MONITOR,
        "math.log(2.0 * len(_RATES)", "math.log(2.0", _OF_MONITOR,
    ),
    Mutant(
        "the price of a rate is that of a Gaussian", _MONITOR,
        "_PRICES = -np.log1p(-_RATES) - _RATES", "_PRICES = _RATES**2 / 2.0", _OF_MONITOR,
    ),
    Mutant(
        "the average so far is taken for the expected one", _MONITOR,
        "return (total + min(slack))", "return total",
        _OF_MONITOR,
    ),
    Mutant(
        "rows are judged by an average that knows them", _MONITOR,
        "losses.clip(max=self.cap), self._mean(_CAPPED)",
        "losses.clip(max=self.cap), losses.clip(max=self.cap).mean()", _OF_MONITOR,
    ),
    Mutant(
        "losses are not capped", _MONITOR,
        "losses.clip(max=self.cap), self._mean", "losses, self._mean", _OF_MONITOR,
    ),
    Mutant(
        "what is shown as uncapped is capped", _MONITOR,
        "total, capped_total = losses.sum(), capped.sum()",
        "total, capped_total = capped.sum(), capped.sum()", _OF_MONITOR,
    ),
    Mutant(
        "an alarm does not say that the uncapped loss has fallen", _MONITOR,
        "if self.now < self.before:", "if self.now < 0.0:", _OF_MONITOR,
    ),
    Mutant(
        "a suspicion sees rows before it bets", _MONITOR,
        "        if self._n_looks > self._n_before:\n            self._suspect()\n"
        "        total, capped_total = losses.sum(), capped.sum()\n"
        "        self._past += capped_total, ((capped - mean) ** 2).sum(), total\n"
        "        self._n_looks += 1\n",
        "        total, capped_total = losses.sum(), capped.sum()\n"
        "        self._past += capped_total, ((capped - mean) ** 2).sum(), total\n"
        "        self._n_looks += 1\n        self._suspect()\n", _OF_MONITOR,
    ),
    Mutant(
        "every bet has all of the capital", _MONITOR,
        "_share(now) / len(_BETS)", "_share(now)", _OF_MONITOR,
    ),
    Mutant(
        "bets are against the average itself", _MONITOR,
        "level = (1.0 + self.rise) * self._at_most()",
        "level = (1.0 + self.rise) * self._mean(_CAPPED)", _OF_MONITOR,
    ),
    Mutant(
        "a rise that is allowed is not", _MONITOR,
        "(1.0 + self.rise) * self._at_most()", "self._at_most()", _OF_MONITOR,
    ),
    Mutant(
        "the alarm is raised at half of the capital", _MONITOR,
        ">= 2.0 / self.alpha", ">= 1.0 / self.alpha", _OF_MONITOR,
    ),
    Mutant(
        "what came before an alarm is not forgotten", _MONITOR,
        "*after, self.cap))\n        self._begin()\n", "*after, self.cap))\n",
        _OF_MONITOR,
    ),
    # Terms: what the promise that they cost little rests on.
    Mutant(
        "an expert that brought something retires", "learners/mixture.py",
        "hopeless &= self._credit[alive] < _MIN_CREDIT", "pass",
        ("tests/learners/test_mixture.py::test_an_expert_that_brought_something_does_not_retire",),
    ),
    Mutant(
        "a mixture with terms certifies the rows since they opened", "learners/term_mixture.py",
        "return Learner.certificate(self)", "return super().certificate(W)",
        (f"{_TERMS}::test_it_certifies_nothing_because_its_loss_begins_when_terms_open",),
    ),
    # The theorems.
    Mutant(
        "FOLKLORE's bound has R for R^2 in its factor", _FOLKLORE,
        "0.25 * (1.0 / least + R**2 / (4.0 * lam))", "0.25 * (1.0 / least + R / (4.0 * lam))",
        _OF_BOUNDS,
    ),
    Mutant(
        "FOLKLORE's bound has R for R^2 in its logarithm", _FOLKLORE,
        "most * T * R**2 / (lam * K * d)", "most * T * R / (lam * K * d)", _OF_BOUNDS,
    ),
    Mutant(
        "AIOLI's bound has R for R^2", "baselines/second_order.py",
        "most * T * R**2 / (2.0 * d * lam)", "most * T * R / (2.0 * d * lam)", _OF_BOUNDS,
    ),
)  # fmt: skip


def run(mutant: Mutant) -> tuple[bool, float]:
    """Return whether the mutant's tests fail on it, and after how many seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "folklearn"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        file.write_text(file.read_text().replace(mutant.snippet, mutant.replacement))
        done = pytest(mutant.tests, folder)
    if done.returncode not in (0, 1):  # neither passed nor failed: the tests did not run
        raise SystemExit(f"{mutant.name}: the tests did not run\n{done.stdout}{done.stderr}")
    return done.returncode == 1, time.perf_counter() - began


def pytest(tests: tuple[str, ...], sources: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the sources of a folder, as plain Python."""
    words = "-x", "-q", "-p", "tests.interpreted", "-p", "no:cacheprovider", "-p", "no:randomly"
    environment = os.environ | {
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([sources, str(ROOT)]),
    }
    command = [sys.executable, "-m", "pytest", *words, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def main(words: list[str]) -> int:
    """Run the mutants whose name or file has one of the words, or all; 1 if one survives."""
    chosen = [m for m in MUTANTS if not words or any(w in f"{m.file} {m.name}" for w in words)]
    every_test = tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
    done = pytest(every_test, str(SOURCES.parent))
    if done.returncode != 0:
        print(done.stdout, done.stderr, "the tests must pass before they can kill", sep="\n")
        return 2
    n_survived = 0
    for mutant in chosen:
        killed, seconds = run(mutant)
        verdict = "killed" if killed else "equivalent" if mutant.equivalent else "SURVIVED"
        n_survived += verdict == "SURVIVED"
        print(f"{verdict:10}  {seconds:5.1f} s  {mutant.file:26}  {mutant.name}", flush=True)
    print(f"{len(chosen)} mutants, {n_survived} survived")
    return int(n_survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
