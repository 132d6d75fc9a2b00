#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of checkpoint-speed.sh: the checkpoints in FOLDER/run*/run.h5 compared with the times of dd in FOLDER/dd.txt.
  usage: checkpoint_speed.py FOLDER"""
import glob
import statistics
import sys

import h5py


def main():
    folder = sys.argv[1]
    during, waiting, beyond, steps, size = [], [], [], [], 0
    for path in glob.glob(folder + "/run*/run.h5"):
        with h5py.File(path, "r") as file:
            rows = {name: list(column[:]) for name, column in file["checkpoints"].items()}
            steps += list(file["steps/seconds"][1:])
        size = rows["bytes"][0]
        # The run waits for the last checkpoint. The one before it has only one step to overlap with, so it is omitted.
        during += rows["write_s"][:-2]
        waiting += rows["write_s"][-1:]
        beyond += [stall - copy for stall, copy in zip(rows["stall_s"][:-2], rows["copy_s"])]
    with open(folder + "/dd.txt", encoding="ascii") as file:
        dd = [float(line) for line in file]
    step = statistics.median(steps)
    print(f"{size / 1e6:.0f} MB, median step {step:.3f} s")
    for what, times in (("dd conv=fsync", dd), ("written while the run waits", waiting), ("written during the steps", during)):
        median = statistics.median(times)
        print(f"{what:<28} median {median:.3f} s of {len(times)} ({min(times):.3f} to {max(times):.3f}), {size / median / 1e6:6.0f} MB/s, "
              f"{statistics.median(dd) / median:.2f} of dd's bandwidth")
    print(f"the run was paused beyond the copy: median {1e3 * statistics.median(beyond):.1f} ms, at most {1e3 * max(beyond):.1f} ms; "
          f"a tenth of a step: {100 * step:.1f} ms")


if __name__ == "__main__":
    main()
