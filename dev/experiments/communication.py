#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a deck with each method that saves communication, and prints bytes, times and losses as CSV.

usage: communication.py [--hosts NAME,… | --ranks N] [--seeds N] [--methods NAME,…] [--local STEPS[:DTYPE],…] [--links NAME,…] [--output DIR] DECK
                        [section.key=value …]

Every method trains on the same tokens. With L local steps a batch has L times the sequences and the run an L-th of the steps, so the number
of steps must be a multiple of L. So must evaluate.batches, so that all losses are of the same sequences. DTYPE is how replicas send the
change of their weights (optimizer.outer.dtype). Runs of one seed follow one
another, so that a machine that changes is the same for all methods. Runs that are complete in DIR are not repeated. The last column is the
loss of a method at the time at which the fastest one has finished; --links adds the same for links of docs/results/communication.csv, such
as "100 Mbit/s", with the times between its two hosts.
Needs a build and h5py. Inside tests/network/hosts.sh, --hosts north,south measures over its link:
  bash tests/network/hosts.sh --rate 100mbit python3 dev/experiments/communication.py --hosts north,south input/quickstart.yaml
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
TRIREME = os.environ.get("TRIREME", os.path.join(PROJECT, "build/trireme"))
METHODS = {
    "fp32": [],
    "bf16": ["parallel.gradient_dtype=bf16"],
    "int8": ["parallel.gradient_dtype=int8"],
    "fp8": ["parallel.gradient_dtype=fp8"],
    "top4": ["parallel.gradient_dtype=top4"],
    "top1": ["parallel.gradient_dtype=top1"],
    "rank 4": ["parallel.gradient_rank=4"],
    "rank 16": ["parallel.gradient_rank=16"],
}
WARMUP = 3  # steps whose times do not count


