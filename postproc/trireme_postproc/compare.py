# SPDX-License-Identifier: Apache-2.0
"""Compares runs: how their decks and results differ, with ratios to the first run."""

import functools
import math

import numpy as np

from . import evaluation, timings
from .measures import WINDOW, Spread, energy_per_token, exposed_share, per_step, share_of_ceiling, window_before, window_inside
from .run_file import names_of
from .step_parts import parts as parts_of_run
from .texts import MISSING, columns_text, number, scaled

SHARES = (0.25, 0.5, 0.75, 1.0)
LONGEST = 60  # characters of a value in a table
UNKNOWN_TOKENIZER = "unknown"
# Facts in which any two runs differ.
ALWAYS_DIFFERENT = ("date_and_time", "run_id", "name")


class Row:
    """One quantity: for each run a Spread, or None if the run does not have it."""

    def __init__(self, text, spreads):
        self.text, self.spreads = text, spreads


def common(runs, name):
    """Returns the largest value in a column of /steps that all runs reached; 0 if a run has no rows."""
    ends = [per_step(run, name) for run in runs]
    return min((float(end.values[-1]) if end is not None else 0.0 for end in ends), default=0.0)


def loss_column(runs):
    """Returns the column in which losses can be compared: with different tokenizers bits_per_byte, if it is known for all runs."""
    tokenizers = {run.attributes.get("tokenizer_hash") or UNKNOWN_TOKENIZER for run in runs} - {UNKNOWN_TOKENIZER}
    in_bytes = [per_step(run, "bits_per_byte") for run in runs]
    known = all(column is not None and np.isfinite(column.values).any() for column in in_bytes)
    return "bits_per_byte" if len(tokenizers) > 1 and known else "loss"


def losses_at_equal(runs, name):
    """Returns rows with the loss after equal numbers of steps or tokens (`name`), at each quarter of the range that all runs have."""
    end = common(runs, name)
    if end <= 0:
        return []
    rows, column = [], loss_column(runs)
    places = [per_step(run, name).values if per_step(run, column) is not None else None for run in runs]
    shared = [one for one in places if one is not None]
    shared = functools.reduce(np.intersect1d, shared) if shared else np.zeros(0)  # the steps that all runs recorded, if there are any
    for place in sorted({np.floor(end * share) for share in SHARES} - {0.0}):
        spreads = []
        use_shared = len(window_inside(shared, place, WINDOW * end)) > 0
        for run, at in zip(runs, places):
            loss = per_step(run, column)
            if loss is None:
                spreads.append(None)
                continue
            chosen = np.isin(at, shared) if use_shared else np.full(len(at), True)
            spreads.append(Spread(window_before(at[chosen], loss.values[chosen], place, WINDOW * end), loss.unit))
        rows.append(Row(f"{name} {number(int(place))}", spreads))
    return [row for row in rows if any(spread is not None and spread.count for spread in row.spreads)]


def same_losses(runs, names):
    """Returns sentences that say up to which step the losses of each run and the first run are bit-identical."""
    texts = []
    known = [dict(zip(run.steps["step"].values.tolist(), run.steps["loss"].values.tolist())) if "loss" in run.steps and "step" in run.steps else {}
             for run in runs]
    for name, losses in list(zip(names, known))[1:]:
        steps = sorted(set(losses) & set(known[0]))
        if not steps:
            texts.append(f"{name} has no step in common with {names[0]}")
            continue
        pairs = ((step, losses[step], known[0][step]) for step in steps)
        other = next((step for step, one, first in pairs if one != first and not (math.isnan(one) and math.isnan(first))), None)
        if other is None:
            where = f"all {len(steps)} common steps" if len(steps) > 1 else "the only common step"
            texts.append(f"the losses of {name} are those of {names[0]} to the bit, in {where}")
        else:
            texts.append(f"the losses of {name} and {names[0]} first differ at step {other}")
    return texts


def _last_common(tables, column):
    """Returns the last step at which all tables have a finite value, and these values; None if there is no such step."""
    found = []
    for table in tables:
        if "step" not in table or column not in table:
            return None
        values = zip(table["step"].values.tolist(), table[column].values.tolist())
        found.append({step: value for step, value in values if np.isfinite(value)})
    steps = set.intersection(*map(set, found)) if found else set()
    return (max(steps), [one[max(steps)] for one in found]) if steps else None


