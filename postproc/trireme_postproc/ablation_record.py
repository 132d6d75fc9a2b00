# SPDX-License-Identifier: Apache-2.0
"""Gathers what dev/experiments/ablation.sh measured into one HDF5 file: python3 -m trireme_postproc.ablation_record FOLDER FILE.h5 [NAME=VALUE …]

FOLDER/rows.tsv has a line per row of the table, with the fields key, source, quantity, title, claim, ratio that the claim means (or
nothing), off and on, separated by tabs. The files of a row are in FOLDER/SOURCE: `off-N` and `on-N` are run directories or JSON files of
`trireme plan`, and `both-N.json` is from a bench that measures both. off-N and on-N with the same N ran directly after each other.

The HDF5 file has the attributes filetype, version and every NAME=VALUE. Each row is a group with the attributes title, claim, claimed_ratio
(NaN: none), off, on, quantity, unit and position, and with the datasets off and on (values), off_turn and on_turn (the N of each value).
A row of steps also has the attributes compute_s, communication_s and exposed_share, each for off and on, if its runs recorded spans.
"""

import csv
import glob
import json
import os
import re
import sys

import h5py
import numpy as np

from . import timings
from .run_file import RunFile, RunFileError
from .scaling import WARM_UP, warm_seconds

FILETYPE = "trireme-ablation"
VERSION = (1, 0)
FIELDS = ("key", "source", "quantity", "title", "claim", "claimed_ratio", "off", "on")
STEP = "step"
REDUCTION = "reduce.bucket"
# Compute includes the spans nested inside these two, except waits.
COMPUTE, COMMUNICATION = ("model.train", "optim.step"), (REDUCTION, "gather.bucket", "matrices.travel")
EXPOSED = ("reduce.exposed", "gather.wait", "matrices.wait")
BYTES = {"fp32": 4, "bf16": 2, "int8": 65 / 64, "fp8": 65 / 64}
STATE = ("master_bytes", "moment1_bytes", "moment2_bytes")


def _json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _step(path, _):
    """Returns the seconds of every step after warm-up."""
    return warm_seconds(RunFile(path))


def _allocations(path, _):
    """Returns the number of allocations of scratch memory in every step after warm-up."""
    return RunFile(path, samples=False).steps["allocations"].values[WARM_UP:]


def _bandwidth(path, _):
    """Returns, for every bucket reduction after warm-up, the bytes of gradients as sent, without padding, over the duration."""
    run = RunFile(path)
    position = next(place for place, span in enumerate(run.spans) if span.name == REDUCTION)
    samples = run.samples[(run.samples["name"] == position) & (run.samples["step"] > WARM_UP) & (run.samples["duration_s"] > 0)]
    bucket, elements, padding = (run.buckets[name].values for name in ("bucket", "elements", "padding"))
    payload = np.zeros(int(bucket.max()) + 1)
    payload[bucket] = (elements - padding) * BYTES[run.deck["parallel.gradient_dtype"]]
    return payload[samples["index"]] / samples["duration_s"]


def _memory(name):
    return lambda path, _: [RunFile(path, samples=False).memory[name][0]]


def _plan(*names):
    return lambda path, _: [sum(_json(path)["per_rank"]["fp32"][name] for name in names)]


def _bench(off, on, value=lambda row: row["seconds"]):
    def read(path, side):
        return [value(row) for row in _json(path)["rows"] if row["operation"] == {"off": off, "on": on}[side]]

    return read


def _growth(name):
    """Reads a value of two memory pools: off: the blocks of the pool double in size, on: they grow by half."""
    return lambda path, side: [row[name] for row in _json(path)["growth"] if row["factor"] == {"off": 2, "on": 1.5}[side]]


def _lease(touched):
    def read(path, side):
        operation = {"off": "allocate", "on": "lease"}[side]
        return [row["seconds"] for row in _json(path)["rows"] if row["operation"] == operation and row["touched"] == touched]

    return read


