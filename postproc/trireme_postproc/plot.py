# SPDX-License-Identifier: Apache-2.0
"""The picture of a run: loss, learning rate, speed, where the time of a step goes, and what else was measured."""

import os

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator  # noqa: E402

from . import evaluation, timings  # noqa: E402
from .run_file import RunFileError  # noqa: E402
from .summary import number, with_error  # noqa: E402

# Okabe and Ito's palette, which people with colour blindness can tell apart.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PARTS = (BLUE, "#56B4E9", GREEN, RED, ORANGE, "#CC79A7", "#F0E442")
GREY = "#B8BCC2"
INK = "#30343A"
SETS = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9")
DASHES = ("-", (0, (3.5, 1.5)), (0, (1.2, 1.4)))
MOST_BARS = 80
# Inches of the picture, without and of each row that is added below.
PANELS, ADDED = 7.6, 3.2

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
    "figure.facecolor": "white",
}


def label(name, unit):
    return name if unit in ("", "1") else f"{name} [{unit}]"


def smooth(values, window):
    """Centred running median: a spike does not move it."""
    half = window // 2
    return np.array([np.median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))])


def bins(steps, most=MOST_BARS):
    """Cuts steps into at most so many groups of equal width; returns edges."""
    first, last = int(steps[0]), int(steps[-1])
    width = max(1, int(np.ceil((last - first + 1) / most)))
    count = int(np.ceil((last - first + 1) / width))
    return first - 0.5 + width * np.arange(count + 1)


