# SPDX-License-Identifier: Apache-2.0
"""The data that report.js draws: curves and the timeline of a step, as plain lists."""

import shlex

import numpy as np

from . import evaluation, timeline, timings
from .measures import energy_per_token, exposed_share, per_step
from .smoothing import common_window, smooth_curve
from .span_looks import legend_text, look_of
from .style import RED, colour_and_dash, groups, label
from .texts import in_small, number
from .timeline_picture import rows_of, window

MOST_BARS = 6000
DASHES = ("", "7 3", "2 3")


def plain(values):
    """Returns numbers for JSON: rounded to seven digits, None if not finite."""
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in np.asarray(values, dtype=float)]


def _axes(run, steps):
    """Returns the x values of a curve: steps and, if known, the tokens trained on up to each step."""
    places = {"step": plain(steps)}
    at, tokens = per_step(run, "step"), per_step(run, "tokens")
    if at is not None and tokens is not None:
        places["tokens"] = plain(np.interp(steps, np.append(0, at.values), np.append(0, tokens.values)))
    return places


def _curve(name, run, steps, values, unit, look, **more):
    unit = "" if unit in ("", "1") else unit
    return {"name": name, "x": _axes(run, steps), "y": plain(values), "unit": unit, **look, **more}


def _look(position):
    colour, dash = colour_and_dash(position)
    return {"colour": colour, "dash": DASHES[dash]}


def _of_steps(run, column, name, look, window, smoothed=True):
    """Returns the curves of a column of /steps: faint single steps and their running median, or only single steps without smoothing."""
    steps = per_step(run, "step")
    if column is None or steps is None:
        return []
    places, values = groups(steps.values, window.size), groups(column.values, window.size)
    if not smoothed or window.half <= 0:
        return [_curve(name, run, places, values, column.unit, look, marks=len(values) == 1)]
    return [_curve(name, run, places, values, column.unit, look, faint=True),
            _curve(name, run, *smooth_curve(steps.values, column.values, window), column.unit, look)]


def _chart(title, noun, curves, zero=False):
    """Returns a chart, or None if there is nothing to draw."""
    if not curves:
        return None
    units = sorted({curve["unit"] for curve in curves} - {""})
    axes = [{"key": "step", "label": "step"}]
    if all("tokens" in curve["x"] for curve in curves):
        axes.append({"key": "tokens", "label": "tokens"})
    return {"title": title, "y": label(noun, ", ".join(units)), "series": curves, "axes": axes, "zero": zero, "note": ""}


def _losses(runs, names, window):
    curves = []
    for at, (run, name) in enumerate(zip(runs, names)):
        before = name + ", " if len(runs) > 1 else ""
        curves += _of_steps(run, per_step(run, "loss"), before + "training", _look(at), window)
        step, checked = run.validation.get("step"), run.validation.get("loss")
        if step is not None and checked is not None and len(checked):
            look = {**_look(at), "dash": "4 3"} if before else {"colour": RED, "dash": ""}
            curves.append(_curve(before + "validation", run, step.values, checked.values, checked.unit, look, marks=True))
    return curves


def _sets(runs, names, columns):
    """Returns curves of evaluate.sets, with a colour for each set of each run and a dash for each kind of number."""
    curves, kinds = [], [kind for _, kind in columns]
    for run, name in zip(runs, names):
        for set_name, table in run.evaluation.items():
            colour = _look(len({one["of"] for one in curves}))["colour"]
            for found in evaluation.curves({set_name: table}, columns):
                title = ", ".join(filter(None, (name if len(runs) > 1 else "", set_name, found.kind)))
                curves.append(_curve(title, run, found.steps, found.values, found.unit, {"colour": colour, "dash": DASHES[kinds.index(found.kind)]},
                                     marks=True, error=plain(found.errors), of=(name, set_name)))
    for curve in curves:
        del curve["of"]
    return curves


