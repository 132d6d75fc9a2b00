# SPDX-License-Identifier: Apache-2.0
"""Writes small run files in the format of src/records/record/run/run_file.hpp, so that tests need no training."""

import json
import zlib
import h5py
import numpy as np

STEP_UNITS = {
    "step": "steps",
    "loss": "nat/token",
    "grad_norm": "1",
    "learning_rate": "1",
    "tokens": "tokens",
    "seconds": "s",
    "tokens_per_s": "tokens/s",
    "flops_per_s": "FLOP/s",
    "exposed_s": "s",
    "allocations": "allocations",
}
SET_UNITS = {"step": "steps", "loss": "nat/token", "bits_per_byte": "bit/byte"}
SPANS = [
    ("step", "", "One optimizer step."),
    ("data.next", "", "Within step: fetching one micro-batch."),
    ("model.train", "", "Within step: forward and backward."),
    ("model.forward", "", "Within model.train: forward."),
    ("model.backward", "", "Within model.train: backward."),
    ("reduce.bucket", "bucket", "Reduction of one bucket on the network."),
    ("reduce.exposed", "bucket", "Within step: compute waited."),
    ("optim.step", "", "Within step: AdamW."),
    ("optim.matrices", "", "Within optim.step: compute was busy with Muon's matrices."),
    ("matrices.travel", "bucket", "Matrices of one bucket on the network."),
    ("matrices.wait", "bucket", "Within optim.matrices: compute waited for this bucket's matrices."),
    ("evaluate", "", "One evaluation."),
]
SAMPLE = np.dtype(
    {
        "names": ["step", "micro", "name", "index", "rank", "begin_s", "duration_s"],
        "formats": ["u4", "u2", "u2", "u4", "u4", "f8", "f8"],
        "offsets": [0, 4, 6, 8, 12, 16, 24],
        "itemsize": 32,
    }
)
SECONDS = {
    "step": 0.100,
    "data.next": 0.002,
    "model.train": 0.080,
    "model.forward": 0.025,
    "model.backward": 0.050,
    "reduce.bucket": 0.006,
    "reduce.exposed": 0.004,
    "optim.step": 0.010,
    "optim.matrices": 0.003,
    "matrices.travel": 0.0015,
    "matrices.wait": 0.002,
}


def samples(steps, ranks=2, micros=2, buckets=2, muon=False):
    """All steps take the times in SECONDS, divided among micro-steps and buckets. Compute waits for buckets inside optim.step and, with
    `muon`, for matrices inside optim.matrices, which is inside optim.step."""
    position = {dotted: name for name, (dotted, _, _) in enumerate(SPANS)}
    rows = []

    def add(dotted, begin, step, rank, micro=0, index=0, pieces=1):
        rows.append((step, micro, position[dotted], index, rank, begin, SECONDS[dotted] / pieces))
        return begin + SECONDS[dotted] / pieces

    for step in range(1, steps + 1):
        for rank in range(ranks):
            now = 0.1 * step
            add("step", now, step, rank)
            for micro in range(micros):
                now = add("data.next", now, step, rank, micro, pieces=micros)
                trained = add("model.train", now, step, rank, micro, pieces=micros)
                now = add("model.forward", now, step, rank, micro, pieces=micros)
                add("model.backward", now, step, rank, micro, pieces=micros)
                now = trained
            add("optim.step", now, step, rank)
            for bucket in range(buckets):
                add("reduce.bucket", now - 0.01, step, rank, 0, bucket, buckets)
                now = add("reduce.exposed", now + 0.001, step, rank, 0, bucket, buckets)
            if muon:
                add("optim.matrices", now, step, rank)
                for bucket in range(buckets):
                    add("matrices.travel", now, step, rank, 0, bucket, buckets)
                    now = add("matrices.wait", now, step, rank, 0, bucket, buckets)
    return np.array(rows, dtype=SAMPLE)


