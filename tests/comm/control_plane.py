# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the control plane per rank at several rank counts, as processes on this machine, and fits its growth. Not a test:
times are meaningful only on a quiet machine, so the load is printed with them. Counts of messages are exact on any machine.

usage: python3 tests/comm/control_plane.py [--program build/control_plane] [--ranks 2 4 8 16 32 64] [--steps 200]

messages   that a rank sends per step, including those of MPI's collectives, for the rank that sends most. Measured with Open MPI's
           monitoring, as a long run minus a short one.
step       microseconds per step of the slowest rank, median and minimum over the steps. With more ranks than cores, this grows with the
           ranks per core, whatever is exchanged.
memory     KiB of a rank's private memory: the world with MPI's duplicate of it; the communicator; the steps.
"""
import argparse
import glob
import json
import math
import os
import subprocess
import tempfile

LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "jobs", "mpirun.sh")
ROW = "{:>6} {:>10} {:>12} {:>12} {:>12} {:>14} {:>12}"


def run(arguments, ranks, steps, *options):
    command = ["bash", LAUNCHER, "-q", "--mca", "mpi_yield_when_idle", "1", *options, "-n", str(ranks), arguments.program, str(steps)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def messages_sent(arguments, ranks, steps):
    """Messages sent in the whole run, sorted by number."""
    with tempfile.TemporaryDirectory() as folder:
        run(arguments, ranks, steps, "--mca", "pml_monitoring_enable", "1", "--mca", "pml_monitoring_enable_output", "3",
            "--mca", "pml_monitoring_filename", os.path.join(folder, "sent"))
        found = []
        for path in glob.glob(os.path.join(folder, "sent*")):
            count = 0
            with open(path, encoding="utf-8") as file:
                for line in file:
                    words = line.split()
                    if words and words[0] in ("E", "I"):  # point to point, including the messages of MPI's collectives
                        count += int(line.split("bytes")[1].split()[0])
            found.append(count)
        if len(found) != ranks:
            raise SystemExit(f"Open MPI's monitoring told of {len(found)} of {ranks} ranks")
        return sorted(found)


def fit(points, shape):
    """Least-squares fit of a + b * shape(ranks)."""
    xs, ys = [shape(ranks) for ranks, _ in points], [value for _, value in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    return mean_y - slope * mean_x, slope


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=os.path.abspath, default="build/control_plane")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    print(ROW.format("ranks", "messages", "step us", "least us", "world KiB", "communicator", "steps KiB"))
    columns = {"messages": [], "step_us": [], "least_us": [], "world_kib": [], "communicator_kib": []}
    for ranks in arguments.ranks:
        few, many = (messages_sent(arguments, ranks, steps) for steps in (10, 30))
        found = run(arguments, ranks, arguments.steps)
        found["messages"] = max((b - a) / 20 for a, b in zip(few, many))
        for name, points in columns.items():
            points.append((ranks, found[name]))
        print(ROW.format(ranks, f"{found['messages']:.1f}", f"{found['step_us']:.0f}", f"{found['least_us']:.0f}", f"{found['world_kib']:.0f}",
                         f"{found['communicator_kib']:.0f}", f"{found['steps_kib']:.0f}"), flush=True)
    for name, shape, words in (("messages", math.log2, "log2(ranks)"), ("step_us", float, "ranks, on the same cores"),
                               ("least_us", float, "ranks, on the same cores"),
                               ("world_kib", float, "ranks"), ("communicator_kib", float, "ranks")):
        a, b = fit(columns[name], shape)
        print(f"{name}: {a:.4g} + {b:.4g} x {words}; at 4096 ranks {a + b * shape(4096):.4g}")
    if arguments.ranks[0] == 2:  # with 2 ranks, each has a core of its own
        per_message = columns["least_us"][0][1] / columns["messages"][0][1]
        print(f"a core for each rank: {per_message:.1f} us per message at 2 ranks; times the messages at 4096 ranks "
              f"{per_message * 3 * math.log2(4096):.0f} us, which is calculated, not measured")
    print("load average after:", *os.getloadavg())


if __name__ == "__main__":
    main()
