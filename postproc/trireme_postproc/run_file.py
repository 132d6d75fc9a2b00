# SPDX-License-Identifier: Apache-2.0
"""Reads RUN_DIR/run.h5. The format is described in src/records/record/run/run_file.hpp.

The file is complete and readable at any time, even during the run. During a run and after a kill it may lack the newest rows, which are
then read from steps.jsonl. In a file that trireme did not write, columns can have different lengths, be empty, or be absent.
"""

import os
import re
import time

# Some file systems have no locks, and this package never writes run files. Set before the import: h5py reads this only once.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py  # noqa: E402
import numpy as np  # noqa: E402

from .run_log import FILE as LOG  # noqa: E402
from .run_log import Log, is_newer  # noqa: E402

NAME = "run.h5"  # a file with another name was moved aside or copied, so that the log next to it does not belong to it
FILETYPE = "trireme-run"
VERSION = [1, 0]
SAMPLE = [("step", "u4"), ("micro", "u2"), ("name", "u2"), ("index", "u4"), ("rank", "u4"), ("begin_s", "f8"), ("duration_s", "f8")]
TRIES, PAUSE_S = 10, 0.2  # for a file that may not be readable yet
# Tables that may have text columns. All columns of other tables are numbers.
TABLES_WITH_TEXTS = {"sessions", "skipped", "buckets"}


class RunFileError(Exception):
    """The message is one line that tells the user what is wrong with the file."""


class UnreadableError(RunFileError):
    """The file could not be read as HDF5. This may be temporary while a run writes it."""


# Exceptions that unexpected values can cause in a file that otherwise looks like one that trireme wrote.
ODD_VALUES = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


def odd_values(path, error):
    return f"{path}: the file does not hold what trireme writes ({type(error).__name__}: {error})"


class Column:
    """The values of one dataset and the unit that the file states."""

    def __init__(self, values, unit=""):
        self.values = np.asarray(values)
        self.unit = unit

    def __len__(self):
        return len(self.values)


class Span:
    """One entry in the table of span names of the file."""

    def __init__(self, name, index_of="", help_text=""):
        self.name = name
        self.index_of = index_of
        self.help = help_text
        within = re.match(r"Within ([A-Za-z0-9_.]+):", help_text)
        self.parent = within.group(1) if within else None
        # Nested spans of buckets are waits of compute, as are nested spans whose help text says so.
        self.waits = self.parent is not None and (index_of != "" or "compute waited" in help_text)


def _plain(value):
    """Converts an attribute to a Python type: str, int, float, or a list of them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return value


def without_surrogates(text):
    """Replaces lone surrogates, as which h5py and Python return bytes that are not UTF-8, because they cannot be printed."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _attributes(node):
    return {name: _plain(value) for name, value in node.attrs.items()}


