# SPDX-License-Identifier: Apache-2.0
"""The picture of predictions: predicted times of steps and checkpoints over measured times, with the line on which both are equal and a
band of 10 % around it."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from .style import BLUE, GREY, INK, RED, STYLE, expect_picture, plt, save

# Seven markers and six colours make 42 different cases. The colours have contrast on white and on the grey band of the goal.
MARKERS, COLOURS = ("o", "D", "s", "^", "v", "P", "X"), (BLUE, "#B07800", "#00805F", RED, "#AA3377", "#30343A")
WIDE, VERY_WIDE = 20.0, 200.0  # an axis whose ends differ by at least this factor has fewer ticks
GOAL = 0.1


def _marked(cases):
    """Returns triples (case, marker, colour)."""
    return [(case, MARKERS[at % len(MARKERS)], COLOURS[at % len(COLOURS)]) for at, case in enumerate(cases)]


def _times(axes, cases):
    values = np.concatenate([np.concatenate([case.measured_low, case.measured_high, case.predicted]) for case in cases]) * 1e3
    low, high = values.min() / 1.3, values.max() * 1.3
    axes.fill_between([low, high], [low * (1 - GOAL), high * (1 - GOAL)], [low * (1 + GOAL), high * (1 + GOAL)], color=GREY, alpha=0.35,
                      linewidth=0, label=f"within {100 * GOAL:.0f} %")
    axes.plot([low, high], [low, high], color=INK, linewidth=1)
    for case, marker, color in _marked(cases):
        error = np.array([case.measured - case.measured_low, case.measured_high - case.measured]) * 1e3
        axes.errorbar(case.measured * 1e3, case.predicted * 1e3, xerr=error, color=color, marker=marker, markersize=6, linestyle="none",
                      elinewidth=1, alpha=0.9, label=_name(case))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    subs = (1, 2, 3, 5, 7) if high < WIDE * low else (1, 2, 5) if high < VERY_WIDE * low else (1,)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("measured [ms], with quartiles")
    axes.set_ylabel("predicted [ms]")
    axes.set_title("Times of steps and checkpoints")
    axes.legend(loc="upper left")


def _errors(axes, cases):
    axes.axvspan(-100 * GOAL, 100 * GOAL, color=GREY, alpha=0.35, linewidth=0)
    axes.axvline(0, color=INK, linewidth=1)
    places = np.arange(len(cases))[::-1]
    for place, (case, marker, color) in zip(places, _marked(cases)):
        axes.plot(100 * case.errors, [place] * len(case.errors), color=color, marker=marker, markersize=5, linestyle="none", alpha=0.75)
        axes.plot([100 * case.error] * 2, [place - 0.25, place + 0.25], color=color, linewidth=2.5)
    axes.set_yticks(places, [_name(case) for case in cases])
    axes.set_ylim(-0.6, len(cases) - 0.4)
    axes.set_xlabel("predicted over measured, less one [%]: rounds and their median")
    axes.set_title("Error")


def _name(case):
    return f"{case.ranks} {'rank' if case.ranks == 1 else 'ranks'}, {case.what}"


def plot_prediction(prediction, output):
    """Writes the picture. The extension of `output` selects the format."""
    expect_picture(output)
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, max(5.2, 1.6 + 0.42 * len(prediction.cases))), dpi=130, layout="constrained")
        _times(left, prediction.cases)
        _errors(right, prediction.cases)
        save(figure, output)