def evaluations(runs):
    """Returns rows of validation and the sets of evaluate.sets, at the last step that all runs evaluated."""
    rows, in_bytes = [], loss_column(runs) == "bits_per_byte"
    tables = {"validation": [run.validation for run in runs]}
    for name in runs[0].evaluation:
        tables["set " + name] = [run.evaluation.get(name, {}) for run in runs]
    for name, of_runs in tables.items():
        for column, kind in evaluation.LOSSES + evaluation.IN_BYTES + evaluation.ACCURACIES:
            found = _last_common(of_runs, column)
            if found and not (column == "loss" and in_bytes and _last_common(of_runs, "bits_per_byte")):
                units = [table[column].unit for table in of_runs]
                text = ", ".join(filter(None, (name, kind))) + f" (step {found[0]})"
                rows.append(Row(text, [Spread([value], unit) for value, unit in zip(found[1], units)]))
    return rows


def speeds(runs):
    """Returns rows of speeds over all recorded steps of each run."""

    def row(text, columns):
        return Row(text, [Spread(column.values, column.unit) if column is not None else None for column in columns])

    rows = [
        row("speed", [per_step(run, "tokens_per_s") for run in runs]),
        row("step", [per_step(run, "seconds") for run in runs]),
        row("arithmetic", [per_step(run, "flops_per_s") for run in runs]),
        row("share of ceiling", [share_of_ceiling(run) for run in runs]),
        row("exposed communication (rank 0)", [per_step(run, "exposed_s") for run in runs]),
        row("exposed share of the step (rank 0)", [exposed_share(run) for run in runs]),
        row("energy", [energy_per_token(run) for run in runs]),
    ]
    return [one for one in rows if any(one.spreads)]


def times(runs):
    """Returns rows with the parts of the median step by span. They add up to the last row."""
    parts = [dict(parts_of_run(run)) for run in runs]
    labels = list(dict.fromkeys(label for one in parts for label in one if label != timings.REST))
    labels += [timings.REST] if any(timings.REST in one for one in parts) else []
    rows = [Row(label, [one.get(label) for one in parts]) for label in labels]
    if rows:
        units = [run.sample_units.get("duration_s", "") for run in runs]
        rows.append(Row(timings.ROOT, [Spread([sum(part.median for part in one.values())], unit) if one else None for one, unit in zip(parts, units)]))
    return rows


def _short(value):
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def differences(runs, of=lambda run: run.deck):
    """Returns pairs (key, a text for each run) of the keys whose values differ between runs."""
    tables = [of(run) for run in runs]
    keys = sorted(set().union(*tables))
    rows = [(key, [_short(table[key]) if key in table else MISSING for table in tables]) for key in keys
            if any(table.get(key) != tables[0].get(key) for table in tables)]
    return [row for row in rows if row[0] not in ALWAYS_DIFFERENT]


def _facts(run):
    return {key: value for key, value in run.attributes.items() if key not in ("filetype", "version")}


def _spread_lines(title, rows, names, value="median"):
    if not rows:
        return []
    table = [("", "run", value, "quartiles", "values", f"ratio to {names[0]}")]
    for row in rows:
        for at, (name, spread) in enumerate(zip(names, row.spreads)):
            first = row.text if at == 0 else ""
            if spread is None or not spread.count:
                table.append((first, name, MISSING, "", "", ""))
                continue
            median, unit = scaled(spread.median, spread.unit)
            factor = median / spread.median if spread.median else 1.0
            between = f"{number(spread.low * factor)} … {number(spread.high * factor)}" if spread.count > 1 else ""
            ratio = spread.ratio(row.spreads[0]) if row.spreads[0] is not None else float("nan")
            shown = number(ratio) if np.isfinite(ratio) else "other unit" if row.spreads[0] and row.spreads[0].unit != spread.unit else MISSING
            table.append((first, name, number(median) + ("" if unit in ("", "1") else f" {unit}"), between, str(spread.count), shown))
    return [title] + columns_text(table, "  ", left=2) + [""]


def _difference_lines(title, rows, names):
    return [title] + columns_text([("", *names)] + [(key, *texts) for key, texts in rows], "  ", left=1 + len(names)) + [""] if rows else []


def compare(runs):
    """Returns the whole text."""
    names = names_of(runs)
    lines = ["runs"] + columns_text([(name, run.path) for name, run in zip(names, runs)], "  ", left=2) + [""]
    lines += _difference_lines("keys of the deck that differ", differences(runs), names)
    lines += _difference_lines("facts that differ", differences(runs, _facts), names)
    lines += _spread_lines("loss after the same number of steps", losses_at_equal(runs, "step"), names)
    lines += _spread_lines("loss after the same number of tokens", losses_at_equal(runs, "tokens"), names)
    lines += same_losses(runs, names) + [""]
    lines += _spread_lines("evaluated at the last common step", evaluations(runs), names)
    lines += _spread_lines("speed, over the recorded steps", speeds(runs), names)
    lines += _spread_lines("time of the median step by span, mean of the recorded ranks", times(runs), names, "part")
    lines.append(f"A loss is the median of the {100 * WINDOW:.0f} % of the common steps or tokens before the place.")
    return "\n".join(lines) + "\n"
