# SPDX-License-Identifier: Apache-2.0
"""The picture of an ablation: off over on of each row, with the quartiles of the turns and what the literature claims."""

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from .ablation_record import STEP
from .style import BLUE, GREY, INK, ORANGE, STYLE, expect_picture, plt
from .texts import number

FEW, MANY = 2.0, 100.0  # a panel whose ratios all lie within such a factor has marks at tenths, or at 1, 2, 3 and 5


def _panel(axes, rows, title):
    places = np.arange(len(rows))[::-1]
    axes.set_title(title)
    axes.axvline(1, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    for place, row in zip(places, rows):
        axes.plot([row.spread.low, row.spread.high], [place] * 2, color=BLUE, linewidth=2.2, solid_capstyle="butt")
        axes.plot(row.ratio, place, color=BLUE, marker="o", markersize=7, linestyle="none",
                  label="measured: medians, quartiles of turns" if place == 0 else None)
        axes.annotate(number(row.ratio, 3), (row.ratio, place), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8.5,
                      color=INK)
    claimed = [(row.claimed, place) for place, row in zip(places, rows) if np.isfinite(row.claimed)]
    if claimed:
        axes.plot(*zip(*claimed), color=ORANGE, marker="D", markersize=7, linestyle="none", markerfacecolor="white",
                  markeredgewidth=1.8, label="claimed", zorder=1.9)
    axes.set_yticks(places, [row.title if row.quantity == STEP else f"{row.title}:\n{row.quantity}" for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.3)
    axes.set_xscale("log")
    shown = [value for row in rows for value in (row.ratio, row.spread.low, row.spread.high, row.claimed, 1.0) if np.isfinite(value)]
    axes.set_xlim(min(shown) / 1.25, max(shown) * 1.25)
    factor = max(shown) / min(shown)
    axes.xaxis.set_major_locator(FixedLocator(np.arange(1, 100) / 10) if factor < FEW
                                 else LogLocator(subs=(1, 2, 3, 5) if factor < MANY else (1,)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("off / on (bandwidths: on / off); above 1 it pays")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)


def plot_ablation(ablation, output):
    """Writes the picture; its kind follows from the name's ending."""
    expect_picture(output)
    drawn = [row for row in ablation.rows if np.isfinite(row.ratio)]
    panels = [(rows, title) for rows, title in (
        ([row for row in drawn if row.quantity == STEP], "Time of a step"),
        ([row for row in drawn if row.quantity != STEP], "Single operations, bandwidths and bytes")) if rows]
    with plt.rc_context({**STYLE, "figure.constrained_layout.w_pad": 0.12}):
        height = 2.2 + 0.5 * max((len(rows) for rows, _ in panels), default=1)
        figure, places = plt.subplots(1, max(1, len(panels)), figsize=(13, height), dpi=130, layout="constrained", squeeze=False)
        for axes, (rows, title) in zip(places[0], panels):
            _panel(axes, rows, title)
        try:
            figure.savefig(output)
        finally:
            plt.close(figure)
