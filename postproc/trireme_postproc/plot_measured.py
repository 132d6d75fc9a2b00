# SPDX-License-Identifier: Apache-2.0
"""Rows in the picture of a run that only some runs need: the sets of evaluate.sets and the gradient noise scale."""

import numpy as np
from matplotlib.ticker import EngFormatter

from . import evaluation
from .style import BLUE, DASHES, GREY, RED, SETS, empty, label
from .summary import with_error


def _batch_tokens(run):
    """Returns the steps and the tokens of each step, from the cumulative tokens; None if the run does not have them."""
    if not all(len(run.steps.get(name, ())) > 0 for name in ("step", "tokens")):
        return None
    step, tokens = run.steps["step"].values, run.steps["tokens"].values
    return step, np.diff(tokens, prepend=0) / np.diff(step, prepend=0)


def _has_noise_scale(run):
    """Whether all columns that the picture needs have rows."""
    wanted = ("step", "tokens", "sequences", "trace", "gradient_squared")
    return all(len(run.noise_scale.get(name, ())) > 0 for name in wanted)


def _noise_scale(axes, run):
    """Draws the smoothed noise scale, its values of single steps, and the batch size of the run."""
    axes.set_title("Gradient noise scale")
    step, scale = run.noise_scale["step"].values, run.noise_scale["tokens"]
    trace, gradient, sequences = (
        run.noise_scale[name].values for name in ("trace", "gradient_squared", "sequences")
    )
    known = np.isfinite(scale.values) & np.isfinite(sequences)
    batch = _batch_tokens(run)
    if not known.any():
        empty(axes, "the noise hides the gradient: no positive estimate")
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
        axes.plot(*batch, color=RED, linewidth=1.2, linestyle=(0, (4, 3)), drawstyle="steps-pre", label="batch of a step")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel(label("noise scale", scale.unit))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _sets(axes, curves, title, noun):
    """Draws curves of evaluate.sets with bands of one standard error. Colours distinguish sets, dashes distinguish kinds of number."""
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


def added_rows(run):
    """Returns a drawing function (axes) for each row below the four panels, depending on what the run measured."""
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
