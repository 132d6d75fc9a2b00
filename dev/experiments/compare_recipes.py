#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates the runs of compare-recipes.sh: prints the best learning rate of a recipe, or a table and a picture that compare two recipes.
  usage: compare_recipes.py best FOLDER RATE …
         compare_recipes.py table FOLDER BASE OTHER SEED …"""
import statistics
import sys

import h5py
import matplotlib
import numpy

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


def best(folder, *rates):
    """Prints the rate whose run has the lowest final validation loss."""
    found = {}
    for rate in rates:
        with h5py.File(f"{folder}/rate-{rate}/run.h5", "r") as file:
            found[rate] = file["validation/loss"][-1]
    print(*(f"{rate}: {value:.4f}" for rate, value in found.items()), sep="  ", file=sys.stderr)
    print(min(found, key=found.get))


def curve(path):
    """Returns the tokens trained on at each validation of a run, and the validation losses."""
    with h5py.File(path, "r") as file:
        tokens = dict(zip(file["steps/step"][:], file["steps/tokens"][:]))
        steps, losses = file["validation/step"][:], file["validation/loss"][:]
    return numpy.array([tokens.get(step, 0) for step in steps]), losses


def table(folder, base, other, *seeds):
    curves = {(recipe, seed): curve(f"{folder}/{recipe}/seed-{seed}/run.h5") for recipe in (base, other) for seed in seeds}
    for recipe in (base, other):
        ends = [curves[recipe, seed][1][-1] for seed in seeds]
        print(f"{recipe:<12} {int(curves[recipe, seeds[0]][0][-1]):>9} tokens  validation loss {statistics.mean(ends):.4f} "
              f"(seeds: {', '.join(f'{end:.4f}' for end in ends)}; standard deviation {statistics.stdev(ends):.4f})")
    for seed in seeds:
        goal, (tokens, losses) = curves[base, seed][1][-1], curves[other, seed]
        share = numpy.interp(-goal, -losses, tokens) / curves[base, seed][0][-1] if losses.min() <= goal else float("nan")
        print(f"seed {seed}: {other} reaches {goal:.4f} of {base} after {share:.3f} of its tokens (between two evaluations: a straight line)")
    for index, recipe in enumerate((base, other)):
        for seed in seeds:
            tokens, losses = curves[recipe, seed]
            pyplot.plot(tokens / 1e6, losses, f"C{index}", marker="o", markersize=3, label=recipe if seed == seeds[0] else None)
    pyplot.xlabel("tokens / 10⁶")
    pyplot.ylabel("validation loss / nat")
    pyplot.yscale("log")
    pyplot.legend()
    pyplot.savefig(f"{folder}/recipes.png", dpi=150)
    print(f"picture: {folder}/recipes.png")


if __name__ == "__main__":
    {"best": best, "table": table}[sys.argv[1]](*sys.argv[2:])
