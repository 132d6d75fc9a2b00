# SPDX-License-Identifier: Apache-2.0
"""Measures across two hosts: the ring against the wire, and how much of the communication overlap hides. No test: numbers count on a
quiet machine only, and the load is printed with them.

usage: bash hosts.sh [--rate RATE] python3 measure.py TRIREME [--rate-gbit 2] [--sequences 2 3 4] [--rounds 3]

ring      median of `trireme bench reduce` against wire time: each rank sends half of the bytes, at 1448 of 1514 bytes per frame
overlap   overlap.yaml with both overlaps on and off, taking turns. Communication is the time that a step without overlap spends in
          its buckets' reductions and gathers, by the record's samples of rank 0; compute is what such a step takes when what it
          waits for (/steps/exposed_s) is left out. `off` and `on`: what is waited for without and with overlap, as a part of
          communication; `wall`: how much longer than compute the step with overlap is, as a part of communication.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))
FRAME = 1514 / 1448
WARM_UP = 5
ROW = "{:>9} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8} {:>8} {:>8}"


def mpirun(*command):
    done = subprocess.run(["mpirun", "-q", "-H", "north:1,south:1", "--bind-to", "none", "-n", "2", *command],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def ring(arguments, folder):
    total = 1 << 24
    path = os.path.join(folder, "ring.json")
    mpirun(arguments.trireme, "bench", "reduce", "--bytes", str(total), "--transport", "mpi", "--json", path)
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    wire = total / 2 * 8 * FRAME / (arguments.rate_gbit * 1e9)
    print(f"ring: {total >> 20} MiB, 2 ranks; wire time of half of it {wire * 1e3:.1f} ms")
    for row in rows:
        print(f"  {row['operation']:<26} {row['transport']:<6} {row['dtype']:<5} {row['seconds'] * 1e3:8.1f} ms "
              f"{row['seconds'] / wire:6.2f} of wire time")


def step_times(arguments, folder, name, sequences, overlap):
    """Medians over the steps: seconds, exposed seconds, and seconds in reductions and gathers, all of rank 0."""
    run = os.path.join(folder, name)
    word = "true" if overlap else "false"
    mpirun(arguments.trireme, os.path.join(HERE, "overlap.yaml"), f"run.directory={run}", f"data.train.text=[{folder}/text]",
           f"batch.sequences={2 * sequences}", f"batch.micro_sequences={sequences}",
           f"parallel.overlap_gradients={word}", f"parallel.overlap_parameters={word}")
    with h5py.File(os.path.join(run, "run.h5"), "r") as file:
        columns = [statistics.median(file["steps"][column][WARM_UP:]) for column in ("seconds", "exposed_s")]
        names = [name.decode() for name in file["timings/names"][:]]
        wanted = [names.index("reduce.bucket"), names.index("gather.bucket")]
        samples = [row for row in file["timings/samples"][:] if row["rank"] == 0 and row["name"] in wanted and row["step"] > WARM_UP]
        in_step = {}
        for row in samples:
            in_step[row["step"]] = in_step.get(row["step"], 0) + row["duration_s"]
        return [*columns, statistics.median(in_step.values())]


def overlap(arguments, folder):
    print("overlap: milliseconds per step, medians")
    print(ROW.format("sequences", "compute", "communicate", "ratio", "step off", "step on", "off", "on", "wall"))
    for sequences in arguments.sequences:
        found = {True: [], False: []}
        for turn in range(arguments.rounds):
            for switch in (False, True):
                found[switch].append(step_times(arguments, folder, f"{sequences}-{turn}-{switch}", sequences, switch))
        (off, waited, communication), (on, exposed, _) = ([statistics.median(column) for column in zip(*found[switch])]
                                                          for switch in (False, True))
        compute = off - waited
        print(ROW.format(sequences, f"{compute * 1e3:.1f}", f"{communication * 1e3:.1f}", f"{compute / communication:.2f}",
                         f"{off * 1e3:.1f}", f"{on * 1e3:.1f}", f"{waited / communication:.1%}", f"{exposed / communication:.1%}",
                         f"{(on - compute) / communication:.1%}"), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme", type=os.path.abspath)
    parser.add_argument("--rate-gbit", type=float, default=2)
    parser.add_argument("--sequences", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("ring", "overlap"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "text"))
        with open(os.path.join(folder, "text", "a.txt"), "w", encoding="ascii") as out:
            out.writelines(f"{line}: the quick brown fox jumps over {line * 7 % 31} lazy dogs\n" for line in range(5000))
        for measure in (overlap, ring):
            if arguments.only in (None, measure.__name__):
                measure(arguments, folder)
    print("load average after:", *os.getloadavg())


if __name__ == "__main__":
    main()
