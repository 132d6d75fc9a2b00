# SPDX-License-Identifier: Apache-2.0
"""What all pictures share: colours, the style, and refusing names without a kind of picture."""

import os

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.backend_bases import FigureCanvasBase  # noqa: E402

from .run_file import RunFileError  # noqa: E402

# Okabe and Ito's palette, which people with colour blindness can distinguish.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE = "#56B4E9", "#CC79A7"
GREY = "#B8BCC2"
INK = "#30343A"
SETS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
DASHES = ("-", (0, (3.5, 1.5)), (0, (1.2, 1.4)))
MOST_POINTS, FEWEST_SMOOTHED = 1500, 60

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#8A9099",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E8EB",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "hatch.linewidth": 1.1,
    "figure.facecolor": "white",
}


def label(name, unit):
    return name if unit in ("", "1") else f"{name} [{unit}]"


def groups(values, size):
    """Medians of each `size` values in a row; the last group may be smaller."""
    values = np.asarray(values, dtype=float)
    if size <= 1:
        return values
    whole = len(values) // size * size
    rest = [np.median(values[whole:])] if whole < len(values) else []
    return np.append(np.median(values[:whole].reshape(-1, size), axis=1), rest)


def group_size(count):
    """How many values make a point, so that a curve has no more than anyone can see."""
    return max(1, int(np.ceil(count / MOST_POINTS)))


def empty(axes, text):
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="#8A9099")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def expect_picture(output):
    """Refuses a name without a kind of picture."""
    known = FigureCanvasBase.get_supported_filetypes()
    ending = os.path.splitext(output)[1].lstrip(".").lower()
    if ending not in known:
        raise RunFileError(f"{output}: a picture's name must end in one of .png, .pdf, .svg")
