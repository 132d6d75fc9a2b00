# SPDX-License-Identifier: Apache-2.0
"""The picture that compares runs: losses over tokens and their ratio, speed, and the time of a step by span."""

import numpy as np
from matplotlib.ticker import EngFormatter

from . import timings
from .compare import loss_column, times
from .measures import Spread, per_step
from .run_file import names_of
from .smoothing import common_window, ratio_curve, smooth_curve
from .span_looks import look_of
from .style import DASHES, GREY, INK, STYLE, colour_and_dash, empty, expect_picture, label, plain, plt, save
from .texts import number, with_unit

SAME = 1e-3  # relative difference of losses; smaller ones are drawn as a flat line


def _look(position):
    colour, dash = colour_and_dash(position)
    return {"color": colour, "linestyle": DASHES[dash]}


def _curves(runs):
    """Returns the smoothing window of the picture, and for each run (tokens, loss, unit of the loss) or None."""
    found = []
    for run in runs:
        tokens, loss = per_step(run, "tokens"), per_step(run, loss_column(runs))
        found.append((tokens.values, loss.values, loss.unit) if tokens is not None and loss is not None else None)
    return common_window([curve[0] if curve else None for curve in found]), found


def _losses(axes, window, curves, names):
    axes.set_title("Loss (running median)")
    units = sorted({curve[2] for curve in curves if curve})
    if not units:
        return empty(axes, "no steps recorded")
    for at, (curve, name) in enumerate(zip(curves, names)):
        if curve:
            width = {"linewidth": 4.5, "alpha": 0.45} if at == 0 else {"linewidth": 1.5}  # wide: visible below equal curves
            axes.plot(*smooth_curve(*curve[:2], window), label=name, marker="o" if len(curve[0]) == 1 else None, **width, **_look(at))
    axes.set_ylabel(label("loss", ", ".join(units)))
    axes.set_xlabel("tokens")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(loc="upper right", handlelength=3)


def _ratios(axes, window, curves, names):
    axes.set_title(f"Loss at equal tokens, over that of {names[0]}")
    first = curves[0]
    if first is None or not any(curve and curve[2] == first[2] for curve in curves[1:]):
        return empty(axes, "nothing to compare")
    most = drawn = 0.0
    for at, curve in enumerate(curves):
        if curve is None or curve[2] != first[2]:
            continue
        places, ratio = ratio_curve(*curve[:2], *first[:2])
        most = max(most, float(np.max(np.abs(ratio - 1), initial=0.0)))
        places, ratio = smooth_curve(places, ratio, window)
        drawn = max(drawn, float(np.max(np.abs(ratio - 1), initial=0.0)))
        axes.plot(places, ratio, linewidth=1.0 if at == 0 else 1.6, marker="o" if len(places) == 1 else None, **_look(at))
    axes.set_xlabel("tokens")
    axes.set_ylabel("ratio, running median")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.ticklabel_format(axis="y", useOffset=False)
    if drawn < SAME:  # do not magnify rounding errors
        axes.set_ylim(1 - SAME, 1 + SAME)
        text = f"largest difference: {most:.1e} of the loss" if most > 0 else "no difference"
        axes.text(0.99, 0.05, text, transform=axes.transAxes, ha="right")


def _rows(axes, names):
    axes.set_yticks(range(len(names)))
    axes.set_yticklabels(names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _write_next_to(axes, at, right, text):
    axes.annotate(text, (right, at), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5)


def _ratio_text(spread, first):
    ratio = spread.ratio(first) if first is not None else float("nan")
    return f"   × {number(ratio, 3)}" if np.isfinite(ratio) else ""


def _speeds(axes, runs, names):
    axes.set_title("Speed: median and quartiles of the steps")
    columns = [per_step(run, "tokens_per_s") for run in runs]
    spreads = [Spread(column.values, column.unit) if column is not None else None for column in columns]
    known = [spread for spread in spreads if spread is not None and spread.count]
    if not known:
        return empty(axes, "no steps recorded")
    for at, spread in enumerate(spreads):
        if spread is not None and spread.count:
            axes.barh(at, spread.median, color=_look(at)["color"], height=0.6, alpha=0.85)
            axes.plot([spread.low, spread.high], [at, at], color=INK, linewidth=1.6, marker="|", markersize=9)
            _write_next_to(axes, at, max(spread.median, spread.high), number(spread.median) + _ratio_text(spread, spreads[0]))
    _rows(axes, names)
    axes.set_xlim(0, 1.35 * max(max(spread.high, spread.median) for spread in known))
    axes.set_xlabel(label("speed", ", ".join(sorted({spread.unit for spread in known}))))
    axes.xaxis.set_major_formatter(EngFormatter())


def _times(axes, runs, names):
    axes.set_title("Time of the median step by span")
    rows = [row for row in times(runs) if row.text != timings.ROOT]
    units = sorted({spread.unit for row in rows for spread in row.spreads if spread is not None})
    if len(units) != 1:
        return empty(axes, "no spans recorded" if not units else "different units")
    ends = np.zeros(len(runs))
    widths = [[spread.median if spread is not None and spread.count else 0.0 for spread in row.spreads] for row in rows]
    factor, unit = (1e3, "ms") if units[0] == "s" and np.max(np.sum(widths, axis=0)) < 0.5 else (1.0, units[0])
    looks = {span.name: look_of(span, at) for run in runs for at, span in enumerate(run.spans)}
    for row, width in zip(rows, np.array(widths) * factor):
        colour, hatch = looks.get(row.text, (GREY, ""))
        axes.barh(range(len(runs)), width, left=ends, height=0.6, color=colour, edgecolor="white", linewidth=0.4, label=row.text,
                  hatch=hatch or None)
        ends += width
    for at, end in enumerate(ends):
        if end > 0:
            _write_next_to(axes, at, end, with_unit(end, unit) + (f"   × {number(end / ends[0], 3)}" if ends[0] > 0 else ""))
    _rows(axes, names)
    axes.set_xlim(0, 1.45 * max(ends.max(), 1e-300))
    axes.set_xlabel(label("time, mean of the recorded ranks", unit))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def plot_compare(runs, output):
    """Writes the picture. The extension of `output` selects the format."""
    expect_picture(output)
    names = [plain(name) for name in names_of(runs)]
    window, curves = _curves(runs)
    with plt.rc_context({**STYLE, "figure.constrained_layout.w_pad": 0.12, "figure.constrained_layout.h_pad": 0.12}):
        lower = 1.0 + 0.34 * max(3, len(runs))
        figure = plt.figure(figsize=(13, 4.4 + lower), dpi=130, layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(4.4, lower))
        _losses(figure.add_subplot(grid[0, 0]), window, curves, names)
        _ratios(figure.add_subplot(grid[0, 1]), window, curves, names)
        _speeds(figure.add_subplot(grid[1, 0]), runs, names)
        _times(figure.add_subplot(grid[1, 1]), runs, names)
        save(figure, output)
