# SPDX-License-Identifier: Apache-2.0
"""The picture of scaling: speed over ranks compared with perfect scaling, and efficiency over ranks."""

import numpy as np
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator, ScalarFormatter

from .scaling import STRONG
from .style import GREY, SETS, STYLE, expect_picture, label, plt, save

MARKERS = ("o", "s", "^", "D", "v", "P")


def _of_ranks(one, value):
    """Returns the numbers of ranks and, for each, the median of a value over its repetitions."""
    ranks = np.array(sorted({point.ranks for point in one.points}))
    return ranks, np.array([np.median([value(point) for point in one.points if point.ranks == count]) for count in ranks])


def _look(position):
    return {"color": SETS[position % len(SETS)], "marker": MARKERS[position % len(MARKERS)], "markersize": 6}


def _dash(one):
    return "-" if one.kind == STRONG else (0, (3.5, 1.5))


def _rank_axis(axes, found):
    counts = sorted({point.ranks for one in found for point in one.points})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlim(counts[0] / 1.2, counts[-1] * 1.2)
    axes.set_xlabel("ranks")


def _speed(axes, found):
    axes.set_title("Speed: median and quartiles of the steps")
    for at, one in enumerate(found):
        ranks, speed = _of_ranks(one, lambda point: point.speed.median)
        axes.plot(ranks, speed[0] * ranks / ranks[0], color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label="perfect scaling" if at == 0 else None)
        axes.plot(ranks, speed, linewidth=1.8, linestyle=_dash(one), label=one.title(), **_look(at))
        for point in one.points:
            axes.plot([point.ranks] * 2, [point.speed.low, point.speed.high], color=_look(at)["color"], linewidth=1.4, marker="_", markersize=9)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel(label("speed", found[0].points[0].speed.unit))
    axes.legend(loc="upper left")


def _efficiency(axes, found):
    axes.set_title("Efficiency: speed of a rank, over that on the fewest ranks")
    highest = 100.0
    for at, one in enumerate(found):
        ranks, share = _of_ranks(one, lambda point: 100 * one.efficiency(point))
        axes.plot(ranks, share, linewidth=1.8, linestyle=_dash(one), **_look(at))
        highest = max(highest, float(share.max()))
        axes.annotate(f"{share[-1]:.0f} %", (ranks[-1], share[-1]), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=9,
                      color=_look(at)["color"])
    axes.axhline(100, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_ylim(0, 1.15 * highest)
    axes.set_ylabel("efficiency [%]")


def plot_scaling(found, output):
    """Writes the picture of the result of series(). The extension of `output` selects the format."""
    expect_picture(output)
    with plt.rc_context({**STYLE, "figure.constrained_layout.w_pad": 0.12, "figure.constrained_layout.h_pad": 0.1}):
        figure, (speed, efficiency) = plt.subplots(1, 2, figsize=(12, 4.8), dpi=130, layout="constrained")
        _speed(speed, found)
        _efficiency(efficiency, found)
        for axes in (speed, efficiency):
            _rank_axis(axes, found)
        save(figure, output)
