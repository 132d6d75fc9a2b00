# SPDX-License-Identifier: Apache-2.0
"""The table of a run: its facts, results and speed, and where its time went."""

import numpy as np

from . import evaluation, timings
from .measures import energy_of_ranks, energy_per_token, steps_of_rows
from .texts import MISSING, columns_text, in_small, number, size, with_unit

# Attributes of the file at the top of the table, in this order, if the file has them.
FIRST = ("software", "software_version", "git_sha1", "date_and_time", "machine")
SHAPE = ("layers", "heads", "channels", "context", "vocabulary")


def _model(run):
    deck = run.deck
    preset = deck.get("model.preset", "none")
    shape = ", ".join(f"{deck['model.' + key]} {key}" if key.endswith("s") else f"{key} {deck['model.' + key]}"
                      for key in SHAPE if "model." + key in deck)
    if preset not in ("none", "", "~", "null"):
        return f"{preset} ({shape})" if shape else preset
    return shape or MISSING


def _parameters(run):
    for name in ("parameters", "num_parameters"):
        for source in (run.attributes, {k: v[0] for k, v in run.timing_facts.items()}):
            if name in source:
                try:
                    return number(int(float(source[name])))
                except ValueError:
                    return str(source[name])
    return MISSING


def facts(run):
    """Returns pairs (name, text) of facts about the run."""
    rows = [("run", str(run.deck.get("run.name", MISSING))), ("file", run.path)]
    for name in FIRST:
        value = str(run.attributes.get(name, ""))
        if value:
            rows.append((name.replace("_", " "), value))
    rows += [("model", _model(run)), ("parameters", _parameters(run))]
    sessions = run.sessions.get("ranks")
    if sessions is not None and len(sessions):
        ranks = [str(int(r)) for r in sessions.values]
        text = ranks[0] if len(set(ranks)) == 1 else ", then ".join(ranks)
        rows.append(("ranks", text))
        if len(ranks) > 1:
            rows.append(("sessions", str(len(ranks))))
    return rows


def _last(column):
    return column.values[-1]


def _in_bytes(table, row):
    """Returns the loss of a row in bits per byte as text; empty if not known, as in older records and for some tokens."""
    bits = table.get("bits_per_byte")
    if bits is None or len(bits) < abs(row) or not np.isfinite(bits.values[row]):
        return ""
    return f", {with_unit(bits.values[row], bits.unit)}"


def with_error(curve, row):
    """Returns a value of an evaluation.Curve with its standard error and unit. Percentages have two decimals."""

    def shown(value):
        return f"{value:.2f}" if curve.unit == "%" else number(value)

    text = shown(curve.values[row])
    if np.isfinite(curve.errors[row]):
        text += f" ± {shown(curve.errors[row])}"
    return text if curve.unit in ("", "1") else f"{text} {curve.unit}"


def evaluations(run):
    """Returns pairs (name, text) with the first and last values of each set of evaluate.sets."""
    rows = []
    every = evaluation.LOSSES + evaluation.IN_BYTES + evaluation.ACCURACIES
    for name, table in run.evaluation.items():
        curves = evaluation.curves({name: table}, every)
        steps = sorted({int(step) for curve in curves for step in curve.steps})
        for word, step in (("first", steps[0]), ("last", steps[-1])) if len(steps) > 1 else [("", step) for step in steps]:
            texts = []
            for curve in curves:
                for row in np.flatnonzero(curve.steps == step)[-1:]:
                    texts.append(f"{curve.kind} {with_error(curve, row)}".strip())
            rows.append((", ".join(filter(None, (f"set {name}", word))), f"{', '.join(texts)} (step {step})"))
    return rows