def write(
    path,
    steps=40,
    validation=True,
    spans=True,
    version=(1, 0),
    filetype="trireme-run",
    wanted=None,
    units=None,
    noise=0.05,
    noise_scale=None,
    layers=0,
    sets=None,
    anchors=None,
    muon=False,
):
    """A run on two ranks with steps of 4096 tokens. `muon`: adds the spans of that optimizer. `noise_scale`: grows to this number of
    tokens. `sets`: maps names in /evaluation to columns, which are lists. `anchors`: the calendar time at which each rank's clock started.
    `layers`: number of layers in /norms, which are measured every second step."""
    rng = np.random.default_rng(1)
    step = np.arange(1, steps + 1, dtype=np.int64)
    loss = 1.6 + 3.9 * np.exp(-step / max(1, steps / 6)) + rng.normal(0, noise, steps)
    seconds = np.full(steps, 0.1) * (1 + rng.normal(0, noise, steps))
    values = {
        "step": step,
        "loss": loss,
        "grad_norm": 1 + rng.random(steps),
        "learning_rate": 6e-4 * np.minimum(step / 10, 0.55 + 0.45 * np.cos(np.pi * step / max(1, steps))),
        "tokens": step * 4096,
        "seconds": seconds,
        "tokens_per_s": 4096 / seconds,
        "flops_per_s": 4096 / seconds * 5e6,
        "exposed_s": np.full(steps, 0.004),
        "allocations": np.zeros(steps, dtype=np.int64),
    }
    with h5py.File(path, "w") as file:
        file.attrs["filetype"] = filetype
        file.attrs["version"] = np.array(version, dtype=np.int64)
        file.attrs["software"] = "trireme"
        file.attrs["date_and_time"] = "2026-08-01 17:04:05 +0000"
        file.attrs["machine"] = "node07"
        file.attrs["parameters"] = np.int64(842240)
        deck = file.create_group("deck")
        deck.attrs["run.name"] = "made-up"
        deck.attrs["run.steps"] = np.int64(steps if wanted is None else wanted)
        deck.attrs["model.layers"] = np.int64(4)
        deck.attrs["model.channels"] = np.int64(128)
        unit_of = {**STEP_UNITS, **(units or {})}
        for name, column in values.items():
            dataset = file.create_dataset(f"steps/{name}", data=column, maxshape=(None,))
            dataset.attrs["units"] = unit_of[name]
            dataset.attrs["long_name"] = f"What {name} means."
        at = np.arange(0, steps + 1, max(1, steps // 8)) if validation else np.zeros(0)
        for name, column, unit in (
            ("step", at.astype(np.int64), "steps"),
            ("loss", 1.7 + 3.8 * np.exp(-at / max(1, steps / 6)), "nat/token"),
        ):
            file.create_dataset(f"validation/{name}", data=column, maxshape=(None,)).attrs["units"] = unit
        if noise_scale is not None:
            deck.attrs["batch.sequences"], deck.attrs["model.context"] = np.int64(8), np.int64(512)
            tokens = noise_scale * np.linspace(0.1, 1, steps)
            gradient = np.exp(rng.normal(0, 1, steps)) * np.where(rng.random(steps) < 0.3, -1, 1)
            for name, column, unit in (
                ("step", step, "steps"),
                ("trace", tokens / 512, "1"),
                ("gradient_squared", gradient, "1"),
                ("sequences", tokens / 512, "sequences"),
                ("tokens", tokens, "tokens"),
            ):
                file.create_dataset(f"noise_scale/{name}", data=column, maxshape=(None,)).attrs["units"] = unit
        if layers:
            measured = np.repeat(step[1::2], layers)
            layer = np.tile(np.arange(layers, dtype=np.int64), len(step[1::2]))
            for name, column in (("step", measured), ("layer", layer), ("gradient", 1.0 + layer), ("weight", 10.0 + layer), ("update", 0.1 / measured)):
                file.create_dataset(f"norms/{name}", data=column, maxshape=(None,)).attrs["units"] = "1"
        for name, columns in (sets or {}).items():
            file.require_group("evaluation").attrs[name] = "text: held-out"
            for column, column_values in columns.items():
                unit = SET_UNITS.get(column, "fraction")
                file.create_dataset(f"evaluation/{name}/{column}", data=column_values, maxshape=(None,)).attrs["units"] = unit
        file.create_dataset("sessions/ranks", data=np.array([2], dtype=np.int64)).attrs["units"] = "ranks"
        table = file.create_dataset("timings/names", data=[name for name, _, _ in SPANS])
        table.attrs["index_of"] = [index for _, index, _ in SPANS]
        table.attrs["help_of"] = [text for _, _, text in SPANS]
        rows = samples(steps if spans else 0, muon=muon)
        dataset = file.create_dataset("timings/samples", data=rows, maxshape=(None,))
        dataset.attrs["units"] = "begin_s: s after the rank's anchor; duration_s: s"
        for name, column in (("first_step", [1] * len(anchors or ())), ("rank", range(len(anchors or ()))), ("calendar_s", anchors)):
            if anchors:
                file[f"timings/anchors/{name}"] = np.array(column)
        file["timings"].attrs["dropped"] = 0.0
        file["timings"].attrs["dropped_unit"] = "samples"
        memory = file.create_group("memory")
        memory.attrs["unit"] = "byte"
        memory.attrs["peak_resident"] = np.int64(3 * 2**29)
    return str(path)


def log_line(kind, **values):
    """A line of steps.jsonl."""
    summed = json.dumps({"kind": kind, **values})[:-1].encode()
    return (summed + b', "crc32": "%08x"}\n' % zlib.crc32(summed)).decode()


def keep_rows(path, steps):
    """Removes the rows of all other steps from /steps, as record.every_steps does."""
    with h5py.File(path, "a") as file:
        chosen = np.isin(file["steps/step"][:], steps)
        for column in file["steps"].values():
            values = column[:][chosen]
            column.resize(values.shape)
            column[:] = values


def begin_early(path, step):
    """Moves the first reduction of rank 0 in `step` to 1 ms before the step, as happens to gathers that nothing waits for."""
    with h5py.File(path, "a") as file:
        rows = file["timings/samples"][:]
        bucket = [name for name, *_ in SPANS].index("reduce.bucket")
        first = np.flatnonzero((rows["name"] == bucket) & (rows["rank"] == 0) & (rows["step"] == step))[0]
        rows["begin_s"][first] = 0.1 * step - 0.001
        file["timings/samples"][:] = rows