class RunFile:
    """The whole run file in memory.

    attributes  dict      of the root: software, machine, …
    deck        dict      dotted key → value
    steps, validation, noise_scale, norms, energy, sessions, checkpoints, skipped, buckets, anchors, rank_spans
                dict      column name → Column, cut to their common length
    evaluation  dict      name of a set of evaluate.sets → columns, as above
    spans       list      of Span; a sample's `name` is a position in it
    samples     ndarray   structured, as the file has it
    sample_units dict     field of samples → unit
    timing_facts, memory
                dict      name → (value, unit)
    """

    def __init__(self, path, samples=True, log=None):
        """`samples`: whether to read the samples, which are most of a large file. `log`: a Log from an earlier call, of which only the new
        lines are read."""
        self.path = locate(path)
        self._wants_samples = samples
        try:
            with h5py.File(self.path, "r") as file:
                self._check(file)
                self._read(file)
        except PermissionError:
            raise
        except RunFileError as error:
            raise type(error)(f"{self.path}: {str(error).removeprefix(f'{self.path}: ')}") from error
        except (OSError, RuntimeError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise UnreadableError(f"{self.path}: cannot be read as an HDF5 file: {reason}{_way_out(os.path.dirname(self.path) or '.')}") from error
        directory, name = os.path.split(self.path)
        if name == NAME and (log or is_newer(directory, os.path.getsize(self.path))):
            self._add_rows_of(log or Log(directory))

    def _check(self, file):
        attributes = _attributes(file)
        filetype = attributes.get("filetype")
        if filetype is None:
            raise RunFileError(f"{self.path}: no run file of trireme: it has no attribute 'filetype'")
        if filetype != FILETYPE:
            raise RunFileError(f"{self.path}: filetype is '{filetype}', expected '{FILETYPE}'")
        version = attributes.get("version")
        if version != VERSION:
            text = ".".join(map(str, version)) if isinstance(version, list) else version
            raise RunFileError(f"{self.path}: is format version {text} and this program reads {'.'.join(map(str, VERSION))}")

    def _read(self, file):
        self.attributes = _attributes(file)
        deck, memory, timings = (node_of(file, name, h5py.Group) for name in ("deck", "memory", "timings"))
        self.deck = _attributes(deck) if deck is not None else {}
        self.steps = _columns(file, "steps")
        self.validation = _columns(file, "validation")
        self.noise_scale = _columns(file, "noise_scale")
        self.norms = _columns(file, "norms")
        self.energy = _columns(file, "energy")
        sets = node_of(file, "evaluation", h5py.Group)
        self.evaluation = {without_surrogates(name): _columns(sets, name) for name in (sets or ())}
        self.sessions = _columns(file, "sessions")
        self.checkpoints = _columns(file, "checkpoints")
        self.skipped = _columns(file, "skipped")
        self.buckets = _columns(file, "buckets")
        self.anchors = _columns(file, "timings/anchors")
        self.rank_spans = _columns(file, "timings/ranks")
        self.spans = []
        self.samples = np.zeros(0, dtype=SAMPLE)
        self.sample_units = {}
        self.timing_facts = {}
        self.memory = {}
        if memory is not None:
            facts = _attributes(memory)
            unit = facts.pop("unit", "")
            self.memory = {name: (value, unit) for name, value in facts.items()}
        if timings is not None:
            self._read_timings(timings)

    def _read_timings(self, group):
        facts = _attributes(group)
        self.timing_facts = {
            name: (value, facts.get(name + "_unit", ""))
            for name, value in facts.items()
            if not (name.endswith("_unit") and name[: -len("_unit")] in facts)
        }
        names = node_of(group, "names", h5py.Dataset)
        if names is not None:
            attributes = _attributes(names)
            texts = [str(_plain(name)) for name in _values(names)]
            index_of = attributes.get("index_of", [""] * len(texts))
            help_of = attributes.get("help_of", [""] * len(texts))
            self.spans = [Span(*row) for row in zip(texts, index_of, help_of)]
        samples = node_of(group, "samples", h5py.Dataset)
        if samples is not None and self._wants_samples:
            self.samples = _values(samples)
            if self.samples.dtype.names is None or not {"step", "name", "rank"} <= set(self.samples.dtype.names):
                raise RunFileError(f"{samples.name} does not have the fields step, name and rank")
            # "begin_s: s after the rank's anchor; duration_s: s"
            for part in _attributes(samples).get("units", "").split(";"):
                field, _, unit = part.partition(":")
                self.sample_units[field.strip()] = unit.strip()

    def _add_rows_of(self, log):
        """Replaces tables by those in the log."""
        log.read()
        for name, table in log.tables.items():
            if table.columns:
                setattr(self, name, self._live(getattr(self, name), table))
        for name, table in log.sets.items():
            if table.columns:
                self.evaluation[name] = self._live(self.evaluation.get(name) or {}, table)

    @staticmethod
    def _live(columns, table):
        """Converts a table of the log to Columns. Units are taken from `columns`, if known."""
        known = {name: column.unit for name, column in columns.items()}
        return {name: Column(np.array(values, object if isinstance(values, list) else None), known.get(name, "")) for name, values in table.columns.items()}

    def finished(self):
        """Whether the last recorded step is the last step of the deck; None if the deck's number of steps is not known."""
        steps = self.steps.get("step")
        try:
            wanted = int(self.deck["run.steps"])
        except (KeyError, ValueError):
            return None
        return steps is not None and len(steps) > 0 and int(steps.values[-1]) >= wanted

    @property
    def name(self):
        """The name of the run in the deck, or else the name of its directory."""
        return str(self.deck.get("run.name") or without_surrogates(os.path.basename(os.path.dirname(os.path.abspath(self.path)))))

    def position(self, name):
        """Returns the position of a span; None if the file has no span of this name."""
        return next((position for position, span in enumerate(self.spans) if span.name == name), None)

    def fact(self, name):
        """Returns a number of /timings; NaN if the file does not have it."""
        try:
            return float(self.timing_facts[name][0])
        except (KeyError, TypeError, ValueError):
            return float("nan")


def read_while_written(path, samples=True, tries=TRIES, pause_s=PAUSE_S, log=None):
    """Returns the RunFile of a run in progress, with the newest rows of its log. Tries again if the file cannot be read."""
    for left in reversed(range(tries)):
        try:
            return RunFile(path, samples, log)
        except UnreadableError:
            if left == 0:
                raise
            time.sleep(pause_s)


def names_of(runs):
    """Returns a unique name for each run: the name in the deck, with the directory if names are equal, and with a number if these are
    equal too."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        names = [f"{name} ({without_surrogates(os.path.basename(os.path.dirname(os.path.abspath(run.path))))})" for name, run in zip(names, runs)]
    return [f"{name} #{1 + names[:i].count(name)}" if names.count(name) > 1 else name for i, name in enumerate(names)]


def locate(path):
    """Returns the path of the run file, given that path or the run directory."""
    candidate = os.path.join(path, NAME) if os.path.isdir(path) else path
    if not os.path.exists(candidate):
        what = f"holds no {NAME}" if os.path.isdir(path) else "does not exist"
        raise RunFileError(f"{path}: {what}{_way_out(path)}")
    return candidate


def _way_out(directory):
    """Returns how to restore the run file if the directory has a log; otherwise an empty text."""
    return f". `trireme record {directory}` writes it from {LOG}" if os.path.exists(os.path.join(directory, LOG)) else ""


def node_of(group, name, kind):
    """Returns the member `name` ("timings/anchors") of a group, or None. Refuses links, which could lead to files of other users."""
    node = group
    for part in name.split("/"):
        link = node.get(part, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise RunFileError(f"{node.name.rstrip('/')}/{part} is a link to another place, which trireme does not write")
        node = node[part]
        if part != name.split("/")[-1] and not isinstance(node, h5py.Group):
            raise RunFileError(f"{node.name} is not a group")
    if not isinstance(node, kind):
        raise RunFileError(f"{node.name} is not a {getattr(kind, '__name__', 'node').lower()}")
    return node


def _values(dataset):
    """Returns all elements. Checks the size first: a file of a few bytes can claim any number of elements."""
    claimed, item = dataset.size or 0, max(1, dataset.dtype.itemsize)
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    if dataset.external or dataset.is_virtual:
        raise RunFileError(f"{dataset.name} has its elements in another file, which trireme does not write")
    if claimed > stored // item:
        raise RunFileError(f"{dataset.name} claims {claimed} elements, and the file holds {stored // item}")
    return dataset[:]


def _columns(file, name):
    """Returns the 1-D datasets of a group, cut to the length of the shortest."""
    group = node_of(file, name, h5py.Group)
    columns = {}
    for key in group or ():
        dataset = node_of(group, key, (h5py.Dataset, h5py.Group))
        if isinstance(dataset, h5py.Dataset) and dataset.ndim == 1:
            values = _values(dataset)
            if values.dtype.kind in "OS":
                if name not in TABLES_WITH_TEXTS:
                    raise RunFileError(f"{dataset.name} holds texts, and numbers were expected")
                values = np.array([_plain(value) for value in values], dtype=object)
            elif values.dtype.kind not in "iuf":
                raise RunFileError(f"{dataset.name} does not hold numbers")
            columns[without_surrogates(key)] = Column(values, str(_attributes(dataset).get("units", "")))
    rows = min((len(column) for column in columns.values()), default=0)
    for column in columns.values():
        column.values = column.values[:rows]
    return columns