# By quantity: a function (path, "off" or "on") that reads the values from a file, and their unit.
QUANTITIES = {
    STEP: (_step, "s"),
    "bandwidth of reductions": (_bandwidth, "B/s"),
    "gradients in memory": (_memory("gradients"), "B"),
    "allocations of a step": (_allocations, "1"),
    "scratch, high-water mark": (_memory("scratch"), "B"),
    "resident memory of the largest rank": (_memory("peak_resident"), "B"),
    "optimizer state per rank": (_plan(*STATE), "B"),
    "gradients sent per rank and step": (_plan("gradient_wire_bytes"), "B"),
    "gradient buckets per rank": (_plan("gradient_bytes"), "B"),
    "shard address": (_bench("searched", "cached", lambda row: row["seconds"] / row["buckets"]), "s"),
    "shard addresses of a step": (_bench("searched", "cached"), "s"),
    "fragmentation, mean": (_growth("mean_excess"), "1"),
    "fragmentation, worst": (_growth("worst_excess"), "1"),
    "lease": (_lease(False), "s"),
    "lease, every page written": (_lease(True), "s"),
}


def _files(folder, source, side):
    """Returns pairs (path, N) of one side."""
    paths = sorted(glob.glob(os.path.join(glob.escape(os.path.join(folder, source)), "*")))
    named = [(path, re.fullmatch(rf"(?:{side}|both)-(\d+)(?:\.json)?", os.path.basename(path))) for path in paths]
    return [(path, int(match[1])) for path, match in named if match]


def _where(path):
    """Returns means of a run per step after warm-up and per rank: seconds of compute without waits, seconds of communication, and the share
    of the step during which compute waited for communication. None if no spans were recorded."""
    run = RunFile(path)
    run.samples = run.samples[run.samples["step"] > WARM_UP]
    seconds = {total.span.name: total.per_step for total in timings.totals(run)}
    if not all(name in seconds for name in (timings.ROOT, *COMPUTE)):
        return None
    computing = [run.spans[position].name for name in COMPUTE for position in timings.within(run, name) if not run.spans[position].waits]
    compute, communication, exposed = (sum(seconds.get(name, 0) for name in names) for names in (computing, COMMUNICATION, EXPOSED))
    return compute, communication, exposed / seconds[timings.ROOT]


def _spent(folder, source):
    """Returns the attributes of a row of steps: the medians of the values of _where() over the runs of each side."""
    sides = [[_where(path) for path, _ in _files(folder, source, side)] for side in ("off", "on")]
    if any(run is None for runs in sides for run in runs):
        return {}
    medians = np.array([np.median(runs, axis=0) for runs in sides])
    return dict(zip(("compute_s", "communication_s", "exposed_share"), medians.T))


def _values(folder, source, read, side):
    """Returns all values of one side, and for each value the N of its file."""
    values, turns = [], []
    for path, turn in _files(folder, source, side):
        found = read(path, side)
        values.extend(found)
        turns.extend([turn] * len(found))
    if not values:
        raise RunFileError(f"{os.path.join(folder, source)}: has no values for '{side}'")
    return np.array(values, dtype=float), np.array(turns, dtype=np.int64)


def gather(folder, output, facts):
    """Writes the measurements in `folder` to the file `output`. `facts`: texts about the machine and the measurement."""
    with open(os.path.join(folder, "rows.tsv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, FIELDS, delimiter="\t", quoting=csv.QUOTE_NONE))
    with h5py.File(output, "w") as file:
        file.attrs["filetype"] = FILETYPE
        file.attrs["version"] = VERSION
        file.attrs.update(facts)
        for position, row in enumerate(rows):
            if row["quantity"] not in QUANTITIES:
                raise RunFileError(f"{folder}/rows.tsv: no quantity is called '{row['quantity']}'")
            read, unit = QUANTITIES[row["quantity"]]
            group = file.create_group(row["key"])
            group.attrs.update({name: row[name] for name in ("title", "claim", "off", "on", "quantity")})
            group.attrs.update({"unit": unit, "position": position, "claimed_ratio": float(row["claimed_ratio"] or "nan")})
            for side in ("off", "on"):
                group[side], group[f"{side}_turn"] = _values(folder, row["source"], read, side)
            if row["quantity"] == STEP:
                group.attrs.update(_spent(folder, row["source"]))


if __name__ == "__main__":
    try:
        gather(sys.argv[1], sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
    except RunFileError as error:
        sys.exit(f"error: {error}")
