"""Pictures: what is drawn, that it can be read without colours, and what is refused."""

import sys
from functools import partial
from unittest import mock

import numpy as np
import pytest

import folklearn
from folklearn import plots
from folklearn.errors import FolklearnError, InvalidInputError
from folklearn.metrics import CalibrationCurve
from folklearn.report.rendering import format_compact
from folklearn.report.style import truncate_label

matplotlib = pytest.importorskip("matplotlib")
Axes = pytest.importorskip("matplotlib.axes").Axes
Text = pytest.importorskip("matplotlib.text").Text
Annotation = pytest.importorskip("matplotlib.text").Annotation
HOSTILE = [
    "<b>&amp;</b>", "$x^{2$", "{a} $b$ $c$", "two\nlines", "שלום", "漢字 😀", "x" * 300,
    "\u202eevil", " ", "\\frac{1}{2}", "%s %d", "-->",
]  # fmt: skip


ONE_BIN = CalibrationCurve(np.array([0.5]), np.array([1.0]), np.array([1.0]))


def windows(n: int = 8, **columns):
    start = 100 * np.arange(n)
    loss = np.linspace(0.9, 0.3, n)
    known = {"loss": loss, "lower_bound": loss - 0.1, "holdout": loss + 0.2, "error_rate": loss / 2}
    table = {"start": start, "stop": start + 100, **known, **columns}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def tables(rng, K: int, T: int = 400):
    P = rng.dirichlet(np.ones(K), T)
    y = (P.cumsum(axis=1) > rng.random((T, 1))).argmax(axis=1)
    found = []
    for k in range(K):
        bins = np.minimum((10 * P[:, k]).astype(int), 9)
        sums = [np.bincount(bins, one, 10) for one in (np.ones(T), P[:, k], y == k)]
        found.append(CalibrationCurve.of_bins(*sums))
    return found


def texts(figure) -> list[str]:
    return [text.get_text() for text in drawn_texts(figure)]


def drawn_texts(figure):
    """Return what is written: ticks outside of the axes exist and are not."""
    seen = []
    draw = Text.draw

    def seen_and_drawn(text, renderer):
        seen.append(text)
        draw(text, renderer)

    with mock.patch.object(Text, "draw", seen_and_drawn):
        figure.draw_without_rendering()
    return [text for text in seen if text.get_text() and text.get_visible()]


def named_lines(ax):
    """Return the lines by how they look without colour: dashes, marker and width."""
    return {(line.get_linestyle(), line.get_marker(), line.get_linewidth()) for line in ax.lines}


def nothing_leaves_or_overlaps(figure) -> list[str]:
    """Check every text that is written, and return them."""
    labels = drawn_texts(figure)
    width, height = figure.bbox.size
    for text in labels:
        box = Text.get_window_extent(text)  # without the line that leads to it
        inside = box.x0 > -1 and box.y0 > -1 and box.x1 < width + 1 and box.y1 < height + 1
        assert inside, text.get_text()
    for ax in figure.findobj(Axes):
        named = [text for text in ax.texts if isinstance(text, Annotation)]
        ends = [Text.get_window_extent(text) for text in named]
        for i, one in enumerate(ends):
            for other in ends[:i]:
                assert not one.shrunk(0.9, 0.9).overlaps(other.shrunk(0.9, 0.9))
    return [text.get_text() for text in labels]


def test_losses_are_steps_with_a_hatched_lower_bound():
    rows = windows()
    figure = plots.losses(rows)
    above, below = figure.axes
    loss = above.lines[-1]
    np.testing.assert_array_equal(loss.get_ydata(), np.repeat([row["loss"] for row in rows], 2))
    assert loss.get_xdata()[:4].tolist() == [0, 100, 100, 200]
    assert above.get_ylim()[0] == 0.0
    assert above.get_xscale() == "linear"
    assert [patch.get_hatch() for patch in above.collections] == ["////"]
    assert len(named_lines(above)) == 3
    expected = np.repeat([row["error_rate"] for row in rows], 2)
    np.testing.assert_array_equal(below.lines[0].get_ydata(), expected)
    shown = " ".join(texts(figure))
    assert "loss, lately 0.300" in shown
    assert "lower bound,\nlinear models\nwith their penalty 0.200" in shown
    assert "hold-out 0.500" in shown
    assert "15 % wrong lately" in shown


@pytest.mark.parametrize(("floor", "is_said"), [(-0.5, True), (np.nan, False), (None, False)])
def test_a_lower_bound_that_says_nothing_is_said_so_if_it_was_looked_for(floor, is_said):
    figure = plots.losses(windows(6, lower_bound=[floor] * 6))
    assert ("no lower bound above 0 is known" in texts(figure)) == is_said
    assert figure.axes[0].get_ylim()[0] == 0.0


def test_few_decades_have_rounds_and_no_formulas_below_the_axis():
    figure = plots.curves([64, 128, 256, 512, 800], {"loss": np.ones(5)})
    figure.canvas.draw()
    (ax,) = figure.axes
    labels = [
        tick.get_text() for which in ("major", "minor") for tick in ax.get_xticklabels(which=which)
    ]
    assert {"100", "200", "500"} <= set(labels)
    assert not any("$" in label for label in labels)