def results(run):
    """Returns pairs (name, text) of results. Units are those of the file."""
    from .run_state import run_state  # not at the top: it imports watch, which imports this module

    rows = [("state", run_state(run).text)]
    steps = run.steps
    step = steps.get("step")
    done = int(_last(step)) if step is not None and len(step) else 0
    wanted = run.deck.get("run.steps")
    note = " (not finished)" if run.finished() is False else ""
    rows.append(("steps", f"{done} of {wanted}{note}" if wanted else str(done)))

    loss = steps.get("loss")
    if loss is not None and len(loss):
        rows.append(("loss, first", with_unit(loss.values[0], loss.unit)))
        rows.append(("loss, last", with_unit(_last(loss), loss.unit) + _in_bytes(steps, -1)))
    checked = run.validation.get("loss")
    if checked is not None and len(checked):
        at = run.validation.get("step")
        finite = np.where(np.isfinite(checked.values), checked.values, np.inf)
        best = int(np.argmin(finite))

        def where(row):
            return f" (step {int(at.values[row])})" if at is not None else ""

        for name, row in (("first", 0), ("best", best), ("last", -1)):
            text = with_unit(checked.values[row], checked.unit) + _in_bytes(run.validation, row) + where(row)
            rows.append((f"validation, {name}", MISSING if name == "best" and np.isinf(finite[row]) else text))
    else:
        rows.append(("validation", MISSING))
    rows += evaluations(run)

    noise = run.noise_scale.get("tokens")
    if noise is not None and len(noise):
        text = with_unit(_last(noise), noise.unit) if np.isfinite(_last(noise)) else "not known"
        rows.append(("noise scale, last", text))

    tokens = steps.get("tokens")
    if tokens is not None and len(tokens):
        rows.append(("tokens", with_unit(_last(tokens), tokens.unit)))
    seconds = steps.get("seconds")
    if seconds is not None and len(seconds):
        each = steps_of_rows(run)
        text = f" (estimated from {len(seconds)} recorded steps)" if np.any(each > 1) else ""
        rows.append(("time in steps", with_unit((seconds.values * each).sum(), seconds.unit) + text))
        rows.append(("step, median", with_unit(np.median(seconds.values), seconds.unit)))
    for name, label in (("tokens_per_s", "speed, median"), ("flops_per_s", "arithmetic, median")):
        column = steps.get(name)
        if column is not None and len(column):
            rows.append((label, with_unit(np.median(column.values), column.unit)))
    exposed = steps.get("exposed_s")
    if exposed is not None and len(exposed):
        text = with_unit(exposed.values.mean(), exposed.unit) + " per step"
        if seconds is not None and len(seconds) and seconds.values.sum() > 0:
            text += f" ({100 * exposed.values.sum() / seconds.values.sum():.1f} % of the step)"
        rows.append(("exposed communication, mean", text))
    energy = energy_per_token(run)
    if energy is not None:
        rows.append(("energy, median", with_unit(np.nanmedian(energy.values), energy.unit)))
    rows += [(f"energy of {what}", text) for what, text in energy_of_ranks(run)]
    for name, (value, unit) in run.memory.items():
        rows.append((f"memory, {name.replace('_', ' ')}", size(value, unit)))
    dropped = run.timing_facts.get("dropped", (0, ""))[0]
    if dropped:
        rows.append(("spans dropped", number(dropped)))
    return rows


def time_table(run):
    """Returns lines with the time by span, indented by nesting. The time of a part of a step does not include parts inside it."""
    rows = timings.totals(run)
    if not rows:
        return ["no spans were recorded"]
    steps, parts = timings.step_table(run)
    ranks = timings.ranks_in(run, steps if len(steps) else run.samples["step"])
    sums = {}
    if len(steps):  # use only whole steps, so that the parts and the rest add up to the step
        sums = {label: np.array([seconds.mean(), seconds @ ranks]) for label, seconds in parts}
        sums[timings.ROOT] = sum(sums.values())
        for row in rows:
            if row.span.name in sums:
                row.per_step, row.total = sums[row.span.name]
    unit = run.sample_units.get("duration_s", "")
    whole = next((row.total for row in rows if row.span.name == timings.ROOT), 0.0)
    by_name = {row.span.name: row for row in rows}
    factor, small = in_small(unit)
    table = [
        ("span", "count", f"total [{unit}]", f"per step [{small}]", f"longest [{small}]", "share")
    ]

    def add(row, depth, inside):
        share = f"{100 * row.total / whole:.1f} %" if whole and inside else ""
        table.append(
            (
                "  " * depth + row.span.name,
                number(row.count),
                number(row.total),
                number(row.per_step * factor),
                number(row.longest * factor),
                share,
            )
        )
        for inner in rows:
            if inner.span.parent == row.span.name:
                add(inner, depth + 1, inside)

    if timings.ROOT in by_name:
        add(by_name[timings.ROOT], 0, True)
    if len(steps):
        rest, total = sums[timings.REST]
        table.append(("  " + timings.REST, "", number(total), number(rest * factor), "", f"{100 * total / whole:.1f} %" if whole else ""))
    for row in rows:
        if row.span.name != timings.ROOT and row.span.parent not in by_name:
            inside = row.span.name in sums
            add(row, int(inside), inside)
    fewest, most = ranks.min(), ranks.max()
    of_ranks = f"{most} rank{'s' if most != 1 else ''}" if fewest == most else f"{fewest} to {most} ranks"
    head = f"time by span ({of_ranks}; mean per step and rank; parts of a step without those inside them)"
    return [head] + columns_text(table, "  ")


def summary(run):
    """Returns the whole table as text."""
    lines = []
    tables = (facts(run), results(run))
    width = max(len(name) for rows in tables for name, _ in rows)
    for rows in tables:
        lines += [f"{name.ljust(width)}  {text}" for name, text in rows] + [""]
    return "\n".join(lines + time_table(run)) + "\n"
