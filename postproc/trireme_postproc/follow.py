# SPDX-License-Identifier: Apache-2.0
"""`export --follow`: writes the rows of a run in progress as CSV or TensorBoard event files.

The rows come from steps.jsonl, to which the run appends (run_log.py). The file is polled, and each reading starts where the last one
stopped. A last line without a line feed is left for the next reading. Nothing is locked.

When a run resumes from a checkpoint, the rows of later steps become invalid. They are removed from the output and written again. The
columns and the numbers are the same as those of `export`.
"""

import math
import os
import socket
import time
from bisect import bisect_left

from .event_file import hyperparameters_event, restart_event, scalars_event, version_event
from .export import TABLES, is_here, rows_of, step_times
from .output_file import errors_about
from .run_file import RunFile, RunFileError
from .run_log import TABLES as LOG_TABLES
from .run_log import Log, object_of
from .watch import RUNNING, UNKNOWN, done_and_wanted, ended, state_of

FORMATS = ("csv", "tensorboard")
QUIET_S = 10.0  # time without a new row after which run.h5 is read to see whether the run has reached its last step


def _csv_line(row, names):
    return ",".join("nan" if row[name] is None else repr(row[name]) for name in names) + "\n"


def _expect_own(path, table, names, log_path):
    """Raises RunFileError if `path` exists and is not what an earlier start wrote: a file with rows of this log only, including rows that a
    resume took back later. `names`: the columns in run.h5."""
    if not os.path.lexists(path):
        return
    if os.path.islink(path) or not os.path.isfile(path):
        raise is_here(path)
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        lines = file.readlines()
    if len(lines) > 1 and not lines[-1].endswith("\n"):
        lines.pop()  # a kill cut it off
    if not lines:
        return
    header, unknown = lines[0].rstrip("\n").split(","), set(lines)
    if set(header) == set(names):
        unknown.discard(lines[0])
    with open(log_path, "rb") as log:
        for row in filter(None, map(object_of, log)):
            if LOG_TABLES.get(row.pop("kind", None)) == table and set(row) == set(header):
                unknown -= {lines[0], _csv_line(row, header)}
    if unknown:
        raise is_here(path)


class CsvFiles:
    """steps.csv and validation.csv. `columns`: the names of each table as far as they are known before the first row. `log_path`: the log
    of the run. Files with rows of another run are refused."""

    def __init__(self, directory, columns, log_path):
        paths = {table: os.path.join(directory, f"{table}.csv") for table in TABLES}
        for table, path in paths.items():
            _expect_own(path, table, columns.get(table, ()), log_path)
        self._tables = {table: _CsvFile(path, columns.get(table, [])) for table, path in paths.items()}
        self.paths = list(paths.values())

    def rewind(self, step):
        for table in self._tables.values():
            table.rewind(step)

    def add(self, table, rows):
        with errors_about(self._tables[table].path):
            self._tables[table].add(rows)

    def close(self):
        for table in self._tables.values():
            with errors_about(table.path):
                table.file.close()


class _CsvFile:
    def __init__(self, path, names):
        self.path, self._names = path, names
        self.file = open(path, "wb")
        self._steps, self._places = [], []  # where each row begins
        with errors_about(path):
            self._write_header()

    def _write_header(self):
        self.file.seek(0)
        self.file.truncate()
        if self._names:
            self.file.write((",".join(self._names) + "\n").encode())
        self.file.flush()

    def rewind(self, step):
        kept = bisect_left(self._steps, step)
        if kept < len(self._steps):
            self.file.truncate(self._places[kept])
            self.file.seek(self._places[kept])
            del self._steps[kept:], self._places[kept:]

    def add(self, rows):
        for row in rows:
            if not self._steps and list(row) != self._names:
                self._names = list(row)
                self._write_header()
            if set(row) != set(self._names):
                raise RunFileError(f"{self.path}: step {row['step']} has other columns than the rows before. Start the command again")
            self._steps.append(row["step"])
            self._places.append(self.file.tell())
            self.file.write(_csv_line(row, self._names).encode())
        self.file.flush()


