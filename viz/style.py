"""Colours and headings that all figures share; both colour scales are safe for colour-blind readers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from emulator.products import Product

OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
"""The palette of Okabe and Ito, for up to eight things."""
FEW = len(OKABE_ITO)
INK, FAINT = "#222222", "#777777"
DPI = 150
SMALL, NORMAL, LARGE = 8, 9, 11
LINE_INCHES = 0.2


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure with a canvas of its own."""
    figure = Figure(figsize=(width_inches, height_inches), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def core_colours(cores: int) -> list[Any]:
    """One colour for each core: distinct when they are few, else along a scale."""
    if cores <= FEW:
        return list(OKABE_ITO[:cores])
    scale = colormaps["viridis"].resampled(cores)
    return [scale(i) for i in range(cores)]


def ink_on(colour: Any) -> str:
    """Black or white, whichever can be read on ``colour``."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def heading_lines(product: Product, width_inches: float) -> list[str]:
    """The product's label, broken to the width."""
    return textwrap.wrap(product.label, int(width_inches * 14))


def draw_heading(figure: Figure, title: str, lines: list[str]) -> None:
    """Title and product at the top left; `heading_inches` is the room they take."""
    width, height = figure.get_size_inches()
    left = 0.25 / width
    figure.text(left, 1 - 0.12 / height, title, fontsize=LARGE, fontweight="bold", va="top", color=INK)
    text = "\n".join(lines)
    figure.text(left, 1 - 0.4 / height, text, fontsize=NORMAL, va="top", color=FAINT, linespacing=1.4)


def heading_inches(lines: list[str]) -> float:
    """Height of the heading."""
    return 0.5 + LINE_INCHES * len(lines)


def tidy(axes: Any) -> None:
    """Only the lines that help."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=SMALL, colors=INK)
