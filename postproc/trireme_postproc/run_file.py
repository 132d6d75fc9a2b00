# SPDX-License-Identifier: Apache-2.0
"""Reads RUN_DIR/run.h5. The format is described in src/record/run/run_file.hpp.

A run may have been killed at any moment, or may still be running: columns can have different
lengths, and any of them can be empty or absent. What the journal beside the file holds is read as well (journal.py).
"""

import os
import re
import time

# A running trainer holds a lock on its file; reading beside it does no harm. h5py reads this once.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py  # noqa: E402
import numpy as np  # noqa: E402

from .journal import ChangedError, View  # noqa: E402

FILETYPE = "trireme-run"
MAJOR_VERSION = 1
TRIES, PAUSE_S = 10, 0.2  # of a file that is written at this moment


class RunFileError(Exception):
    """One line for the user: what is wrong with the file that was given."""


class UnreadableError(RunFileError):
    """The file could not be read as HDF5, which may pass when a run is writing it."""


class Column:
    """One dataset: values with the unit and the meaning that the file states."""

    def __init__(self, values, unit="", help_text=""):
        self.values = np.asarray(values)
        self.unit = unit
        self.help = help_text

    def __len__(self):
        return len(self.values)


class Span:
    """One name of the file's table of timings."""

    def __init__(self, name, index_of="", help_text=""):
        self.name = name
        self.index_of = index_of
        self.help = help_text
        within = re.match(r"Within ([A-Za-z0-9_.]+):", help_text)
        self.parent = within.group(1) if within else None
        # Compute waited: for a bucket, or where the help states it.
        self.waits = self.parent is not None and (index_of != "" or "compute waited" in help_text)


