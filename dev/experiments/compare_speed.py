#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of speed.sh --against. The runs are FOLDER/DECK-PRECISION-{here,other}-ROUND. For each side the table has the median
over all rounds of the run's median step time, then the ratio of these medians and the lowest and highest ratio of a single round.
  usage: compare_speed.py FOLDER ROUNDS "DECK PRECISION …" …"""
import sys

import h5py
import numpy as np


def median_step(path):
    with h5py.File(f"{path}/run.h5", "r") as file:  # not with postproc, which reads the format of its own version only
        return np.median(file["steps/seconds"][1:])  # the first step is a warm-up


def main():
    folder, rounds, rows = sys.argv[1], int(sys.argv[2]), [row.split() for row in sys.argv[3:]]
    print(f"{'deck':20}{'there':>10}{'here':>10}{'ratio':>8}{'lowest':>8}{'highest':>8}")
    for deck, precision, *_ in rows:
        there, here = ([median_step(f"{folder}/{deck}-{precision}-{side}-{i}") for i in range(1, rounds + 1)] for side in ("other", "here"))
        ratios = np.array(here) / np.array(there)
        medians = np.median(there), np.median(here)
        times = "".join(f"{median:8.4g} s" for median in medians)
        print(f"{deck + ' ' + precision:20}{times}{medians[1] / medians[0]:8.3f}{min(ratios):8.3f}{max(ratios):8.3f}")


if __name__ == "__main__":
    main()
