# SPDX-License-Identifier: Apache-2.0
"""Exports the rows of run.h5 as JSON lines, CSV or TensorBoard event files. follow.py writes the last two during a run.

steps.jsonl and validation.jsonl have a row per line, with null for nan and inf. (The log of a run is also named steps.jsonl, but has lines
of all kinds.) CSV has the same numbers, with nan, inf and -inf. run.h5 does not have the time of each row, so the times in event files are
the start of the session plus the seconds of its steps.
"""

import calendar
import math
import os
import socket
import time
from bisect import bisect_left

from .event_file import hyperparameters_event, scalars_event, version_event
from .measures import before_rows, starts_of_steps
from .output_file import errors_about
from .run_file import RunFileError

FORMATS = ("jsonl", "csv", "tensorboard")
TABLES = ("steps", "validation")
# The order in src/records/record/run/rows.hpp. Columns that a later version adds come after these.
ORDER = ("step", "loss", "bits_per_byte", "grad_norm", "learning_rate", "tokens", "seconds", "tokens_per_s", "flops_per_s", "exposed_s",
         "allocations", "cpu_joules", "gpu_joules")


def rows_of(columns):
    """Returns the names of the columns, and a tuple of Python numbers for each row."""
    names = sorted(columns, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return names, list(zip(*(columns[name].values.tolist() for name in names)))


def _json_text(value):
    return "null" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def json_lines(columns):
    names, rows = rows_of(columns)
    for row in rows:
        yield "{" + ", ".join(f'"{name}": {_json_text(value)}' for name, value in zip(names, row)) + "}\n"


def csv_lines(columns):
    names, rows = rows_of(columns)
    yield ",".join(names) + "\n"
    for row in rows:
        yield ",".join(map(repr, row)) + "\n"


def step_times(run):
    """Returns a function that maps a step to the time of its end, in seconds since 1970. Steps without a row take as long as the step of
    the next row of their start or, without one, of the last row before."""
    steps, seconds = (run.steps[name].values.tolist() if {"step", "seconds"} <= set(run.steps) else [] for name in ("step", "seconds"))
    if all(name in run.sessions and len(run.sessions[name]) for name in ("first_step", "date_and_time")):
        starts, dates = starts_of_steps(run, steps).tolist(), run.sessions["date_and_time"].values
    else:
        starts, dates = [0] * len(steps), [run.attributes.get("date_and_time", "1970-01-01 00:00:00 +0000")]
    began = [calendar.timegm(time.strptime(date[:19], "%Y-%m-%d %H:%M:%S")) for date in dates]
    ends, now = [], float(began[0])
    for step, took, start, before, earlier in zip(steps, seconds, starts, [0, *starts], before_rows(run).tolist() if steps else ()):
        now = (now if start == before else float(began[start])) + took * (step - earlier)
        ends.append(now)

    def time_of(step):
        row = bisect_left(steps, step)
        if row < len(steps) and steps[row] == step:
            return ends[row]
        start = int(starts_of_steps(run, [step])[0]) if len(began) > 1 else 0
        row -= row == len(steps) or starts[row] != start
        return max(ends[row] + seconds[row] * (step - steps[row]), float(began[start])) if row >= 0 else float(began[start])

    return time_of


def events(run):
    """Yields the records of an event file."""
    time_of = step_times(run)
    yield version_event(time_of(0))
    yield hyperparameters_event(time_of(0), run.name, run.deck)
    for table in TABLES:
        names, rows = rows_of(getattr(run, table))
        for row in rows:
            values = dict(zip(names, row))
            step = values.pop("step")
            if math.isnan(values.get("bits_per_byte", 0)):  # not known
                del values["bits_per_byte"]
            yield scalars_event(time_of(step), step, [(f"{table}/{name}", value) for name, value in values.items()])


def is_here(path):
    return RunFileError(f"{path}: is here already; name another directory with -o")


def _write_new(path, parts):
    """Writes a file that must not exist yet. Removes it if it cannot be written completely."""
    try:
        file = open(path, "xb")
    except FileExistsError as error:
        raise is_here(path) from error
    try:
        with errors_about(path), file:
            for part in parts:
                file.write(part)
    except BaseException:
        os.unlink(path)
        raise


def export(run, kind, directory):
    """Writes the rows of `run` into `directory`, which is created if necessary. Returns the paths."""
    for table in TABLES:
        if kind == "tensorboard":
            break
        path = os.path.join(directory, f"{table}.{kind}")
        if os.path.lexists(path):  # check both files before writing one
            raise is_here(path)
    if kind == "tensorboard":
        directory = os.path.join(directory, "tensorboard")
        if os.path.isdir(directory) and os.listdir(directory):
            raise RunFileError(f"{directory}: is here already, and not empty; name another directory with -o")
    os.makedirs(directory, exist_ok=True)
    if kind == "tensorboard":
        path = os.path.join(directory, f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}")
        _write_new(path, events(run))
        return [path]
    lines = {"jsonl": json_lines, "csv": csv_lines}[kind]
    paths = []
    for table in TABLES:
        paths.append(os.path.join(directory, f"{table}.{kind}"))
        _write_new(paths[-1], (line.encode() for line in lines(getattr(run, table))))
    return paths
