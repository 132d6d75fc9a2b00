# SPDX-License-Identifier: Apache-2.0
"""Reads RUN_DIR/steps.jsonl for rows that run.h5 does not have yet. The run appends to this file. src/records/record/run/run_log.hpp
describes the format. Nothing is locked."""

import json
import math
import os
import zlib
from array import array
from bisect import bisect_left

FILE = "steps.jsonl"
RUN_FILE = "run_file"  # the kind of the line that says that run.h5 was written
TABLES = {"step": "steps", "validation": "validation", "checkpoint": "checkpoints", "skipped": "skipped", "noise_scale": "noise_scale",
          "norms": "norms", "rank_spans": "rank_spans", "rank_energy": "energy"}  # by the kind of a line
TAIL = 1000  # bytes; longer than a line of the kind RUN_FILE
BEFORE_SUM = b', "crc32": "'


def object_of(line):
    """Returns the object in a line, without its checksum; None if the line is damaged or trireme did not write it."""
    summed, _, rest = line.rpartition(BEFORE_SUM)
    if not summed or rest.strip() != b'%08x"}' % zlib.crc32(summed):
        return None
    try:
        found = json.loads(summed + b"}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def is_log(path):
    """Whether this is the log of a run; `export --format jsonl` writes a file of the same name."""
    try:
        with open(path, "rb") as file:
            return object_of(file.readline(1_000_000)) is not None
    except OSError:
        return False


class Table:
    """Rows in the order of steps, stored as columns of numbers or texts. null becomes NaN, 0 (integers) or "" (texts)."""

    def __init__(self):
        self.columns, self._missing = {}, {}

    def add(self, row):
        for name in row.keys() - self.columns.keys():  # the first row, or a column that a newer version added
            kind = "q" if isinstance(row[name], int) else "d"
            self._missing[name] = "" if isinstance(row[name], str) else 0 if kind == "q" else math.nan
            earlier = [self._missing[name]] * len(next(iter(self.columns.values()), ()))
            self.columns[name] = earlier if isinstance(row[name], str) else array(kind, earlier)
        for name, column in self.columns.items():
            value = row.get(name)
            column.append(self._missing[name] if value is None else value)

    def forget(self, first):
        """Drops the rows of step `first` and later steps. A row of several steps counts as one of its last step."""
        kept = bisect_left(self.columns.get("step", self.columns.get("last_step", ())), first)
        for column in self.columns.values():
            del column[kept:]


def is_newer(directory, file_bytes):
    """Whether the log may have rows that run.h5, of `file_bytes` bytes, lacks: its last line is not about writing this run.h5."""
    try:
        with open(os.path.join(directory, FILE), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            last = object_of(file.read().rstrip(b"\n").rpartition(b"\n")[2])
    except FileNotFoundError:
        return False
    return last is None or (last.get("kind"), last.get("bytes")) != (RUN_FILE, file_bytes)


class Log:
    """The valid rows of the tables above. read() reads what was added since the last call."""

    def __init__(self, directory, keep=True):
        """`keep`: whether to store the rows in `tables` and `sets`, in addition to returning them from read()."""
        self.path = os.path.join(directory, FILE)
        self.tables = {table: Table() for table in TABLES.values()}
        self.sets = {}  # tables of /evaluation by the name of their set
        self._keep, self._file, self._next = keep, None, 0

    def read(self):
        """Returns the new rows of each table, and the first step from which previously returned rows are invalid, or None."""
        added, dropped = {table: [] for table in self.tables}, None
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:  # the old record was moved aside, and the new one does not exist yet
            return added, None
        with file:
            facts = os.fstat(file.fileno())
            place = (facts.st_dev, facts.st_ino)
            if self._file is not None and (place != self._file or facts.st_size < self._next):
                dropped, self._next = 0, 0
                self._forget(0)
            self._file = place
            file.seek(self._next)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the line is being written
                self._next += len(line)
                found = object_of(line)
                kind = found.pop("kind") if found else None
                if kind == "rewind":
                    first = found["step"] + 1
                    self._forget(first)
                    added = {table: [row for row in rows if row.get("step", row.get("last_step", 0)) < first] for table, rows in added.items()}
                    dropped = first if dropped is None else min(dropped, first)
                elif kind in TABLES:
                    added[TABLES[kind]].append(found)
                    if self._keep:
                        self.tables[TABLES[kind]].add(found)
                elif kind == "evaluation" and self._keep:
                    found.pop("of", None)
                    self.sets.setdefault(found.pop("set"), Table()).add(found)
        return added, dropped

    def _forget(self, first):
        for table in (*self.tables.values(), *self.sets.values()):
            table.forget(first)
