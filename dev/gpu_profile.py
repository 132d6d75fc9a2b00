#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Summarizes the kernels of a micro-step from the CSV file that the item `ncu` of tests/gpu_session.sh writes.

  python3 dev/gpu_profile.py ncu.csv > docs/results/gpu_kernels.csv     one row per kernel in the order of the step
  python3 dev/gpu_profile.py --table docs/results/gpu_kernels.csv       the same as a Markdown table for a page

Launches before the first layer norm are omitted: the conversions of the initial weights, which run once, and the embedding.
Launches of the same kernel that take about the same time are combined into one row with their count and their mean.
"""
import csv
import itertools
import re
import sys

FIELDS = ("kernel", "launches", "us", "mbytes", "gbytes_per_s", "registers")
SHORT = re.compile(r"^(?:void )?(?:trireme::)?(?:<unnamed>::)?([\w:]+)")  # without arguments


def launches(path):
    """Yields the name, microseconds, megabytes and registers of every launch."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))
    head = rows[0]
    columns = [head.index(name) for name in ("Kernel Name", "gpu__time_duration.sum", "dram__bytes.sum", "launch__registers_per_thread")]
    for row in rows[2:]:  # rows[1] has the units
        name, nanoseconds, size, registers = (row[column] for column in columns)
        yield SHORT.match(name)[1].removesuffix("_kernel0_0"), float(nanoseconds.replace(",", "")) / 1e3, float(size.replace(",", "")) / 1e6, int(registers)


def summary(path):
    """Yields rows of FIELDS. Launches of one kernel whose times differ by less than about 20 % are averaged in one row."""
    groups = []
    of_a_step = itertools.dropwhile(lambda launch: launch[0] == "loop_kernel", launches(path))  # the conversions of the weights
    for name, us, mbytes, registers in of_a_step:
        for group in groups:
            if group["kernel"] == name and abs(group["us"] - us) < 0.2 * us + 1:
                count = group["launches"]
                group.update(launches=count + 1, us=(group["us"] * count + us) / (count + 1),
                             mbytes=(group["mbytes"] * count + mbytes) / (count + 1))
                break
        else:
            groups.append({"kernel": name, "launches": 1, "us": us, "mbytes": mbytes, "registers": registers})
    for group in groups:
        yield {**group, "us": round(group["us"], 1), "mbytes": round(group["mbytes"], 1),
               "gbytes_per_s": round(1e3 * group["mbytes"] / group["us"])}


def main():
    if sys.argv[1:2] == ["--table"]:
        with open(sys.argv[2], encoding="utf-8") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("# ")))
        print("| " + " | ".join(FIELDS) + " |\n|" + "---|" * len(FIELDS))
        for row in rows:
            print("| " + " | ".join(row[field] for field in FIELDS) + " |")
        return
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary(sys.argv[1]))


if __name__ == "__main__":
    main()
