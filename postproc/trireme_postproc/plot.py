# SPDX-License-Identifier: Apache-2.0
"""The picture of a run: loss, learning rate, speed, where the time of a step goes, and what else was measured."""

import os

import numpy as np
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator

from . import timings
from .plot_measured import added_rows
from .smoothing import common_window, smooth_curve
from .span_looks import look_of
from .style import BLUE, FEWEST_SMOOTHED, GREEN, GREY, INK, ORANGE, RED, STYLE, empty, expect_picture, label, plain, plt, save
from .texts import number

MOST_BARS = 80
# Height in inches of the four panels, and of each row that is added below them.
PANELS, ADDED = 7.6, 3.2


def bins(steps, most=MOST_BARS):
    """Divides steps into at most `most` groups of equal width. Returns the edges of the groups."""
    first, last = int(steps[0]), int(steps[-1])
    width = max(1, int(np.ceil((last - first + 1) / most)))
    count = int(np.ceil((last - first + 1) / width))
    return first - 0.5 + width * np.arange(count + 1)


def _series(axes, run, name, colour, title, noun):
    """Draws one column of /steps over the step, with a running median if it is long. Returns whether there was anything to draw."""
    axes.set_title(title)
    step, column = run.steps.get("step"), run.steps.get(name)
    if step is None or column is None or not len(column):
        empty(axes, "no steps recorded")
        return False
    x, y = step.values, column.values
    axes.set_ylabel(label(noun, column.unit))
    marker = "o" if len(y) == 1 else None
    if len(y) >= FEWEST_SMOOTHED and name != "learning_rate":
        axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
        x, y = smooth_curve(x, y, common_window([x]))
    axes.plot(x, y, color=colour, linewidth=1.8, marker=marker, label="training")
    return True


