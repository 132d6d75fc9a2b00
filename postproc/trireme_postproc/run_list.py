# SPDX-License-Identifier: Apache-2.0
"""`list DIR`: a row for each run below a directory, with its state, its results and the keys of the deck that differ."""

import csv
import io
import math
import os

import numpy as np

from .compare import differences
from .run_file import NAME, ODD_VALUES, RunFile, RunFileError, odd_values
from .run_log import FILE as LOG
from .run_log import is_log
from .run_state import run_state
from .texts import MISSING, columns_text, number, with_unit
from .watch import done_and_wanted, printable

MOST_KEYS, LONGEST = 6, 40  # limits of the text table: keys of the deck, and characters of a value
UNREADABLE = "unreadable"
OWN = ("run.directory", "run.name")  # not compared: these differ between any two runs
COLUMNS = ("run", "state", "step", "steps", "best_validation", "best_validation_step", "tokens_per_s")
# What --sort takes in addition to deck keys: the column, and whether large values come first.
ORDERS = {"run": ("run", False), "state": ("state", False), "steps": ("step", True), "validation": ("best_validation", False),
          "speed": ("tokens_per_s", True)}


class Row:
    """One run. `values`: by name in COLUMNS, None if not known. `units`: units of some of them."""

    def __init__(self, name, directory):
        self.values, self.units, self.deck, self.problem = {**dict.fromkeys(COLUMNS), "run": name}, {}, {}, ""
        try:
            self._read(RunFile(directory, samples=False))
        except (RunFileError, OSError, *ODD_VALUES) as error:
            self.values, self.deck = {**dict.fromkeys(COLUMNS), "run": name, "state": UNREADABLE}, {}
            self.problem = odd_values(os.path.join(directory, NAME), error) if isinstance(error, ODD_VALUES) else str(error)

    def _read(self, run):
        self.deck = {key: str(value) for key, value in run.deck.items() if key not in OWN}
        self.values["state"] = run_state(run).word
        self.values["step"], self.values["steps"] = done_and_wanted(run)
        step, loss = run.validation.get("step"), run.validation.get("loss")
        if loss is not None and np.isfinite(loss.values).any():
            best = int(np.nanargmin(np.where(np.isfinite(loss.values), loss.values, np.nan)))
            self.values["best_validation"], self.units["best_validation"] = float(loss.values[best]), loss.unit
            self.values["best_validation_step"] = int(step.values[best]) if step is not None else None
        speed = run.steps.get("tokens_per_s")
        if speed is not None and np.isfinite(speed.values.astype(float)).any():
            self.values["tokens_per_s"] = float(np.nanmedian(speed.values.astype(float)))
            self.units["tokens_per_s"] = speed.unit


def find_runs(directory):
    """Returns the run directories in a directory and below it, each once. Run directories themselves are not searched. Links are followed
    last, so that a run has the name of its directory if that is here too."""
    found, seen, roots = [], set(), [directory]
    for root in roots:
        for place, folders, files in os.walk(root):
            real = os.path.realpath(place)
            if real in seen:
                folders.clear()
            elif NAME in files or LOG in files and is_log(os.path.join(place, LOG)):
                found.append(place)
                folders.clear()
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            roots += filter(os.path.islink, (os.path.join(place, name) for name in folders))
    return found


def rows_below(directory):
    if not os.path.isdir(directory):
        raise RunFileError(f"{directory}: is not a directory")
    places = find_runs(directory)
    if not places:
        raise RunFileError(f"{directory}: has no {NAME} in it or below it")
    return [Row(os.path.relpath(place, directory), place) for place in places]


def differing_keys(rows):
    readable = [row for row in rows if row.values["state"] != UNREADABLE]
    return [key for key, _ in differences(readable)] if len(readable) > 1 else []


def _order(value):
    """Sort key: numbers come first, then texts and NaN."""
    try:
        as_number = float(value)
    except ValueError:
        return (1, 0.0, value)
    return (0, as_number, "") if not math.isnan(as_number) else (1, 0.0, str(value))


def sorted_rows(rows, key, reverse=False):
    column, largest_first = ORDERS.get(key, (None, False))
    if column is None and not any(key in row.deck for row in rows):
        raise RunFileError(f"--sort {key}: is neither one of {', '.join(ORDERS)} nor a key of the decks")

    def value(row):
        return row.values[column] if column else row.deck.get(key)

    known = sorted((row for row in rows if value(row) is not None), key=lambda row: _order(value(row)), reverse=largest_first != reverse)
    return known + [row for row in rows if value(row) is None]


def csv_text(rows):
    out, keys = io.StringIO(), differing_keys(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *keys])
    for row in rows:
        writer.writerow(["" if value is None else value for value in (*row.values.values(), *(row.deck.get(key) for key in keys))])
    return out.getvalue()


def _short(text):
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _cells(row, keys):
    values = row.values
    steps = MISSING if values["step"] is None else number(values["step"]) + ("" if values["steps"] is None else f" of {number(values['steps'])}")
    best = values["best_validation"]
    if best is not None:
        at = values["best_validation_step"]
        best = with_unit(best, row.units["best_validation"]) + ("" if at is None else f" (step {at})")
    speed = values["tokens_per_s"]
    return [printable(values["run"]), values["state"], steps, best or MISSING,
            MISSING if speed is None else with_unit(speed, row.units["tokens_per_s"]), *(_short(printable(row.deck.get(key, MISSING))) for key in keys)]


def table_text(rows):
    keys = differing_keys(rows)
    shown = keys[:MOST_KEYS]
    lines = columns_text([["run", "state", "steps", "best validation", "speed", *shown], *(_cells(row, shown) for row in rows)], left=2)
    if len(keys) > len(shown):
        lines.append(f"{len(keys) - len(shown)} more keys of the decks differ: see --csv.")
    lines += [printable(f"{row.values['run']}: {row.problem}") for row in rows if row.problem]
    return "\n".join(lines) + "\n"
