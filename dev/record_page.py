#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/run-file.md, the schema of run.h5, from the units and descriptions that a record holds itself.

usage: record_page.py RUN.h5 > docs/reference/run-file.md

The committed page is that of tests/integration/tiny.yaml on three ranks; integration.Record compares its tables.
"""
import sys

import h5py

HEAD = """# run.h5

The tables of a run's record. Written by `dev/record_page.py` from a record; do not edit.

Every dataset of a table has one dimension and the attributes `units` and `long_name`, which are shown here. The first
dataset of a table is the dimension scale of the others, so `xarray.open_dataset("run.h5", group="steps")` works
without further arguments. An evaluation set of the deck adds a group `/evaluation/NAME` with the columns `step`,
`loss`, `bits_per_byte`, `accuracy`, `accuracy_error`, `accuracy_per_token`, `accuracy_per_token_error`,
`accuracy_per_byte` and `accuracy_per_byte_error`. Strings are UTF-8. When the file is written, and what is in
`steps.jsonl`, is described in [stopping.md](../guide/stopping.md#the-record).
"""


def type_of(item):
    if item.dtype.names:
        return "compound: " + ", ".join(f"`{name}` {item.dtype[name]}" for name in item.dtype.names)
    return "string" if h5py.check_string_dtype(item.dtype) else str(item.dtype)


def cell(text):
    return str(text).replace("|", "\\|")


def row(name, item):
    return f"| `{name}` | {type_of(item)} | {cell(item.attrs.get('units', ''))} | {cell(item.attrs.get('long_name', ''))} |"


def tables(group):
    """Pairs of a group and its datasets, first the dimension scale, for all groups below `group` that have any."""
    datasets = [(name, item) for name, item in group.items() if isinstance(item, h5py.Dataset)]
    datasets.sort(key=lambda pair: (not h5py.h5ds.is_scale(pair[1].id), pair[0]))
    if datasets:
        yield group.name, datasets
    for item in group.values():
        if isinstance(item, h5py.Group):
            yield from tables(item)


def page(file):
    lines = [HEAD]
    for name, datasets in tables(file):
        lines += [f"## {name}", "", "| dataset | type | units | content |", "|---|---|---|---|"]
        lines += [row(*pair) for pair in datasets]
        lines.append("")
    lines += ["## Attributes", "", "| object | attributes |", "|---|---|"]
    for name in ("/", "/deck", "/memory", "/timings"):
        attributes = "one per key of the resolved deck, such as `run.steps`" if name == "/deck" else ", ".join(
            f"`{attribute}`" for attribute in sorted(file[name].attrs) if not attribute.startswith("scratch."))
        lines.append(f"| `{name}` | {attributes} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with h5py.File(sys.argv[1], "r") as run:
        sys.stdout.write(page(run))
