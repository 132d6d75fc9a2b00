# SPDX-License-Identifier: Apache-2.0
"""The picture of a sweep of the learning rate (`trireme find-rate DECK --json FILE`)."""

import json
import os

import numpy as np

from .style import BLUE, GREEN, GREY, RED, STYLE, expect_picture, plt, save
from .run_file import RunFileError

FILETYPE = "trireme-rates"
MAJOR_VERSION = 1
SERIES = ("rate", "loss", "smoothed")
MARKS = (("steepest", GREEN, "falls fastest"), ("diverges", RED, "diverges"))


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)


def read_rates(path):
    """Returns the file as a dictionary. Raises RunFileError if it is not a valid sweep."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError as error:
        raise RunFileError(f"{path}: does not exist") from error
    except ValueError as error:
        raise RunFileError(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("filetype") != FILETYPE:
        raise RunFileError(f"{path}: is not a sweep of trireme find-rate: its filetype is not '{FILETYPE}'")
    version = found.get("version")
    if not isinstance(version, list) or not version or version[0] != MAJOR_VERSION:
        raise RunFileError(f"{path}: version {version}, this program reads {MAJOR_VERSION}.x")
    lengths = set()
    for name in SERIES:
        values = found.get(name)
        if not isinstance(values, list) or not values or not all(_is_number(v) for v in values):
            raise RunFileError(f"{path}: '{name}' is not a list of numbers")
        lengths.add(len(values))
    if len(lengths) != 1 or min(found["rate"]) <= 0:
        raise RunFileError(f"{path}: rates that are not positive, or of another number than losses")
    for name in ("steepest", "diverges", "suggested"):
        if found.get(name) is not None and not _is_number(found[name]):
            raise RunFileError(f"{path}: '{name}' is not a number")
    found["name"] = os.path.basename(path)
    return found


def plot_rates(sweep, output):
    """Writes the picture. The extension of `output` selects the format."""
    expect_picture(output)
    rate, loss, smoothed = (np.asarray(sweep[name], dtype=float) for name in SERIES)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(9, 5.2), dpi=130, layout="constrained")
        axes.plot(rate, loss, color=BLUE, alpha=0.35, linewidth=0.9, label="loss of a step")
        axes.plot(rate, smoothed, color=BLUE, linewidth=1.9, label="smoothed")
        axes.set_xscale("log")
        for key, colour, text in MARKS:
            if sweep.get(key) is not None:
                axes.axvline(
                    sweep[key],
                    color=colour,
                    linewidth=1.2,
                    linestyle=(0, (4, 3)),
                    label=f"{text}: {sweep[key]:.2g}",
                )
        title = f"Learning rate: {sweep['name']}"
        if sweep.get("suggested") is not None:
            title += f", suggested {sweep['suggested']:.2g}"
            axes.axvspan(sweep["suggested"] / 1.1, sweep["suggested"] * 1.1, color=GREY, alpha=0.5)
        # Limit the axis: losses that diverge may be a hundred times as large as the rest.
        low, high = float(smoothed.min()), float(max(smoothed[0], np.median(smoothed)))
        margin = max(high - low, 1e-12)
        most = max(high, min(float(loss.max()), high + 0.5 * margin))
        axes.set_ylim(low - 0.15 * margin, most + 0.1 * margin)
        axes.set_title(title)
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss [nat/token]")
        axes.legend(loc="lower left")
        save(figure, output)