def charts(runs, names):
    """Returns the charts in the order of the page."""

    window = common_window([run.steps["step"].values if "step" in run.steps else None for run in runs])

    def columns(get, smoothed=True):
        return [curve for at, (run, name) in enumerate(zip(runs, names)) for curve in _of_steps(run, get(run), name, _look(at), window, smoothed)]

    found = [
        _chart("Loss", "loss", _losses(runs, names, window)),
        _chart("Losses of evaluate.sets", "loss", _sets(runs, names, evaluation.LOSSES)),
        _chart("Multiple choice of evaluate.sets", "right answers", _sets(runs, names, evaluation.ACCURACIES)),
        _chart("Speed", "speed", columns(lambda run: per_step(run, "tokens_per_s")), zero=True),
        _chart("Exposed communication, of the step (rank 0)", "share", columns(exposed_share), zero=True),
        _chart("Energy of CPUs, memory and GPUs", "energy", columns(energy_per_token), zero=True),
        _chart("Norm of the gradient", "norm", columns(lambda run: per_step(run, "grad_norm")), zero=True),
        _chart("Learning rate", "learning rate", columns(lambda run: per_step(run, "learning_rate"), False), zero=True),
    ]
    for chart in filter(None, found):
        if any(curve.get("faint") for curve in chart["series"]):
            chart["note"] = "Thick: running median. Thin: " + ("single steps." if window.size <= 1 else f"medians of {window.size} steps.")
    return [chart for chart in found if chart]


def typical_step(run):
    """Returns the recorded step whose time is nearest to the median; None if no spans of whole steps were recorded."""
    steps, parts = timings.step_table(run)
    if not len(steps):
        return None
    seconds = sum(values for _, values in parts)
    return int(steps[np.argmin(np.abs(seconds - np.median(seconds)))])


def step_picture(run, step=None):
    """Returns the timeline of a step, or `left_out`, a sentence that says why it is omitted; None without spans of whole steps."""
    step = typical_step(run) if step is None else step
    if step is None:
        return None
    found = timeline.step_timeline(run, step)
    bars = sum(len(rank.intervals) for rank in found.ranks)
    if bars > MOST_BARS:
        return {"left_out": f"The timeline of step {step} is left out: it has {number(bars)} spans, and a page takes at most {number(MOST_BARS)}. To draw "
                            f"it, or some of its ranks with --ranks: trireme-postproc timeline {shlex.quote(run.path)} --step {step} --png step.png"}
    unit = run.sample_units.get("duration_s", "")
    factor, small = in_small(unit)
    positions = {span.name: at for at, span in enumerate(run.spans)}
    rows, legend = [], {}
    lanes_of, _, together = rows_of(found)
    for rank, lanes in zip(found.ranks, lanes_of):
        for row in sorted(set(lanes.values())):
            names = [lane for lane, at in lanes.items() if at == row]
            is_compute = timeline.COMPUTE in names
            bars = []
            for interval in rank.intervals:
                if interval.lane in names and interval.span.name != timings.ROOT:
                    look = look_of(interval.span, positions[interval.span.name])
                    legend.setdefault(legend_text(interval.span), look)
                    bars.append([*plain([interval.begin * factor, interval.duration * factor]), look.colour, _bar_text(found, interval, factor, small),
                                 interval.span.waits, look.hatch])
            rows.append({"label": f"rank {rank.rank}" if is_compute else "buckets" if together else names[0],
                         "bold": is_compute, "bars": bars})
    begin, end = window(found)
    return {"title": f"Step {step} of {run.name}", "rows": rows, "legend": [[text, *look] for text, look in legend.items()], "extent": plain([begin * factor, end * factor]),
            "axis": label("time since the first rank began the step", small), "note": found.alignment()}


def _bar_text(found, interval, factor, unit):
    text = f"{interval.span.name}: {interval.duration * factor:.4g} {unit} from {interval.begin * factor:.4g} {unit}"
    if interval.span.index_of:
        parameters = found.parameters(interval.index)
        text += f", {interval.span.index_of} {interval.index}" + (f" ({' … '.join(parameters)})" if parameters else "")
    elif interval.micro:
        text += f", micro-step {interval.micro}"
    return text
