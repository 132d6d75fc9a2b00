# SPDX-License-Identifier: Apache-2.0
"""The tables of a report, as HTML. Every text passes escape(): names and values come from files of unknown origin."""

import html
import re

import numpy as np

from . import evaluation, timings
from .compare import differences
from .resolved_deck import is_given, keys_given
from .span_looks import look_of
from .step_parts import parts as parts_of_run
from .style import EDGE
from .summary import facts, results, with_error
from .texts import MISSING, number, size, with_unit


def escape(text):
    return html.escape(str(text), quote=True)


def table(head, rows, numbers=()):
    """Returns an HTML table. `numbers`: indices of the columns with numbers, which are aligned to the right."""

    def cells(tag, row):
        return "".join(f'<{tag}{" class=number" if at in numbers else ""}>{cell if isinstance(cell, Raw) else escape(cell)}</{tag}>'
                       for at, cell in enumerate(row))

    body = "\n".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{cells('th', head)}</tr></thead>\n{body}\n</table>"


class Raw(str):
    """HTML that this package made, in which all texts are escaped already."""


def results_table(runs, names):
    """Returns the facts and results of the runs, with a column per run."""
    of_runs = [{key: text for key, text in facts(run)[:2] + results(run) if not key.startswith("memory, ")} for run in runs]
    keys = list(dict.fromkeys(key for one in of_runs for key in one))
    return table(["", *names], [[key, *(one.get(key, MISSING) for one in of_runs)] for key in keys])


def times_table(run):
    """Returns the parts of the median step, which add up to it, with bars in the colours of the timeline."""
    parts = parts_of_run(run)
    if not parts:
        return Raw("<p>No spans were recorded.</p>")
    unit = run.sample_units.get("duration_s", "")
    spans = {span.name: (span, at) for at, span in enumerate(run.spans)}
    rows = []
    for part, spread in parts:
        share = 100 * spread.share
        if part == timings.REST:
            help_text, colour = "what no span explains", EDGE
        else:
            help_text, colour = re.sub(r"^Within [^:]*: ", "", spans[part][0].help), look_of(*spans[part]).colour
        bar = f'<svg width="110" height="11" aria-hidden="true"><rect class="bar" width="{1.1 * share:.2f}" height="11" fill="{colour}"/></svg>'
        quartiles = f"{with_unit(spread.low, unit)} … {with_unit(spread.high, unit)}"
        rows.append([part, with_unit(spread.median, unit), quartiles, f"{share:.1f} %", Raw(bar), help_text])
    rows.append([timings.ROOT, with_unit(sum(spread.median for _, spread in parts), unit), "", "100.0 %", "", "the median step"])
    return table(["span", "part of the median step", "quartiles", "share", "", ""], rows, numbers=(1, 2, 3))


def evaluation_tables(runs, names):
    """Returns tables of validation and of every set of evaluate.sets, with a row per step and a column per kind of number."""
    parts = []
    for run, name in zip(runs, names):
        for title, rows_of in [("validation", run.validation), *(("set " + key, one) for key, one in run.evaluation.items())]:
            curves = evaluation.curves({title: rows_of}, evaluation.LOSSES + evaluation.IN_BYTES + evaluation.ACCURACIES)
            if not curves:
                continue
            steps = sorted({int(step) for curve in curves for step in curve.steps})
            head = ["step", *(curve.kind or ("loss" if curve.unit != "bit/byte" else "in bytes") for curve in curves)]
            rows = [[number(step), *(_at(curve, step) for curve in curves)] for step in steps]
            before = f"{name}: " if len(runs) > 1 else ""
            parts.append(f"<h3>{escape(before + title)}</h3>\n<div class=scroll>{table(head, rows, numbers=range(len(head)))}</div>")
    return "\n".join(parts) if parts else "<p>Nothing was evaluated.</p>"


def _at(curve, step):
    rows = np.flatnonzero(curve.steps == step)
    return with_error(curve, rows[-1]) if len(rows) else MISSING


def deck_tables(runs, names):
    """Returns the keys that differ between runs and, for each run, the keys that were given and the keys with their defaults."""
    parts = []
    if len(runs) > 1:
        rows = differences(runs)
        shown = table(["key", *names], [[key, *texts] for key, texts in rows]) if rows else "<p>None.</p>"
        parts.append("<h3>Differences between the runs</h3>" + shown)
    for run, name in zip(runs, names):
        given = keys_given(run)
        known = {key: value for key, value in sorted(run.deck.items())}
        before = f"{escape(name)}: " if len(runs) > 1 else ""
        if given is None:
            note = "Which of them are defaults is not known: there is no deck.resolved.yaml next to the record."
            parts.append(f"<h3>{before}all keys</h3><p class=note>{note}</p>"
                         f"<div class=scroll>{table(['key', 'value'], known.items())}</div>")
            continue
        changed = [(key, value) for key, value in known.items() if is_given(key, given)]
        rest = [(key, value) for key, value in known.items() if not is_given(key, given)]
        parts.append(f"<h3>{before}keys that were given</h3>{table(['key', 'value'], changed)}")
        parts.append(f"<details><summary>{before}{len(rest)} keys with their defaults</summary>{table(['key', 'value'], rest)}</details>")
    return "\n".join(parts)


def machine_tables(runs, names):
    """Returns facts about machine and build, memory, and the starts of each run."""
    keys = list(dict.fromkeys(key for run in runs for key in run.attributes if key != "filetype"))
    rows = [[key.replace("_", " "), *(_fact(run.attributes.get(key, MISSING)) for run in runs)] for key in keys]
    facts_of = list(dict.fromkeys(key for run in runs for key in run.timing_facts))
    for key in facts_of:
        rows.append([key.replace("_", " "), *(with_unit(*run.timing_facts[key]) if key in run.timing_facts else MISSING for run in runs)])
    memory = list(dict.fromkeys(key for run in runs for key in run.memory))
    rows += [["memory, " + key.replace("_", " "), *(size(*run.memory[key]) if key in run.memory else MISSING for run in runs)] for key in memory]
    parts = [table(["", *names], rows)]
    for run, name in zip(runs, names):
        shown = [key for key in ("first_step", "date_and_time", "ranks", "machine") if key in run.sessions]
        if shown and len(run.sessions[shown[0]]):
            rows = list(zip(*(run.sessions[key].values.tolist() for key in shown)))
            parts.append(f"<h3>{escape(name)}: starts</h3>{table([key.replace('_', ' ') for key in shown], rows)}")
    return "\n".join(parts)


def _fact(value):
    return ".".join(map(str, value)) if isinstance(value, list) else value