def _powers_of_ten(axes, noun):
    """Moves the power of ten of small values into the axis label."""
    highest = axes.get_ylim()[1]
    if not axes.has_data() or not 0 < highest < 0.01:
        return
    power = int(np.floor(np.log10(highest)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 10.0**power:.3g}"))
    axes.set_ylabel(f"{noun} [$10^{{{power}}}$]")


def _loss(axes, run):
    drawn = _series(axes, run, "loss", BLUE, "Loss", "loss")
    step, checked = run.validation.get("step"), run.validation.get("loss")
    if step is not None and checked is not None and len(checked):
        if not drawn:
            for text in axes.texts:
                text.remove()
            axes.yaxis.set_major_locator(MaxNLocator("auto"))
            axes.grid(True)
            axes.set_ylabel(label("loss", checked.unit))
        axes.plot(
            step.values,
            checked.values,
            color=RED,
            linewidth=1.4,
            marker="o",
            markersize=4.5,
            label="validation",
        )
        axes.annotate(
            number(checked.values[-1]),
            (step.values[-1], checked.values[-1]),
            xytext=(0, 9),
            textcoords="offset points",
            ha="right",
            color=RED,
        )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper right")


def _speed(axes, run):
    if not _series(axes, run, "tokens_per_s", GREEN, "Speed", "speed"):
        return
    column = run.steps["tokens_per_s"]
    median = float(np.median(column.values))
    axes.axhline(median, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_ylim(0, max(1e-300, float(np.nanpercentile(column.values, 99.5)) * 1.2))
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.text(
        0.99,
        0.05,
        f"median {number(median)} {column.unit}",
        transform=axes.transAxes,
        ha="right",
    )


def _time(axes, run):
    axes.set_title("Where the time of a step goes")
    steps, parts = timings.step_table(run)
    if not len(steps):
        empty(axes, "no spans recorded")
        return
    edges = bins(steps)
    group = np.clip(np.searchsorted(edges, steps, side="right") - 1, 0, len(edges) - 2)
    count = np.maximum(np.bincount(group, minlength=len(edges) - 1), 1)
    unit = run.sample_units.get("duration_s", "")
    total = sum(seconds for _, seconds in parts)
    factor = 1.0
    if unit == "s" and np.median(total) < 0.5:
        factor, unit = 1e3, "ms"
    bottom = np.zeros(len(edges) - 1)
    looks = {span.name: look_of(span, at) for at, span in enumerate(run.spans)}
    for name, seconds in parts:
        colour, hatch = looks.get(name, (GREY, ""))
        height = np.bincount(group, weights=seconds, minlength=len(edges) - 1) / count
        height = height * factor
        share = 100 * seconds.sum() / max(total.sum(), 1e-300)
        axes.bar(
            edges[:-1],
            height,
            width=np.diff(edges),
            bottom=bottom,
            align="edge",
            color=colour,
            edgecolor="white",
            hatch=hatch or None,
            linewidth=0.5 if len(edges) < 40 else 0.0,
            label=f"{name}  {share:.1f} %",
        )
        bottom += height
    usual, highest = float(np.median(bottom[bottom > 0])), float(bottom.max())
    if highest > 3 * usual:  # a slow first step would hide all other steps
        axes.set_ylim(0, 1.6 * usual)
        within = steps[group == np.argmax(bottom)]
        where = f"step {within[0]}" if len(within) == 1 else f"steps {within[0]} to {within[-1]}"
        axes.text(1.0, 1.02, f"↑ {where}: {number(highest, 3)} {unit}", transform=axes.transAxes, ha="right", fontsize=8.5)
    axes.set_ylabel(label("time, mean of ranks", unit))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0
    )


def _heading(run):
    name = str(run.deck.get("run.name", os.path.basename(os.path.dirname(run.path)) or run.path))
    details = []
    sessions = run.sessions.get("ranks")
    if sessions is not None and len(sessions):
        ranks = int(sessions.values[-1])
        details.append(f"{ranks} rank{'s' if ranks != 1 else ''}")
    for key in ("machine", "date_and_time"):
        if run.attributes.get(key):
            details.append(str(run.attributes[key]))
    if run.finished() is False:
        details.append("not finished")
    return plain(name), " · ".join(details)


def plot(run, output):
    """Writes the picture. The extension of `output` selects the format."""
    expect_picture(output)
    with plt.rc_context(STYLE):
        rows = added_rows(run)
        added = ADDED * len(rows)
        height = PANELS + added
        figure = plt.figure(figsize=(12, height), dpi=130)

        def at(share):
            """Converts a relative height in a picture without added rows to one in this picture."""
            return (PANELS * share + added) / height

        upper = figure.add_gridspec(
            1,
            2,
            left=0.065,
            right=0.975,
            top=at(0.855),
            bottom=at(0.55),
            width_ratios=(1.75, 1),
            wspace=0.2,
        )
        lower = figure.add_gridspec(
            1,
            2,
            left=0.065,
            right=0.80,
            top=at(0.42),
            bottom=at(0.075),
            width_ratios=(1, 1.2),
            wspace=0.27,
        )
        loss, rate = figure.add_subplot(upper[0]), figure.add_subplot(upper[1])
        speed, time = figure.add_subplot(lower[0]), figure.add_subplot(lower[1])
        _loss(loss, run)
        _series(rate, run, "learning_rate", ORANGE, "Learning rate", "learning rate")
        rate.set_ylim(bottom=0)
        _powers_of_ten(rate, "learning rate")
        _speed(speed, run)
        _time(time, run)
        every = [loss, rate, speed, time]
        for number_below, draw in enumerate(reversed(rows)):
            below = ADDED * number_below
            place = figure.add_gridspec(
                1, 1, left=0.065, right=0.70, top=(below + 2.65) / height, bottom=(below + 0.6) / height
            )
            every.append(figure.add_subplot(place[0]))
            draw(every[-1])
        for axes in every:
            axes.set_xlabel("step")
            if axes.has_data():
                low, high = axes.get_xlim()
                if high - low < 2:
                    axes.set_xlim((low + high) / 2 - 1, (low + high) / 2 + 1)
                axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
                if high >= 20000:
                    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        name, details = _heading(run)
        figure.text(0.02, at(0.945), name, fontsize=16, fontweight="bold")
        figure.text(0.02, at(0.915), details, fontsize=9.5, color="#6A707A")
        save(figure, output)
