#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upload.py FILE.jsonl URL [NAME]: one HTTP POST per JSON line, or `wandb` or `mlflow` in place of the URL, with that package.
FILE: steps.jsonl of a run, or rows of `trireme-postproc export --format jsonl`. Run it again after a resume, which takes rows back."""
import json
import sys
import urllib.request

if len(sys.argv) < 3:
    sys.exit(__doc__)
path, target, name = sys.argv[1], sys.argv[2], (sys.argv + ["run"])[3]
if target == "wandb":
    import wandb
    wandb.init(name=name)
    send = lambda step, row: wandb.log(row, step=step)
elif target == "mlflow":
    import mlflow
    mlflow.start_run(run_name=name)
    send = lambda step, row: mlflow.log_metrics(row, step=step)
else:
    head = {"Content-Type": "application/json"}
    send = lambda step, row: urllib.request.urlopen(
        urllib.request.Request(target, json.dumps({"run": name, "step": step, **row}).encode(), head), timeout=60).close()
rows = []
for line in open(path, encoding="utf-8", errors="replace"):
    try:
        found = json.loads(line)
    except ValueError:  # the line is being written, or was truncated by a kill
        continue
    row = {key: value for key, value in found.items() if value is not None and key != "crc32"}  # null: not finite
    kind = row.pop("kind", "step")
    if kind == "step":
        rows.append(row)
    elif kind == "rewind":  # a resume took the rows of later steps back
        rows = [one for one in rows if one["step"] <= row["step"]]
for row in rows:
    send(row.pop("step"), row)
