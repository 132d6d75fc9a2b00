#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the settings that ablation.sh derives from the plans in FOLDER: a twentieth of the model in elements, the last parameter of its
first half, and the number of micro-steps per step (empty if nothing is sent, as on one rank).
  usage: ablation_settings.py FOLDER"""
import itertools
import json
import os
import sys


def read_plan(name):
    with open(os.path.join(sys.argv[1], name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    single, shared = read_plan("parameters"), read_plan("shared")
    elements = {bucket["parameters"][0]: bucket["elements"] - bucket["padding"] for bucket in single["buckets"]}
    names = max((bucket["parameters"] for bucket in shared["buckets"]), key=len)  # the largest bucket: an embedding has a bucket of its own
    ends = list(itertools.accumulate(elements[name] for name in names))
    middle = min(zip(names[:-1], ends), key=lambda end: abs(2 * end[1] - ends[-1]))[0]
    once, each = (read_plan(name)["per_rank"]["fp32"]["gradient_wire_bytes"] for name in ("step", "micro"))
    print(max(1, single["parameter_elements"] // 20), middle, round(each / once) if once else "")


if __name__ == "__main__":
    main()