def _plain(value):
    """An attribute as Python has it: str, int, float, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return value


def _attributes(node):
    return {name: _plain(value) for name, value in node.attrs.items()}


class RunFile:
    """Everything of a run, in memory.

    attributes  dict      of the root: software, machine, …
    deck        dict      dotted key → value
    steps, validation, noise_scale, sessions, checkpoints, skipped, buckets, anchors, rank_spans
                dict      column name → Column, cut to their common length
    evaluation  dict      name of a set of evaluate.sets → columns, as above
    spans       list      of Span; a sample's `name` is a position in it
    samples     ndarray   structured, as the file has it
    sample_units dict     field of samples → unit
    timing_facts, memory
                dict      name → (value, unit)
    """

    def __init__(self, path, samples=True):
        """`samples`: whether the samples are read, which are most of a large file."""
        self.path = locate(path)
        self._wants_samples = samples
        for turn in range(TRIES):
            if turn > 0:
                time.sleep(PAUSE_S)
            if self._read_once(whole=turn > 0):
                return
        raise RunFileError(f"{self.path}: was written during each of {TRIES} readings: read it again later, or once its run has ended")

    def _read_once(self, whole):
        """False when the file was written meanwhile. `whole`: see View."""
        try:
            with View(self.path, whole) as view:
                try:
                    with h5py.File(view, "r") as file:
                        self._check(file)
                        self._read(file)
                except Exception:  # what HDF5 and this class make of a read that failed differs
                    if view.changed:
                        return False
                    raise
        except ChangedError:
            return False
        except PermissionError:
            raise
        except (OSError, RuntimeError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise UnreadableError(f"{self.path}: cannot be read as an HDF5 file: {reason}") from error
        return True

    def _check(self, file):
        attributes = _attributes(file)
        filetype = attributes.get("filetype")
        if filetype is None:
            raise RunFileError(f"{self.path}: no run file of trireme: it has no attribute 'filetype'")
        if filetype != FILETYPE:
            raise RunFileError(f"{self.path}: filetype is '{filetype}', expected '{FILETYPE}'")
        version = attributes.get("version")
        if not isinstance(version, list) or not version or version[0] != MAJOR_VERSION:
            text = ".".join(str(part) for part in version) if isinstance(version, list) else version
            raise RunFileError(
                f"{self.path}: format version {text}, this program reads version {MAJOR_VERSION}.x"
            )

    def _read(self, file):
        self.attributes = _attributes(file)
        self.deck = _attributes(file["deck"]) if "deck" in file else {}
        self.steps = _columns(file, "steps")
        self.validation = _columns(file, "validation")
        self.noise_scale = _columns(file, "noise_scale")
        self.evaluation = {name: _columns(file["evaluation"], name) for name in _groups(file, "evaluation")}
        self.sessions = _columns(file, "sessions")
        self.checkpoints = _columns(file, "checkpoints")
        self.skipped = _columns(file, "skipped")
        self.buckets = _columns(file, "buckets")
        self.anchors = _columns(file, "timings/anchors")
        self.rank_spans = _columns(file, "timings/ranks")
        self.spans = []
        self.samples = np.zeros(0, dtype=[("step", "u4"), ("name", "u2"), ("rank", "u4")])
        self.sample_units = {}
        self.timing_facts = {}
        self.memory = {}
        if "memory" in file:
            facts = _attributes(file["memory"])
            unit = facts.pop("unit", "")
            self.memory = {name: (value, unit) for name, value in facts.items()}
        if "timings" in file:
            self._read_timings(file["timings"])

    def _read_timings(self, group):
        facts = _attributes(group)
        self.timing_facts = {
            name: (value, facts.get(name + "_unit", ""))
            for name, value in facts.items()
            if not (name.endswith("_unit") and name[: -len("_unit")] in facts)
        }
        if "names" in group:
            names = group["names"]
            attributes = _attributes(names)
            texts = [_plain(name) for name in names[:]]
            index_of = attributes.get("index_of", [""] * len(texts))
            help_of = attributes.get("help_of", [""] * len(texts))
            self.spans = [Span(*row) for row in zip(texts, index_of, help_of)]
        if "samples" in group and self._wants_samples:
            samples = group["samples"]
            self.samples = samples[:]
            # "begin_s: s since the rank's anchor; duration_s: s"
            for part in _attributes(samples).get("unit", "").split(";"):
                field, _, unit = part.partition(":")
                self.sample_units[field.strip()] = unit.strip()

    def finished(self):
        """Whether the last recorded step is the last one of the deck; None where that is not known."""
        steps = self.steps.get("step")
        try:
            wanted = int(self.deck["run.steps"])
        except (KeyError, ValueError):
            return None
        return steps is not None and len(steps) > 0 and int(steps.values[-1]) >= wanted

    @property
    def name(self):
        """What the deck calls the run, or its directory."""
        return str(self.deck.get("run.name") or os.path.basename(os.path.dirname(os.path.abspath(self.path))))

    def fact(self, name):
        """A number of /timings; NaN where the file does not have it."""
        try:
            return float(self.timing_facts[name][0])
        except (KeyError, TypeError, ValueError):
            return float("nan")


def read_while_written(path, samples=True, tries=TRIES, pause_s=PAUSE_S):
    """A RunFile of a run that may have just begun it: what cannot be read is tried again."""
    for left in reversed(range(tries)):
        try:
            return RunFile(path, samples)
        except UnreadableError:
            if left == 0:
                raise
            time.sleep(pause_s)


def names_of(runs):
    """A name for each run, all different: the deck's, with the directory where several have the same, and a number where those are
    alike as well."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name} ({os.path.basename(os.path.dirname(os.path.abspath(run.path)))})" for name, run in zip(names, runs)]
    return [f"{name} #{1 + names[:i].count(name)}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def locate(path):
    """The run file that a run directory or a path names."""
    candidate = os.path.join(path, "run.h5") if os.path.isdir(path) else path
    if not os.path.exists(candidate):
        what = "holds no run.h5" if os.path.isdir(path) else "does not exist"
        raise RunFileError(f"{path}: {what}")
    return candidate


def _groups(file, name):
    """The names of the groups in a group; none where there is no such group."""
    return [key for key, node in file[name].items() if isinstance(node, h5py.Group)] if name in file else []


def _columns(file, name):
    """The 1-D datasets of a group, cut to the length that all of them have."""
    if name not in file:
        return {}
    columns = {}
    for key, dataset in file[name].items():
        if isinstance(dataset, h5py.Dataset) and dataset.ndim == 1:
            values = dataset[:]
            if values.dtype.kind == "O":
                values = np.array([_plain(value) for value in values], dtype=object)
            attributes = _attributes(dataset)
            columns[key] = Column(values, attributes.get("unit", ""), attributes.get("help", ""))
    rows = min((len(column) for column in columns.values()), default=0)
    for column in columns.values():
        column.values = column.values[:rows]
    return columns
