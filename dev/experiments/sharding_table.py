#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of sharding-table.sh from the files FOLDER/MODEL-RANKS.json that `trireme plan` wrote.
  usage: sharding_table.py FOLDER cuda|cpu RANKS …"""
import json
import sys

MODELS = ("8B", "13B", "70B")


def read_plan(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    folder, device, ranks = sys.argv[1], sys.argv[2], sys.argv[3:]
    plans = {(model, n): read_plan(f"{folder}/{model}-{n}.json") for model in MODELS for n in ranks}
    modes = list(next(iter(plans.values()))["shard_choices"])
    print(f"Ranks are {dict(cuda='GPUs', cpu='CPUs')[device]}, eight per host.\n")
    for title, key in (("Held by a rank, GiB", "held_bytes"), ("Sent by a rank in a step, GiB", "wire_bytes")):
        print(f"{title}:\n")
        print("| model | parameters | parallel.shard |", " | ".join(f"N = {n}" for n in ranks), "|")
        print("|---|---:|---|" + "---:|" * len(ranks))
        for model in MODELS:
            parameters = plans[model, ranks[0]]["parameter_elements"] / 1e9
            for mode in modes:
                values = [plans[model, n]["shard_choices"][mode]["bf16"][key] / 2**30 for n in ranks]
                print(f"| {model} | {parameters:.2f} B | {mode} |", " | ".join(f"{value:.1f}" for value in values), "|")
        print()


if __name__ == "__main__":
    main()
