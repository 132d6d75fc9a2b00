# SPDX-License-Identifier: Apache-2.0
"""The picture of an ablation: the ratio off / on of each row, with the quartiles of the rounds and the claim of the literature."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullLocator

from .ablation_record import STEP
from .style import BLUE, INK, STYLE, empty, expect_picture, plt, save
from .texts import number

FEWEST, FEW, MANY = 1.4, 2.0, 100.0  # ticks: every 0.1, 0.2, or at 1, 2, 3, 5, if largest / smallest value is below this
WIDTH, LINE, AROUND = 9.0, 0.25, 1.25  # inches: width; height of a text line; space around the rows of a panel
CLAIMED = "#C08400"  # orange with enough contrast on white


def _name(row):
    return row.title if row.quantity == STEP else f"{row.title}:\n{row.quantity}"


def _lines(rows):
    return sum(_name(row).count("\n") + 1 for row in rows)


def _panel(axes, rows, title):
    lines = np.array([_name(row).count("\n") + 1 for row in rows])
    places = np.sum(lines) - np.cumsum(lines) + lines / 2
    axes.set_title(title, pad=24)
    axes.axvline(1, color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    claimed = [(row.claimed, place) for place, row in zip(places, rows) if np.isfinite(row.claimed)]
    if claimed:
        axes.plot(*zip(*claimed), color=CLAIMED, marker="D", markersize=11, linestyle="none", markerfacecolor="none",
                  markeredgewidth=1.6, label="claimed")
    for place, row in zip(places, rows):
        axes.plot([row.spread.low, row.spread.high], [place] * 2, color=BLUE, linewidth=2.2, solid_capstyle="butt", marker="|", markersize=7)
        text = number(row.ratio, 3) + (f"  (claimed {number(row.claimed, 3)})" if np.isfinite(row.claimed) else "")
        axes.annotate(text, (1, place), xycoords=axes.get_yaxis_transform(), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.plot([row.ratio for row in rows], places, color=BLUE, marker="o", markersize=6, linestyle="none",
              label="measured: ratio of medians, quartiles of rounds")
    axes.set_yticks(places, [_name(row) for row in rows])
    axes.set_ylim(0, np.sum(lines))
    axes.set_xscale("log")
    shown = [value for row in rows for value in (row.ratio, row.spread.low, row.spread.high, row.claimed, 1.0) if np.isfinite(value)]
    axes.set_xlim(min(shown) / 1.25, max(shown) * 1.25)
    factor = max(shown) / min(shown)
    axes.xaxis.set_major_locator(MultipleLocator(0.1) if factor < FEWEST else MultipleLocator(0.2) if factor < FEW
                                 else LogLocator(subs=(1, 2, 3, 5) if factor < MANY else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("ratio off / on (of bandwidths on / off), no unit; above 1 it pays")
    handles, texts = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], texts[::-1], loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, borderaxespad=0.2, handletextpad=0.3,
                columnspacing=1.2, fontsize=8.5)


def plot_ablation(ablation, output):
    """Writes the panels one below the other. The extension of `output` selects the format."""
    expect_picture(output)
    drawn = [row for row in ablation.rows if np.isfinite(row.ratio)]
    panels = [(rows, title) for rows, title in (
        ([row for row in drawn if row.quantity == STEP], "Time of a step"),
        ([row for row in drawn if row.quantity != STEP], "Single operations, bandwidths and bytes")) if rows]
    with plt.rc_context({**STYLE, "figure.constrained_layout.w_pad": 0.12, "figure.constrained_layout.h_pad": 0.1}):
        heights = [AROUND + LINE * max(2, _lines(rows)) for rows, _ in panels] or [3.0]
        figure, places = plt.subplots(len(heights), 1, figsize=(WIDTH, sum(heights)), dpi=130, layout="constrained", squeeze=False,
                                      gridspec_kw={"height_ratios": [height - AROUND + 0.01 for height in heights]})
        for axes, (rows, title) in zip(places[:, 0], panels):
            _panel(axes, rows, title)
        if not panels:
            empty(places[0, 0], "no row has a ratio")
        save(figure, output)
