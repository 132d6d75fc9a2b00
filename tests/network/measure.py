# SPDX-License-Identifier: Apache-2.0
"""Measures across two hosts: the ring compared with the wire, and how much of the communication is hidden by overlap. Not a test: numbers
are meaningful only on a quiet machine, so the load is printed with them.

usage: bash hosts.sh [--rate RATE] python3 measure.py TRIREME [--rate-gbit 2] [--sequences 2 3 4] [--rounds 3] [--shard optimizer]

ring      median of `trireme bench reduce` compared with wire time: each rank sends half of the bytes, at 1448 of 1514 bytes per frame
overlap   overlap.yaml with both overlaps on and off, alternating. Communication is the time of a step without overlap in reductions and
          gathers of buckets, from the samples of rank 0. Compute is the time of that step minus its waiting time (/steps/exposed_s).
          These columns are fractions of communication: `off` and `on`, the waiting time without and with overlap; `wall`, the time of
          the step with overlap beyond compute; `bound`, the least exposed time of any transport. The bound assumes the same schedule
          and collectives that take as long as without overlap and run one after another, each from when it was ready until compute
          asks for it. `buckets`: the waiting time for buckets alone with overlap, to compare with the bound.
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
LAUNCHER = os.path.join(HERE, os.pardir, os.pardir, "jobs", "mpirun.sh")
FRAME = 1514 / 1448
WARM_UP = 5
ROW = "{:>9} {:>12} {:>12} {:>8} {:>12} {:>12} {:>8} {:>8} {:>8} {:>8} {:>8}"
COLLECTIVES = {"reduce.bucket": "reduce.exposed", "gather.bucket": "gather.wait"}
READY = {"reduce.bucket": "reduce.ready", "gather.bucket": "gather.ready"}


def mpirun(*command):
    done = subprocess.run(["bash", LAUNCHER, "-q", "-H", "north:1,south:1", "-n", "2", *command],
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


def spans_of(file):
    """Spans of rank 0 after the warm-up, sorted by begin: (begin, seconds, name, step, bucket)."""
    names = [name.decode() for name in file["timings/names"][:]]
    rows = file["timings/samples"][:]
    rows = rows[(rows["rank"] == 0) & (rows["step"] > WARM_UP)]
    return sorted((float(row["begin_s"]), float(row["duration_s"]), names[row["name"]], int(row["step"]), int(row["index"])) for row in rows)


def lower_bound(spans, seconds):
    """Least seconds per step that compute waits with the schedule in `spans`: a queue of collectives that take `seconds[name, bucket]`."""
    waits = [(begin, took) for begin, took, name, _, _ in spans if name in COLLECTIVES.values()]

    def computed(moment):
        """Time until `moment` without the waits."""
        return moment - sum(min(took, max(0.0, moment - begin)) for begin, took in waits)

    moments = {}  # when each collective was ready, and when compute asked for it
    for begin, _, name, step, bucket in spans:
        if name in READY.values() or name in COLLECTIVES.values():
            moments.setdefault((name, step, bucket), []).append(begin)
    events = []
    for number, (_, _, name, step, bucket) in enumerate(span for span in spans if span[2] in COLLECTIVES):
        ready = moments[READY[name], step, bucket].pop(0)
        events.append((computed(ready), 0, number, seconds[name, bucket]))
        asked = moments.get((COLLECTIVES[name], step, bucket))
        if asked:  # None for what was gathered ahead at the end of the run
            events.append((max(computed(asked.pop(0)), computed(ready)), 1, number, 0.0))
    waited, free, ends = 0.0, float("-inf"), {}
    for moment, asks, number, took in sorted(events):
        if asks:
            waited += max(0.0, ends[number] - (moment + waited))
        else:
            free = ends[number] = max(free, moment + waited) + took
    return waited / len({step for _, _, _, step, _ in spans})


def step_times(arguments, folder, name, sequences, overlap):
    """Of rank 0: medians over the steps of total, exposed and communication seconds, and the spans."""
    run = os.path.join(folder, name)
    word = "true" if overlap else "false"
    mpirun(arguments.trireme, os.path.join(HERE, "overlap.yaml"), f"run.directory={run}", f"data.train.text=[{folder}/text]",
           f"batch.sequences={2 * sequences}", f"batch.micro_sequences={sequences}", f"parallel.shard={arguments.shard}",
           f"parallel.overlap_gradients={word}", f"parallel.overlap_parameters={word}")
    with h5py.File(os.path.join(run, "run.h5"), "r") as file:
        columns = [statistics.median(file["steps"][column][WARM_UP:]) for column in ("seconds", "exposed_s")]
        spans = spans_of(file)
        in_step = {}
        for _, took, kind, step, _ in spans:
            if kind in COLLECTIVES:
                in_step[step] = in_step.get(step, 0) + took
        return [*columns, statistics.median(in_step.values()), spans]


def bounds(on, off):
    """Medians over the runs with overlap: the lower bound of the time that compute waits for buckets, and the measured time."""
    taken = {}
    for spans in off:
        for _, took, name, _, bucket in spans:
            if name in COLLECTIVES:
                taken.setdefault((name, bucket), []).append(took)
    seconds = {key: statistics.median(took) for key, took in taken.items()}
    waited = [sum(took for _, took, name, _, _ in spans if name in COLLECTIVES.values()) / len({step for _, _, _, step, _ in spans})
              for spans in on]
    return statistics.median(lower_bound(spans, seconds) for spans in on), statistics.median(waited)


def overlap(arguments, folder):
    print("overlap: milliseconds per step, medians")
    print(ROW.format("sequences", "compute", "communicate", "ratio", "step off", "step on", "off", "on", "wall", "bound", "buckets"))
    for sequences in arguments.sequences:
        found = {True: [], False: []}
        for turn in range(arguments.rounds):
            for switch in (False, True):
                found[switch].append(step_times(arguments, folder, f"{sequences}-{turn}-{switch}", sequences, switch))
        (off, waited, communication), (on, exposed, _) = ([statistics.median(column) for column in list(zip(*found[switch]))[:3]]
                                                          for switch in (False, True))
        bound, buckets = bounds([run[3] for run in found[True]], [run[3] for run in found[False]])
        compute = off - waited
        print(ROW.format(sequences, f"{compute * 1e3:.1f}", f"{communication * 1e3:.1f}", f"{compute / communication:.2f}",
                         f"{off * 1e3:.1f}", f"{on * 1e3:.1f}", f"{waited / communication:.1%}", f"{exposed / communication:.1%}",
                         f"{(on - compute) / communication:.1%}", f"{bound / communication:.1%}", f"{buckets / communication:.1%}"),
              flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trireme", type=os.path.abspath)
    parser.add_argument("--rate-gbit", type=float, default=2)
    parser.add_argument("--sequences", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shard", choices=("optimizer", "gradients", "parameters"), default="optimizer")
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