def _empty(axes, text):
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="#8A9099")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def _series(axes, run, name, colour, title, noun):
    """One column of /steps over the step; long ones with a running median."""
    axes.set_title(title)
    step, column = run.steps.get("step"), run.steps.get(name)
    if step is None or column is None or not len(column):
        _empty(axes, "no steps recorded")
        return False
    x, y = step.values, column.values
    axes.set_ylabel(label(noun, column.unit))
    marker = "o" if len(y) == 1 else None
    if len(y) >= 60 and name != "learning_rate":
        axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
        y = smooth(y, max(5, len(y) // 40))
    axes.plot(x, y, color=colour, linewidth=1.8, marker=marker, label="training")
    return True


def _powers_of_ten(axes, noun):
    """Puts the power of ten of small values into the axis label."""
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
        _empty(axes, "no spans recorded")
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
    colours = iter(PARTS * (1 + len(parts) // len(PARTS)))
    for name, seconds in parts:
        height = np.bincount(group, weights=seconds, minlength=len(edges) - 1) / count
        height = height * factor
        share = 100 * seconds.sum() / max(total.sum(), 1e-300)
        axes.bar(
            edges[:-1],
            height,
            width=np.diff(edges),
            bottom=bottom,
            align="edge",
            color=GREY if name == timings.REST else next(colours),
            edgecolor="white",
            linewidth=0.5 if len(edges) < 40 else 0.0,
            label=f"{name}  {share:.1f} %",
        )
        bottom += height
    usual, highest = float(np.median(bottom[bottom > 0])), float(bottom.max())
    if highest > 3 * usual:  # a slow first step would hide all others
        axes.set_ylim(0, 1.6 * usual)
        axes.text(
            edges[int(np.argmax(bottom))],
            1.62 * usual,
            f" ↑ {number(highest, 3)} {unit}",
            va="bottom",
            fontsize=8.5,
        )
    axes.set_ylabel(label("time, mean of ranks", unit))
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0
    )


def _batch_tokens(run):
    """Tokens of a step, by the deck; None where it does not tell."""
    try:
        return int(run.deck["batch.sequences"]) * int(run.deck["model.context"])
    except (KeyError, ValueError):
        return None


def _has_noise_scale(run):
    """Rows, in all columns that the picture takes."""
    wanted = ("step", "tokens", "sequences", "trace", "gradient_squared")
    return all(len(run.noise_scale.get(name, ())) > 0 for name in wanted)


def _noise_scale(axes, run):
    """The smoothed noise scale, what single steps say of it, and the batch that the run had."""
    axes.set_title("Gradient noise scale")
    step, scale = run.noise_scale["step"].values, run.noise_scale["tokens"]
    trace, gradient, sequences = (
        run.noise_scale[name].values for name in ("trace", "gradient_squared", "sequences")
    )
    known = np.isfinite(scale.values) & np.isfinite(sequences)
    batch = _batch_tokens(run)
    if not known.any():
        _empty(axes, "the noise hides the gradient: no positive estimate")
        return
    length = scale.values[known][-1] / sequences[known][-1]
    single = (trace > 0) & (gradient > 0)
    axes.plot(
        step[single],
        trace[single] / gradient[single] * length,
        color=GREY,
        linestyle="none",
        marker=".",
        markersize=4,
        label="single steps (those with a positive estimate)",
    )
    axes.plot(
        step[known],
        scale.values[known],
        color=BLUE,
        linewidth=1.8,
        marker="o" if known.sum() == 1 else None,
        label="smoothed",
    )
    if batch:
        axes.axhline(batch, color=RED, linewidth=1.2, linestyle=(0, (4, 3)), label="batch of a step")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel(label("noise scale", scale.unit))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _sets(axes, curves, title, noun):
    """Curves of evaluate.sets with bands of one standard error: a colour for each set, a dash for each kind of number."""
    axes.set_title(title)
    names = sorted({curve.name for curve in curves})
    kinds = sorted({curve.kind for curve in curves}, key=[curve.kind for curve in curves].index)
    for curve in curves:
        colour = SETS[names.index(curve.name) % len(SETS)]
        kind = f", {curve.kind}" if len(kinds) > 1 else ""
        axes.plot(
            curve.steps,
            curve.values,
            color=colour,
            linewidth=1.6,
            linestyle=DASHES[kinds.index(curve.kind) % len(DASHES)],
            marker="o",
            markersize=4,
            label=f"{curve.name}{kind}  {with_error(curve, -1)}",
        )
        if np.isfinite(curve.errors).any():
            low, high = curve.values - curve.errors, curve.values + curve.errors
            axes.fill_between(curve.steps, low, high, color=colour, alpha=0.13, linewidth=0)
    units = sorted({curve.unit for curve in curves})
    axes.set_ylabel(label(noun, ", ".join(units)))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, handlelength=3.6)


def _added_rows(run):
    """What the run measured besides: a function of the axes for each row below the four panels."""
    rows = []
    losses = evaluation.curves(run.evaluation, evaluation.LOSSES)
    accuracies = evaluation.curves(run.evaluation, evaluation.ACCURACIES)
    if losses:
        rows.append(lambda axes: _sets(axes, losses, "Losses of evaluate.sets (last value)", "loss"))
    if accuracies:
        title = "Multiple choice of evaluate.sets (last value ± standard error)"
        rows.append(lambda axes: _sets(axes, accuracies, title, "right answers"))
    if _has_noise_scale(run):
        rows.append(lambda axes: _noise_scale(axes, run))
    return rows


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
    return name, " · ".join(details)


def expect_picture(output):
    """Refuses a name that says no kind of picture."""
    known = plt.figure().canvas.get_supported_filetypes()
    plt.close("all")
    ending = os.path.splitext(output)[1].lstrip(".").lower()
    if ending not in known:
        raise RunFileError(f"{output}: a picture's name must end in one of .png, .pdf, .svg")


def plot(run, output):
    """Writes the picture; its kind follows from the name's ending."""
    expect_picture(output)
    with plt.rc_context(STYLE):
        rows = _added_rows(run)
        added = ADDED * len(rows)
        height = PANELS + added
        figure = plt.figure(figsize=(12, height), dpi=130)

        def at(share):
            """Where a share of the height of a picture without added rows lies in this one."""
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
        name, details = _heading(run)
        figure.text(0.02, at(0.945), name, fontsize=16, fontweight="bold")
        figure.text(0.02, at(0.915), details, fontsize=9.5, color="#6A707A")
        try:
            figure.savefig(output)
        finally:
            plt.close(figure)
