# SPDX-License-Identifier: Apache-2.0
"""Checks the goals that dev/experiments/tune-goals.sh measures: python3 -m trireme_postproc.tune_goals FOLDER FILE.json [NAME=VALUE …]

FOLDER/LINK has tune.json and, if tune changed a value, the run directories ROUND-own-1, ROUND-tuned-1, ROUND-tuned-2 and ROUND-own-2. The
ratio of a round is the mean of the median steps of its two tuned runs over that of its two own runs, in the order own, tuned, tuned, own,
so that a steady drift of the machine's speed cancels out. The median ratio decides. Exit code: 0: all goals hold; 1: a goal is missed.

The JSON file has filetype, version, every NAME=VALUE in `facts`, and for each link the chosen values, the ratio that tune measured, the
ratios, the medians in seconds, and whether the goals hold.
"""

import glob
import json
import os
import sys

import numpy as np

from .run_file import RunFile, RunFileError
from .scaling import warm_seconds
from .texts import MISSING, number

FILETYPE = "trireme-tune-goals"
VERSION = 1
SHARED = "shared"
GAIN, LOSS = 0.95, 1.01


def _median_step(directory):
    return float(np.median(warm_seconds(RunFile(directory))))


def of_link(folder):
    """Reads FOLDER/LINK. Returns its entry in the JSON file, without the results of judge()."""
    with open(os.path.join(folder, "tune.json"), encoding="utf-8") as file:
        tuning = json.load(file)
    own, chosen = tuning["runs"][0]["values"], tuning["runs"][tuning["chosen"]]["values"]
    rounds = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*-own-1")), key=lambda path: int(os.path.basename(path).split("-")[0])):
        number_of_round = os.path.basename(path).split("-")[0]
        rounds.append([[_median_step(os.path.join(folder, f"{number_of_round}-{name}-{turn}")) for turn in (1, 2)] for name in ("own", "tuned")])
    if tuning["chosen"] != 0 and not rounds:
        raise RunFileError(f"{folder}: tune chose something, and no runs are there")
    return {"link": os.path.basename(folder), "chosen": {key: value for key, value in chosen.items() if own.get(key) != value},
            "by_tune": tuning["repeated"]["ratio"] if tuning["chosen"] != 0 else None, "rounds_s": rounds}


def judge(link):
    """Adds ratios, medians and goals to the result of of_link(). If tune kept the deck's own values, the ratio is 1 without runs."""
    ratios = [sum(tuned) / sum(own) for own, tuned in link["rounds_s"]] or [1.0]
    for at, name in enumerate(("own_s", "tuned_s")):
        link[name] = float(np.median([seconds for one in link["rounds_s"] for seconds in one[at]])) if link["rounds_s"] else None
    link["ratios"], link["ratio"] = ratios, float(np.median(ratios))
    link["goals"] = {"not_worse": link["ratio"] <= LOSS}
    if link["link"] != SHARED:
        link["goals"]["better"] = link["ratio"] <= GAIN
    return link


def table(links, facts):
    """Returns facts and links as Markdown."""
    lines = [f"{key}: {value}" for key, value in facts.items()]
    lines += ["", "| link | chosen | ratio by tune | own | tuned | ratio | rounds | goals |", "|---|---|---|---|---|---|---|---|"]
    for link in links:
        chosen = ", ".join(f"`{key}: {value}`" for key, value in link["chosen"].items()) or "nothing"
        own, tuned = (f"{number(link[name] * 1e3)} ms" if link[name] else MISSING for name in ("own_s", "tuned_s"))
        by_tune = f"{link['by_tune']:.3f}" if link["by_tune"] else MISSING
        spread = f"{min(link['ratios']):.3f} … {max(link['ratios']):.3f}" if link["rounds_s"] else "not run"
        goals = [(f"≤ {LOSS}", link["goals"]["not_worse"])] + ([(f"≤ {GAIN}", link["goals"]["better"])] if "better" in link["goals"] else [])
        words = ", ".join(f"{text} {'holds' if holds else 'FAILS'}" for text, holds in goals)
        lines.append(f"| {link['link']} | {chosen} | {by_tune} | {own} | {tuned} | {link['ratio']:.3f} | {spread} | {words} |")
    return "\n".join(lines) + "\n"


def main(folder, output, facts):
    paths = [os.path.dirname(path) for path in glob.glob(os.path.join(glob.escape(folder), "*", "tune.json"))]
    links = [judge(of_link(path)) for path in sorted(paths, key=os.path.getmtime)]
    if not links:
        raise RunFileError(f"{folder}: has nothing that was tuned")
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"filetype": FILETYPE, "version": VERSION, "facts": facts, "links": links}, file, indent=1)
        file.write("\n")
    sys.stdout.write(table(links, facts))
    return 0 if all(all(link["goals"].values()) for link in links) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2], dict(word.split("=", 1) for word in sys.argv[3:])))
    except RunFileError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
