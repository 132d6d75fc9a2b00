# SPDX-License-Identifier: Apache-2.0
"""Reads RUN_DIR/steps.jsonl, which a run appends to while it continues (src/records/record/run/run_log.hpp describes it): for rows that
run.h5 does not have yet. Nothing is locked."""

import json
import math
import os
import zlib
from array import array
from bisect import bisect_left

FILE = "steps.jsonl"
TABLES = {"step": "steps", "validation": "validation", "checkpoint": "checkpoints"}  # by the kind of a line
BEFORE_SUM = b', "crc32": "'


def object_of(line):
    """The object of a whole line, without its checksum; None where the line is damaged or none of ours."""
    summed, _, rest = line.rpartition(BEFORE_SUM)
    if not summed or rest.strip() != b'%08x"}' % zlib.crc32(summed):
        return None
    try:
        found = json.loads(summed + b"}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Table:
    """Rows in the order of their steps, as columns of numbers; null is NaN."""

    def __init__(self):
        self.columns = {}

    def add(self, row):
        if not self.columns:
            self.columns = {name: array("q" if isinstance(value, int) else "d") for name, value in row.items()}
        for name, column in self.columns.items():
            value = row.get(name)
            column.append(value if value is not None else math.nan if column.typecode == "d" else 0)

    def forget(self, first):
        """Drops the rows of this step and later ones."""
        kept = bisect_left(self.columns.get("step", ()), first)
        for column in self.columns.values():
            del column[kept:]


class Log:
    """The rows of the tables above that count. read() takes what was added since the last call."""

    def __init__(self, directory, keep=True):
        """`keep`: whether the rows are wanted as `tables` and `sets`, and not only from read()."""
        self.path = os.path.join(directory, FILE)
        self.tables = {table: Table() for table in TABLES.values()}
        self.sets = {}  # tables of /evaluation by the name of their set
        self._keep, self._file, self._next = keep, None, 0

    def read(self):
        """The rows of each table that are new, and the first step whose earlier rows do not count any more, or None."""
        added, dropped = {table: [] for table in self.tables}, None
        try:
            file = open(self.path, "rb")
        except FileNotFoundError:  # between a record that was moved aside and the new one
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
                    break  # it is being written
                self._next += len(line)
                found = object_of(line)
                kind = found.pop("kind") if found else None
                if kind == "rewind":
                    first = found["step"] + 1
                    self._forget(first)
                    added = {table: [row for row in rows if row["step"] < first] for table, rows in added.items()}
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
