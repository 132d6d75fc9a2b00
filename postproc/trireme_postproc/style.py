# SPDX-License-Identifier: Apache-2.0
"""Colours, style and output functions that all pictures share."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from .output_file import MAKER, ending_of, new_file  # noqa: E402
from .run_file import RunFileError  # noqa: E402

# After Okabe and Ito's palette, darkened to a contrast of 3 on white paper. tests/postproc/style_test.py checks that people with colour
# blindness can distinguish the colours, and that curves of equal dash differ when they are printed in grey.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#C08400", "#009470", "#D55E00"
GREY, EDGE, INK = "#B8BCC2", "#8A9099", "#30343A"
SETS = (BLUE, ORANGE, GREEN, INK, "#A33A00", "#8F3A76")
DASHES = ("-", (0, (3.5, 1.5)), (0, (1.2, 1.4)))
METADATA = {".png": "Software", ".pdf": "Creator", ".svg": "Creator"}  # by format: the metadata field for the program that made the picture
MOST_POINTS, FEWEST_SMOOTHED = 1500, 60

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": EDGE,
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


def colour_and_dash(position):
    """Returns the colour of a curve and the index of its dash. Neighbours differ in both, and 18 curves have different pairs."""
    return SETS[position % len(SETS)], (position + position // len(SETS)) % len(DASHES)


def plain(name):
    """Escapes a name that a user chose: Matplotlib treats $ as mathematics and hides labels that begin with _."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def label(name, unit):
    return name if unit in ("", "1") else f"{name} [{unit}]"


def groups(values, size):
    """Returns the medians of groups of `size` consecutive values; the last group may be smaller."""
    values = np.asarray(values, dtype=float)
    if size <= 1:
        return values
    whole = len(values) // size * size
    rest = [np.median(values[whole:])] if whole < len(values) else []
    return np.append(np.median(values[:whole].reshape(-1, size), axis=1), rest)


def group_size(count):
    """Returns how many values to combine into one point, so that a curve has at most MOST_POINTS points."""
    return max(1, int(np.ceil(count / MOST_POINTS)))


def empty(axes, text):
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="#8A9099")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def expect_picture(output):
    """Raises RunFileError if the extension of `output` is not a picture format."""
    if ending_of(output) not in METADATA:
        raise RunFileError(f"{output}: a picture's name must end in one of {', '.join(METADATA)}")


def save(figure, output):
    """Writes the picture and closes the figure."""
    try:
        with new_file(output) as file:
            figure.savefig(file, format=ending_of(output)[1:], metadata={METADATA[ending_of(output)]: MAKER})
    finally:
        plt.close(figure)