def local_words(deck, local_steps, dtype):
    """The same tokens in steps of `local_steps` updates of replicas of one rank. `deck`: the resolved one, from a record."""
    for key in ("run.steps", "evaluate.batches"):
        if deck[key] % local_steps:
            raise SystemExit(f"error: {key}={deck[key]} is no multiple of {local_steps} local steps. Give {key}=N.")
    shorter = {key: deck[key] // local_steps for key in ("run.steps", "evaluate.batches", "optimizer.schedule.warmup_steps")}
    return {**shorter, "optimizer.outer.local_steps": local_steps, "optimizer.outer.dtype": dtype or "fp32",
            "parallel.replicate": "rank", "parallel.shard": "optimizer",
            "batch.sequences": deck["batch.sequences"] * local_steps, "evaluate.every_steps": max(deck["evaluate.every_steps"] // local_steps, 1)}


def with_words(given, words):
    """`given` with the keys of `words` replaced or added."""
    return [word for word in given if word.split("=", 1)[0] not in words] + [f"{name}={value}" for name, value in words.items()]


def sent_bytes(deck, words, ranks, hosts):
    """Bytes that a rank sends in a step, by the plan."""
    done = subprocess.run([TRIREME, "plan", deck, *words, "--ranks", str(ranks), "--hosts", str(hosts), "--json", "-"], check=False,
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    held = next(iter(json.loads(done.stdout)["per_rank"].values()))
    return sum(held.get(f"{name}_wire_bytes", 0) for name in ("gradient", "parameter", "matrix"))


def measured(path):
    """(seconds and exposed seconds per step, times, losses and steps of the evaluations)."""
    with h5py.File(os.path.join(path, "run.h5"), "r") as file:
        steps, checked = file["steps"], file["validation"]
        seconds = steps["seconds"][:]
        passed = np.concatenate([[0.0], np.cumsum(seconds)])
        at = checked["step"][:]
        if not len(at):
            raise SystemExit("error: evaluate.every_steps is 0, and losses are compared at evaluations. Give evaluate.every_steps=N.")
        if len(seconds) <= WARMUP:
            raise SystemExit(f"error: {path}: of {len(seconds)} steps, the first {WARMUP} are a warm-up. Give a larger run.steps=N, or fewer local steps.")
        return float(np.median(seconds[WARMUP:])), float(np.median(steps["exposed_s"][WARMUP:])), passed[at], checked["loss"][:], at


def times_over(link, deck):
    """Seconds per batch of each method between two hosts, in the published measurement."""
    with open(os.path.join(PROJECT, "docs/results/communication.csv"), encoding="utf-8", newline="") as file:
        return {row["gradients and steps"]: float(row["median time of a batch"].removesuffix(" ms")) / 1e3
                for row in csv.DictReader(file) if row["link"] == link and row["hosts"] == "2"
                and row["deck"] == os.path.splitext(os.path.basename(deck))[0]}


def resolved_deck(path):
    with h5py.File(os.path.join(path, "run.h5"), "r") as file:
        return dict(file["deck"].attrs)


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def methods_of(text):
    for name in text.split(","):
        if name not in METHODS:
            raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(METHODS)}")
    return text.split(",")


def local_of(text):
    """(local steps, dtype) by the name of the method."""
    found = {}
    for word in filter(None, text.split(",")):
        count, _, dtype = word.partition(":")
        found[f"{count} local steps{', ' * bool(dtype)}{dtype}"] = positive(count), dtype
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("--hosts", default="")
    parser.add_argument("--ranks", type=positive, default=2)
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--methods", type=methods_of, default=",".join(METHODS))
    parser.add_argument("--local", type=local_of, default="5,15")
    parser.add_argument("--links", default="")
    parser.add_argument("--output", default="")
    parser.add_argument("deck")
    parser.add_argument("words", nargs="*")
    given = parser.parse_intermixed_args()
    hosts = given.hosts.split(",") if given.hosts else []
    ranks = len(hosts) or given.ranks
    launch = ["bash", os.path.join(PROJECT, "jobs/mpirun.sh"), *(["-q", "-H", ",".join(f"{host}:1" for host in hosts)] if hosts else []),
              "-n", str(ranks)]
    encodings, local = given.methods, given.local
    methods = {name: with_words(given.words, dict(word.split("=", 1) for word in METHODS[name])) for name in encodings}
    links = {link: times_over(link, given.deck) for link in given.links.split(",") if link}
    for link, times in links.items():
        for name in (*encodings, *local):
            if name not in times:
                raise SystemExit(f"error: docs/results/communication.csv has no time of {name} over {link} on 2 hosts. Leave one of them out.")
    os.makedirs(os.path.join(PROJECT, "runs"), exist_ok=True)
    folder = given.output or tempfile.mkdtemp(prefix="communication-", dir=os.path.join(PROJECT, "runs"))
    rows = {}

    def run(name, words, seed):
        path = os.path.join(folder, f"{name.replace(',', '').replace(' ', '-')}-{seed}")
        fixed = {"run.seed": seed, "run.directory": path, "run.when_finished": "keep", "checkpoint.every_steps": 0, "sample.every_steps": 0,
                 "record.every_steps": 1}
        done = subprocess.run([*launch, TRIREME, given.deck, *with_words(words, fixed)], check=False, stdout=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(done.returncode)
        rows.setdefault(name, []).append(measured(path))
        return path
    for seed in range(1, given.seeds + 1):
        for name, words in list(methods.items()):
            path = run(name, words, seed)
            if len(methods) == len(encodings):
                deck = resolved_deck(path)
                for more, (count, dtype) in local.items():
                    methods[more] = with_words(given.words, local_words(deck, count, dtype))
        if seed == 1:
            for name in list(methods)[len(encodings):]:
                run(name, methods[name], seed)
    tokens = {name: 1 if "local" not in name else int(name.split()[0]) for name in methods}
    fastest = min(np.median([row[2][-1] for row in runs]) for runs in rows.values())
    last = {link: min(times[name] * runs[0][4][-1] * tokens[name] for name, runs in rows.items()) for link, times in links.items()}
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["method", "bytes sent per batch", "seconds per batch", "exposed seconds per batch", "loss after equal tokens", "smallest", "largest",
                  "loss after equal time", *(f"over {link}" for link in links)])
    for name, runs in rows.items():
        losses = [row[3][-1] for row in runs]
        then = [np.interp(fastest, row[2], row[3]) for row in runs]
        out.writerow([name, round(sent_bytes(given.deck, methods[name], ranks, len(hosts) or 1) / tokens[name]),
                      f"{np.median([row[0] for row in runs]) / tokens[name]:.5f}", f"{np.median([row[1] for row in runs]) / tokens[name]:.5f}",
                      f"{np.mean(losses):.4f}", f"{min(losses):.4f}", f"{max(losses):.4f}", f"{np.mean(then):.4f}",
                      *(f"{np.mean([np.interp(last[link] / times[name], row[4] * tokens[name], row[3]) for row in runs]):.4f}"
                        for link, times in links.items())])


if __name__ == "__main__":
    main()
