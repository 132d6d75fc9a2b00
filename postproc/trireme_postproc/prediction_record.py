# SPDX-License-Identifier: Apache-2.0
"""Gathers what dev/experiments/prediction.sh made into one JSON file: python3 -m trireme_postproc.prediction_record FOLDER FILE.json [NAME=VALUE …]

FOLDER/ROUND/RANKS has SETTING.json, a plan with its scaling, and SETTING, the run directory, for every setting.

The JSON file has filetype, version, `facts` (every NAME=VALUE), and `rows` with round, ranks, what (`step, SETTING` or `checkpoint`), and
predicted and measured seconds. For steps, the measured values are the median and quartiles after the warm-up, and exposed seconds are also
predicted and measured. For checkpoints, they are the median and quartiles of write_s, without the checkpoint of the last step, which is not
written during steps, and without the first of a run, which takes longer. There is no checkpoint row if no other checkpoints remain.
"""

import glob
import json
import os
import sys

import numpy as np

from .run_file import RunFile, RunFileError
from .scaling import WARM_UP, warm_seconds

FILETYPE = "trireme-prediction"
VERSION = 1


def _rows(path, round_number, ranks):
    with open(path, encoding="utf-8") as file:
        found = [row for row in json.load(file)["scaling"] if row["ranks"] == ranks]
    if not found or found[0]["strong"] is None:
        raise RunFileError(f"{path}: predicts nothing for {ranks} ranks")
    step, run = found[0]["strong"], RunFile(path[: -len(".json")])
    low, middle, high = np.quantile(warm_seconds(run), (0.25, 0.5, 0.75))
    common = {"round": round_number, "ranks": ranks}
    yield common | {"what": f"step, {os.path.basename(path)[: -len('.json')]}", "predicted_s": step["step_s"], "measured_s": middle,
                    "measured_low_s": low, "measured_high_s": high, "predicted_exposed_s": step["exposed_s"],
                    "measured_exposed_s": float(np.median(run.steps["exposed_s"].values[WARM_UP:]))}
    if found[0]["checkpoint_s"] is not None and "write_s" in run.checkpoints:
        during = run.checkpoints["step"].values < run.steps["step"].values[-1]
        written = run.checkpoints["write_s"].values[during][1:]
        if len(written):
            low, middle, high = np.quantile(written, (0.25, 0.5, 0.75))
            yield common | {"what": "checkpoint", "predicted_s": found[0]["checkpoint_s"], "measured_s": middle, "measured_low_s": low,
                            "measured_high_s": high}


def gather(folder, output, facts):
    """Writes the file `output`. `facts`: texts about the machine and the measurement."""
    rows = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "*", "*.json"))):
        ranks, round_number = (int(os.path.basename(part)) for part in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))))
        rows.extend(_rows(path, round_number, ranks))
    if not rows:
        raise RunFileError(f"{folder}: has no predictions")
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"filetype": FILETYPE, "version": VERSION, "facts": facts, "rows": rows}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    try:
        gather(sys.argv[1], sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:]))
    except RunFileError as error:
        sys.exit(f"error: {error}")
