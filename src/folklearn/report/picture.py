"""The figure that pictures are drawn on; imports matplotlib, so it is imported late."""

from matplotlib.figure import Figure

from folklearn.report import canvas


class Picture(Figure):
    """A matplotlib figure that a notebook shows without pyplot."""

    def _repr_html_(self) -> str:
        return canvas.svg(self)