def test_an_absurd_loss_hides_no_other():
    loss = [7452.0, *[0.3] * 18, np.inf]
    rows = [{"start": i, "stop": i + 1, "loss": one} for i, one in enumerate(loss)]
    figure = plots.losses(rows)
    assert figure.axes[0].get_ylim()[1] < 2.0
    marks = figure.axes[0].lines[-1]
    assert marks.get_marker() == "^"
    assert marks.get_xdata().tolist() == [0.5, 19.5]
    assert "▲ beyond the axis, up to infinity" in texts(figure)


def test_calibration_pools_classes_and_names_eight(rng):
    names = [f"class {k}" for k in range(12)]
    figure = plots.calibration(tables(rng, 12), names)
    ax = figure.axes[0]
    solid = [line for line in ax.lines if line.get_marker() == "o"]
    named = [line for line in ax.lines if line.get_marker() not in ("o", "None")]
    assert (len(solid), len(named)) == (1, 8)
    assert len({(line.get_linestyle(), line.get_marker()) for line in named}) == 8
    shown = nothing_leaves_or_overlaps(figure)
    assert sum(text.startswith("class ") for text in shown) == 8
    assert "all classes" in shown
    (strip,) = ax.child_axes
    assert len(strip.patches) == 10


def test_calibration_curves_are_pooled():
    ten = np.array([10.0])
    curves = [CalibrationCurve.of_bins(ten, p * ten, q * ten) for p, q in ((0.8, 0.7), (0.2, 0.3))]
    figure = plots.calibration(curves, ["no", "yes"])
    pooled = next(line for line in figure.axes[0].lines if line.get_marker() == "o")
    np.testing.assert_allclose(pooled.get_xydata(), [[0.2, 0.3], [0.8, 0.7]])
    assert texts(figure).count("10") == 2  # predictions


def test_confusion_has_the_numbers_and_the_most_confused():
    figure = plots.confusion([[1200, 3], [0, 7]], ["no", "yes"])
    shown = set(texts(figure))
    assert {"1,200", "3", "7", "truth", "predicted"} <= shown
    assert "0" not in shown
    C = np.diag(np.full(30, 50))
    C[25, 28] = C[3, 4] = 9
    figure = plots.confusion(C, [f"c{k}" for k in range(30)])
    shown = nothing_leaves_or_overlaps(figure)
    assert "the 20 most confused of 30 classes" in shown
    assert {"c3", "c4", "c25", "c28"} <= set(shown)
    assert "c29" not in shown


def test_two_classes_have_bars_and_more_have_full_and_empty_circles(rng):
    W = np.array([[0.0, 1.0, 0.0], [0.5, -1.0, 0.0]])
    (ax,) = plots.weights(["a", "b", "c"], ["no", "yes"], W).axes
    assert [bar.get_width() for bar in ax.patches] == [-2.0, 0.5, 0.0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "a", "c"]
    assert "no" in ax.get_xlabel()
    W = np.array([[2.0, 0.0], [0.0, 0.0], [-2.0, 0.0]])
    figure = plots.weights(["a", "b"], ["x", "y", "z"], W)
    (circles,) = figure.axes[0].collections
    full, empty = circles.get_facecolors()[:, :3]
    assert full.min() < 0.5
    assert empty.min() == 1.0
    big = plots.weights(range(10_000), range(200), rng.normal(size=(200, 10_000)))
    assert "the 20 most important of 10000 columns" in texts(big)


@pytest.mark.parametrize("parts", ["k", "wckox", "co"])
def test_the_overview_has_what_is_given_and_no_empty_axes(rng, parts):
    labels = ["a_very_long_name_of_a_class_" * 3 + str(k) for k in range(5)]
    given = {
        "w": partial(plots.losses, windows()),
        "c": partial(plots.curves, [1, 10, 100], {"loss": [0.5, 0.4, 0.35]}),
        "k": partial(plots.calibration, tables(rng, 5), labels),
        "o": partial(plots.confusion, rng.integers(0, 99, (5, 5)), labels),
        "x": partial(plots.weights, "pqr", labels, rng.normal(size=(5, 3)), most=12),
    }
    wide, panels = (
        [given[part] for part in parts if (part == "w") == is_w] for is_w in (True, False)
    )
    figure = plots.overview(wide, panels, title="a $stream$")
    assert len(figure.axes) == len(parts)
    assert all(ax.has_data() for ax in figure.axes)
    assert "a $stream$" in nothing_leaves_or_overlaps(figure)


def test_hostile_names_are_drawn_as_they_are(rng, tmp_path):
    K = len(HOSTILE)
    C, W = rng.integers(0, 9999, (K, K)), rng.normal(size=(K, K))
    panels = [
        partial(plots.calibration, tables(rng, K), HOSTILE),
        partial(plots.confusion, C, HOSTILE, most=10),
        partial(plots.weights, HOSTILE, HOSTILE, W, most=12),
    ]
    figure = plots.overview((), panels, title=HOSTILE[1])
    plots.save(figure, tmp_path / "a.png")  # warnings are errors here, as of missing glyphs
    with plots.use_style():
        shown = nothing_leaves_or_overlaps(figure)
    assert {"<b>&amp;</b>", "$x^{2$", "two lines", "evil", "(no name)"} <= set(shown)
    assert all(len(text) < 60 for text in shown)


