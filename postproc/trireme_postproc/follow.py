# SPDX-License-Identifier: Apache-2.0
"""`export --follow`: the rows of a run in progress as CSV or TensorBoard event files.

The rows come from steps.jsonl and validation.jsonl, which a run with `record.also: [jsonl]` appends to. They are polled with stat and
read from where the last reading stopped; a last line without its line feed is left for the next reading. Nothing is locked.

A resume takes rows back: trireme renames a shorter file into place, and a file may also repeat an earlier step. In both cases the rows
from the first step that changed are removed from the output and written again. The columns and the numbers are those of `export`.
"""

import json
import math
import os
import socket
import time
from bisect import bisect_left

from .event_file import restart_event, scalars_event, version_event
from .export import TABLES, rows_of, step_times
from .run_file import RunFile, RunFileError
from .watch import RUNNING, UNKNOWN, ended, state

FORMATS = ("csv", "tensorboard")
QUIET_S = 10.0  # without a new row: then run.h5 is read to see whether the run has reached its last step


class RowReader:
    """The rows of a JSON lines file that grows, is replaced, or is missing for a while."""

    def __init__(self, path):
        self.path = path
        self._file = None  # device and inode
        self._steps, self._hashes, self._begins = [], [], []  # of the rows that were returned
        self._next = 0  # where reading continues

    def read(self):
        """The rows that were added, and the first step of the earlier rows that do not count any more, or None."""
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:  # between a record that was moved aside and the new one
            return [], None
        with file:
            facts = os.fstat(file.fileno())
            before = len(self._steps)
            if self._file == (facts.st_dev, facts.st_ino) and self._continues(file, facts.st_size):
                return self._take(file, before)
            self._file = (facts.st_dev, facts.st_ino)
            return self._take(file, self._common(file))

    def back_to(self, step):
        """Forgets the rows from `step` on: the next read returns those that the file still has."""
        kept = bisect_left(self._steps, step)
        if kept < len(self._steps):
            self._next = self._begins[kept]
            self._cut(kept)

    def _cut(self, kept):
        del self._steps[kept:], self._hashes[kept:], self._begins[kept:]

    def _continues(self, file, size):
        """Whether the file still has the last row that was returned, at its place."""
        if size < self._next:
            return False
        if not self._hashes:
            return True
        file.seek(self._begins[-1])
        return hash(file.readline()) == self._hashes[-1]

    def _common(self, file):
        """How many rows that were returned the file begins with."""
        self._next = 0
        for at, known in enumerate(self._hashes):
            line = file.readline()
            if hash(line) != known:
                return at
            self._begins[at] = self._next
            self._next += len(line)
        return len(self._hashes)

    def _take(self, file, kept):
        """Reads on after the first `kept` rows. A step that is not above the one before takes rows back."""
        before, dropped = len(self._steps), None
        if kept < before:
            dropped = self._steps[kept]
            self._cut(kept)
            before = kept
        rows = []
        file.seek(self._next)
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            row = self._row(line)
            begin, self._next = self._next, self._next + len(line)
            step = row["step"]
            if self._steps and step <= self._steps[-1]:
                at = bisect_left(self._steps, step)
                if at < before:
                    dropped = step if dropped is None else min(dropped, step)
                    before = at
                del rows[max(0, at - before):]
                self._cut(at)
            rows.append(row)
            self._steps.append(step)
            self._hashes.append(hash(line))
            self._begins.append(begin)
        return rows, dropped

    def _row(self, line):
        try:
            row = json.loads(line)
        except ValueError:  # also what is not UTF-8
            row = None
        if (not isinstance(row, dict) or type(row.get("step")) is not int or not 0 <= row["step"] < 2**63
                or not all(value is None or type(value) in (int, float) for value in row.values())):
            raise RunFileError(f"{self.path}: has a line that is not a row of numbers with a step: {line[:80]!r}")
        return row


class CsvFiles:
    """steps.csv and validation.csv. `columns`: the names of each table as far as they are known before the first row."""

    def __init__(self, directory, columns):
        self._tables = {}
        for table in TABLES:
            path = os.path.join(directory, f"{table}.csv")
            if os.path.exists(path):
                with open(path, "rb") as file:
                    if not file.readline().startswith(b"step,"):
                        raise RunFileError(f"{path}: is not a file of this verb. Name another directory with -o")
            self._tables[table] = _CsvFile(path, columns.get(table, []))
        self.paths = [table.path for table in self._tables.values()]

    def rewind(self, step):
        for table in self._tables.values():
            table.rewind(step)

    def add(self, table, rows):
        self._tables[table].add(rows)

    def close(self):
        for table in self._tables.values():
            table.file.close()