class EventFiles:
    """A new file in tensorboard/. It makes TensorBoard discard the values in earlier files and, at a rewind, the values from that step on
    in this file. `time_of`: maps a step to seconds since 1970, or to None if that is not known. `run`: its name and deck are written
    as hyperparameters."""

    def __init__(self, directory, time_of=lambda step: None, run=None):
        directory = os.path.join(directory, "tensorboard")
        os.makedirs(directory, exist_ok=True)
        earlier = [name.split(".")[3] for name in os.listdir(directory) if name.startswith("events.out.tfevents.")]
        newest = max((int(seconds) for seconds in earlier if seconds.isdecimal()), default=0)  # TensorBoard reads in the order of names
        path = os.path.join(directory, f"events.out.tfevents.{max(int(time.time()), newest + 1):010d}.{socket.gethostname()}")
        self.paths = [path]
        self._time_of = time_of
        self._file = open(path, "xb")
        with errors_about(path):
            self._file.write(version_event(time.time()))
            if run is not None:
                self._file.write(hyperparameters_event(time.time(), run.name, run.deck))
            if earlier:
                self.rewind(0)
            self._file.flush()

    def rewind(self, step):
        self._file.write(restart_event(time.time(), step))
        self._time_of = lambda step: None  # the times in run.h5 belong to the removed rows

    def add(self, table, rows):
        with errors_about(self.paths[0]):
            self._add(table, rows)

    def _add(self, table, rows):
        for row in rows:
            values = [(f"{table}/{name}", math.nan if value is None else value) for name, value in row.items()
                      if name != "step" and not (name == "bits_per_byte" and value is None)]
            moment = self._time_of(row["step"])
            self._file.write(scalars_event(time.time() if moment is None else moment, row["step"], values))
        self._file.flush()

    def close(self):
        with errors_about(self.paths[0]):
            self._file.close()


def copy_new_rows(log, sink):
    """Copies what the log has in addition to the last call. Returns whether anything changed."""
    added, dropped = log.read()
    if dropped is not None:
        sink.rewind(dropped)
    for table in TABLES:
        sink.add(table, added[table])
    return dropped is not None or any(added[table] for table in TABLES)


class _Run:
    """Provides what watch.ended() needs of a run, without reading run.h5 at every poll."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "run.h5")
        self._finished = None

    def forget(self):
        self._finished = None

    def finished(self):
        if self._finished is None:
            try:
                self._finished = RunFile(self.path, samples=False).finished()
            except (RunFileError, OSError):  # missing, or not readable at the moment
                return None
        return self._finished


def _record(directory):
    """Returns what run.h5, if it exists, says: names of columns, a function from a step to its time or None, and the run."""
    try:
        run = RunFile(os.path.join(directory, "run.h5"), samples=False)
    except (RunFileError, OSError):
        return {}, lambda step: None, None
    names = {table: rows_of(getattr(run, table))[0] for table in TABLES if getattr(run, table)}
    done, time_of = done_and_wanted(run)[0], step_times(run)
    return names, lambda step: time_of(step) if step <= done else None, run


def follow(path, kind, output=None, every_s=2.0, timeout_s=900.0, say=print, clock=time.monotonic, pause=time.sleep):
    """Writes the rows until the run has ended. Tests replace `clock` and `pause`."""
    directory = path if os.path.isdir(path) else os.path.dirname(path) or "."
    log = Log(directory, keep=False)
    if not os.path.exists(log.path):
        raise RunFileError(f"{log.path} does not exist: name the directory of a run, or export run.h5 without --follow")
    output = output or directory
    os.makedirs(output, exist_ok=True)
    names, time_of, record = _record(directory)
    sink = CsvFiles(output, names, log.path) if kind == "csv" else EventFiles(output, time_of, record)
    run, previous, changed = _Run(directory), None, clock()
    try:
        for made in sink.paths:
            say(made)
        while True:
            word = state_of(run.path)  # read this before the rows, so that they include all that an ended process wrote
            if copy_new_rows(log, sink):
                changed = clock()
                run.forget()
            quiet_s = clock() - changed
            if word != RUNNING and (word != UNKNOWN or quiet_s > min(QUIET_S, timeout_s)):
                reason = ended(run, previous, word, quiet_s, timeout_s)
                if reason:
                    say(f"the run is over: {reason}")
                    return
            previous = word
            pause(every_s)
    finally:
        sink.close()