@pytest.mark.parametrize("most", [3, 5, 24])
def test_long_names_keep_both_ends(most):
    cut = truncate_label("a" * 50 + "z" * 50, most)
    assert len(cut) == most
    assert "…" in cut
    assert truncate_label("short") == "short"


def test_numbers_are_short():
    numbers = (0.5, 7, 999, 1000, 1234, 9999, 12_345, 999_999, 1.25e6, 3e9)
    expected = ["0.5", "7", "999", "1k", "1.2k", "10k", "12k", "1M", "1.2M", "3G"]
    assert [format_compact(number) for number in numbers] == expected


def test_nothing_is_left_set_and_given_axes_are_used():
    from matplotlib.figure import Figure

    before = dict(matplotlib.rcParams)
    own = Figure()
    ax = own.subplots()
    assert plots.losses(windows(), ax=ax) is own
    assert len(own.axes) == 1
    assert dict(matplotlib.rcParams) == before
    with plots.use_style():
        assert matplotlib.rcParams["svg.hashsalt"] == "folklearn"
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_files_are_the_same_bytes_every_time(tmp_path, suffix, magic):
    written = []
    for name in ("a", "b"):
        path = tmp_path / (name + suffix)
        plots.save(plots.curves([1, 2], {"loss": [0.5, 0.4]}), path)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(magic)


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda: plots.losses([]), "no losses to draw: there is no window"),
        (lambda: plots.errors(windows(1, error_rate=[None])), "no error rate to draw"),
        (lambda: plots.calibration([], []), "no bin holds a prediction"),
        (lambda: plots.calibration([ONE_BIN], "ab"), "1 curves and 2 names"),
        (lambda: plots.confusion(np.zeros((2, 3)), "ab"), "counts has shape (2, 3)"),
        (lambda: plots.confusion([[-1.0]], "a"), "must not be negative"),
        (lambda: plots.confusion([[1.0]], "ab"), "expected finite numbers (2, 2)"),
        (lambda: plots.weights("a", "b", []), "expected finite numbers"),
        (lambda: plots.weights("a", "b", [[np.nan]]), "expected finite numbers"),
        (lambda: plots.weights("ab", "b", [[1.0]]), "expected finite numbers (1, 2)"),
        (lambda: plots.overview((), ()), "give at least one plot"),
        (lambda: plots.save(None, "a.gif"), "a.gif: its name must end in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(draw, sentence):
    with pytest.raises(InvalidInputError) as refusal:
        draw()
    assert sentence in str(refusal.value)


def test_lines():
    lines = {"loss": [1.0, 0.5, 0.25], "other": [1.0, 0.9, 0.8]}
    figure = plots.curves([1, 10, 100], lines, title="t")
    (axes,) = figure.axes
    loss, other = axes.lines
    assert loss.get_ydata().tolist() == [1.0, 0.5, 0.25]
    assert loss.get_linestyle() != other.get_linestyle()
    assert axes.get_xscale() == "log"
    shown = [text.get_text() for text in axes.get_legend().get_texts()]
    assert shown == ["loss 0.250", "other 0.800"]


def test_one_round_and_nothing():
    figure = plots.curves([1], {"wrong": [0.25], "unknown": [np.nan]})
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["wrong 0.250"]
    with pytest.raises(InvalidInputError, match="no curves to draw"):
        plots.curves([], {"a": []})


def test_a_notebook_shows_a_figure_without_pyplot():
    assert "<svg" in plots.losses(windows())._repr_svg_()


def test_ticks_are_exact():
    axis = plots.losses(windows()).axes[0].xaxis
    assert [axis.get_major_formatter()(n) for n in (800, 1600, 12_500, 2.5e6)] == [
        "800", "1.6k", "12.5k", "2.5M",
    ]  # fmt: skip


def test_a_narrow_plot_has_its_legend_below():
    from folklearn.report.style import new_figure

    ax = new_figure(4.0, 3.2).subplots()
    shown = nothing_leaves_or_overlaps(plots.losses(windows(), ax=ax))
    assert "hold-out 0.500" in shown
    legend = ax.get_legend().get_window_extent()
    assert legend.y1 < ax.bbox.y0


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FolklearnError, match=r"pip install 'folklearn\[plots\]'"):
        folklearn.plots.losses(windows())


def test_the_smallest_of_everything_is_drawn():
    for figure in (
        plots.losses([{"start": 0, "stop": 1, "loss": 0.0}]),
        plots.calibration([ONE_BIN], ["only"]),
        plots.confusion([[0]], ["only"]),
        plots.weights(["a"], ["only"], [[0.0]]),
        plots.weights(["a"], "xyz", np.zeros((3, 1))),
    ):
        nothing_leaves_or_overlaps(figure)