class _CsvFile:
    def __init__(self, path, names):
        self.path, self._names = path, names
        self.file = open(path, "wb")
        self._steps, self._places = [], []  # where each row begins
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
            self.file.write((",".join("nan" if row[name] is None else repr(row[name]) for name in self._names) + "\n").encode())
        self.file.flush()


class EventFiles:
    """A new file in tensorboard/. It tells TensorBoard to forget what earlier files hold, and at a rewind what this one holds from
    that step on. `time_of`: seconds since 1970 of a step, None where that is not known."""

    def __init__(self, directory, time_of=lambda step: None):
        directory = os.path.join(directory, "tensorboard")
        os.makedirs(directory, exist_ok=True)
        earlier = [name.split(".")[3] for name in os.listdir(directory) if name.startswith("events.out.tfevents.")]
        newest = max((int(seconds) for seconds in earlier if seconds.isdecimal()), default=0)  # files are read in the order of names
        path = os.path.join(directory, f"events.out.tfevents.{max(int(time.time()), newest + 1):010d}.{socket.gethostname()}")
        self.paths = [path]
        self._time_of = time_of
        self._file = open(path, "xb")
        self._file.write(version_event(time.time()))
        if earlier:
            self.rewind(0)
        self._file.flush()

    def rewind(self, step):
        self._file.write(restart_event(time.time(), step))
        self._time_of = lambda step: None  # the times of the record are those of the rows that were taken back

    def add(self, table, rows):
        for row in rows:
            values = [(f"{table}/{name}", math.nan if value is None else value) for name, value in row.items()
                      if name != "step" and not (name == "bits_per_byte" and value is None)]
            moment = self._time_of(row["step"])
            self._file.write(scalars_event(time.time() if moment is None else moment, row["step"], values))
        self._file.flush()

    def close(self):
        self._file.close()


def copy_new_rows(readers, sink):
    """Brings the output up to date. Returns whether anything changed."""
    rows = {table: [] for table in readers}
    changed = False
    while True:
        first = None
        for table, reader in readers.items():
            added, dropped = reader.read()
            rows[table] += added
            if dropped is not None:
                first = dropped if first is None else min(first, dropped)
        changed = changed or first is not None or any(rows.values())
        if first is None:
            break
        sink.rewind(first)  # of all tables: a restart in an event file is
        for table, reader in readers.items():
            reader.back_to(first)
            rows[table] = [row for row in rows[table] if row["step"] < first]
    for table, added in rows.items():
        sink.add(table, added)
    return changed


class _Run:
    """What watch.ended() asks of a run, without reading run.h5 at every look."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "run.h5")
        self._finished = None

    def forget(self):
        self._finished = None

    def finished(self):
        if self._finished is None:
            try:
                self._finished = RunFile(self.path, samples=False).finished()
            except (RunFileError, OSError):  # not there, or not readable at the moment
                return None
        return self._finished


def _record(directory):
    """Names of the columns, and a function of a step: its time, or None. By run.h5, which may not be there."""
    try:
        run = RunFile(os.path.join(directory, "run.h5"), samples=False)
    except (RunFileError, OSError):
        return {}, lambda step: None
    names = {table: rows_of(getattr(run, table))[0] for table in TABLES if getattr(run, table)}
    known, time_of = set(run.steps["step"].values.tolist()) if "step" in run.steps else set(), step_times(run)
    return names, lambda step: time_of(step) if step in known else None


def follow(path, kind, output=None, every_s=2.0, patience_s=900.0, say=print, clock=time.monotonic, pause=time.sleep):
    """Writes the rows until the run has ended. `clock` and `pause` are the tests' own."""
    directory = path if os.path.isdir(path) else os.path.dirname(path) or "."
    readers = {table: RowReader(os.path.join(directory, f"{table}.jsonl")) for table in TABLES}
    if not os.path.exists(readers["steps"].path):
        raise RunFileError(f"{readers['steps'].path} does not exist. Start the run with record.also=[jsonl], or export run.h5 without --follow")
    output = output or directory
    os.makedirs(output, exist_ok=True)
    names, time_of = _record(directory)
    sink = CsvFiles(output, names) if kind == "csv" else EventFiles(output, time_of)
    run, previous, changed = _Run(directory), None, clock()
    try:
        for made in sink.paths:
            say(made)
        while True:
            word = state(run)  # before the rows are read: what an ended process wrote is then in them
            if copy_new_rows(readers, sink):
                changed = clock()
                run.forget()
            quiet_s = clock() - changed
            if word != RUNNING and (word != UNKNOWN or quiet_s > min(QUIET_S, patience_s)):
                reason = ended(run, previous, word, quiet_s, patience_s)
                if reason:
                    say(f"the run is over: {reason}")
                    return
            previous = word
            pause(every_s)
    finally:
        sink.close()
