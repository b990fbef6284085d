"""Draw the pictures of README and documentation: ``python docs/images/make.py``.

Everything is made by folklearn from seeded streams, so that the same version draws the same bytes
on the same machine. Needs the extras `plots` and `df`, and chromium.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

import folklearn
from folklearn import plots
from folklearn.model.summary import ModelSummary

FOLDER = Path(__file__).parent
COLOURS = 128  # enough for lines and letters, and half of the bytes
WIDTH = 1100  # pixels at most
SCREEN = "900,1000"  # pixels of a page
N_ROWS, CHANGE = 12_000, 8_000


def flights() -> pd.DataFrame:
    """Return flights of half a year; after row CHANGE one airline has new aircraft."""
    rng = np.random.default_rng(7)
    wind = rng.gamma(4.0, 5.0, N_ROWS).round(1)
    airline = rng.choice(["Andes", "Boreal", "Coral", "Delta"], N_ROWS)
    days = np.sort(rng.uniform(0.0, 180.0, N_ROWS))
    departs = pd.Timestamp("2026-01-05") + pd.to_timedelta(days, unit="D").round("min")
    late = (wind - 25.0) / 4.0 + 1.5 * (departs.hour > 16)
    before = np.arange(N_ROWS) < CHANGE
    late += np.where(airline == "Boreal", np.where(before, 4.0, -4.0), 0.0)
    is_late = late + rng.logistic(size=N_ROWS) > 0.0
    is_off = late + rng.logistic(size=N_ROWS) > 7.0
    delayed = np.select([is_off, is_late], ["cancelled", "late"], "on time")
    columns = {"departs": departs, "airline": airline, "wind": wind, "delayed": delayed}
    return pd.DataFrame(columns)


def save(figure: object, name: str) -> None:
    """Write a figure."""
    path = FOLDER / name
    plots.save(figure, path)
    shrink(path)


def photograph(page: str, name: str) -> None:
    """Write what the beginning of a page looks like in a browser, chromium's."""
    path = FOLDER / name
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(page)
        file.flush()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        shot = [f"--screenshot={path}", f"--window-size={SCREEN}", f"file://{file.name}"]
        subprocess.run(["chromium", *options, *shot], check=True, capture_output=True)
    shrink(path)


def shrink(path: Path) -> None:
    """Leave a picture few colours and a moderate size."""
    with Image.open(path) as image:
        height = round(image.height * WIDTH / image.width)
        if image.width > WIDTH:
            image = image.resize((WIDTH, height), Image.Resampling.LANCZOS)
        few = image.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


def draw_shapes() -> None:
    """Draw the shapes of the guide, by its first block of code."""
    page = (FOLDER.parent / "guide" / "shapes.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], scope)
    save(scope["explanation"].plot_shapes(), "shapes.png")


def main() -> None:
    """Draw all pictures."""
    frame = flights()
    model = folklearn.Model(windows=True)
    run = model.run(frame[:CHANGE], target="delayed")
    run.name = "flights.csv"
    save(run.plot(), "run.png")
    save(plots.confusion(run.confusion, run.labels), "confusion.png")
    save(plots.calibration(run.metrics.calibration_curves(), run.labels), "calibration.png")
    save(model.explain().plot(), "weights.png")
    draw_shapes()
    photograph(model.report(title="Report on flights.folk"), "report.png")
    drift = folklearn.Model().run(frame, target="delayed")
    title = f"The data change at row {CHANGE:,}"
    save(plots.losses(ModelSummary(drift.labels, drift.metrics).segments, title=title), "drift.png")


if __name__ == "__main__":
    main()
