#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/reference from what the program prints and writes.

usage: reference_pages.py deck-keys.txt TRIREME           trireme help deck
       reference_pages.py verbs.txt TRIREME               trireme --help, and the help of every verb
       reference_pages.py run-file.md RUN_DIR             the tables of run.h5, from their own units and descriptions
       reference_pages.py checkpoint.md RUN_DIR           the files of a checkpoint
  prints the page. The committed run-file.md and checkpoint.md are those of tests/integration/tiny.yaml on three ranks.

The tests docs.commands and integration.Record compare the committed pages.
"""
import glob
import os
import re
import subprocess
import sys
import textwrap

RUN_FILE = """# run.h5

The tables of a run's record, written by `dev/reference_pages.py`. A dataset is listed with its
type, its attribute `units` in brackets, and its attribute `long_name`. Every dataset of a table has
one dimension, and the first is the dimension scale of the others. An evaluation set of the deck
adds a group `/evaluation/NAME` with the columns `step`, `loss`, `bits_per_byte`, `accuracy`,
`accuracy_error`, `accuracy_per_token`, `accuracy_per_token_error`, `accuracy_per_character` and
`accuracy_per_character_error`. Facts are attributes of `/`, `/deck` (one per key), `/memory` and
`/timings`.
"""
CHECKPOINT = """# Checkpoints

The files of `checkpoints/step-########`, written by `dev/reference_pages.py` from a checkpoint.
Format version {version}. A checkpoint is valid when all files are there and every hash matches.

- `manifest.h5`: what the checkpoint is, and which file has which elements
- `manifest.xxh64`: the XXH64 of `manifest.h5`, as `xxhsum -c` reads it
- `rank-#####.h5`: the data of one rank in `/STATE/PARAMETER`, later ranges in
  `/STATE/PARAMETER@BEGIN`
"""
MANIFEST = {  # descriptions of the datasets of the manifest
    "/files/bytes": "Size of each rank's file in bytes.",
    "/files/frame": "XXH64 of each rank's file without the data of its pieces.",
    "/parameters/name": "Names of the parameters, in the order of registration.",
    "/parameters/shape": "Their shapes, such as 384x128.",
    "/parameters/elements": "Their numbers of elements.",
    "/tokenizer": "The tokenizer of the tokens, in the text form of trireme.",
    "/states/name": "What is saved of each parameter: weights or master weights, and moments.",
    "/states/dtype": "The type of each state: fp32 or bf16.",
    "/pieces": "A row per range of elements [begin, begin + count) of a parameter in a state, with the rank in whose file it is, "
               "the offset of its first byte there, and the sum of its element_hash (base/hash.hpp).",
}
TENSORS = "Virtual datasets over the pieces, flat, with attributes shape and content_hash: read a whole parameter from them."
GROUPS = {
    "/deck": "one attribute per deck key",
    "/model": "facts that a run must share to resume",
    "/more": "facts for information, such as the version of trireme and the losses",
}


def listed(text):
    return textwrap.fill(f"- {text}", 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def type_of(item):
    import h5py
    if item.dtype.names:
        return "compound of " + ", ".join(f"`{name}` {item.dtype[name]}" for name in item.dtype.names)
    return "string" if h5py.check_string_dtype(item.dtype) else str(item.dtype)


def tables(group):
    """Yields (name, datasets) for every group at or below `group` that has datasets. The dimension scale comes first."""
    import h5py
    datasets = [(name, item) for name, item in group.items() if isinstance(item, h5py.Dataset)]
    datasets.sort(key=lambda pair: (not h5py.h5ds.is_scale(pair[1].id), pair[0]))
    if datasets:
        yield group.name, datasets
    for item in group.values():
        if isinstance(item, h5py.Group):
            yield from tables(item)


def run_file(directory):
    import h5py
    lines = [RUN_FILE]
    with h5py.File(os.path.join(directory, "run.h5"), "r") as file:
        for group, datasets in tables(file):
            lines += [f"## {group}", ""]
            for name, item in datasets:
                unit = item.attrs.get("units", "")
                lines.append(listed(f"`{name}` {type_of(item)}{f' [{unit}]' if unit else ''}: {item.attrs.get('long_name', '')}"))
            lines.append("")
    return "\n".join(lines)


def checkpoint(directory):
    import h5py
    newest = sorted(glob.glob(os.path.join(glob.escape(directory), "checkpoints", "step-*")))[-1]
    found = []
    with h5py.File(os.path.join(newest, "manifest.h5"), "r") as file:
        file.visititems(lambda name, item: found.append("/" + name) if isinstance(item, h5py.Dataset) else None)
        plain = [name for name in found if not name.startswith("/tensors/")]
        if set(plain) != set(MANIFEST):
            raise ValueError(f"the manifest has the datasets {sorted(plain)}, and this script describes {sorted(MANIFEST)}")
        lines = [CHECKPOINT.format(version=".".join(str(number) for number in file.attrs["version"])), "## manifest.h5", ""]
        lines.append(listed("`/`: attributes " + ", ".join(f"`{name}`" for name in sorted(file.attrs))))
        lines += [listed(f"`{group}`: {text}") for group, text in GROUPS.items() if group in file]
        lines += [listed(f"`{name}` {type_of(file[name])}: {MANIFEST[name]}") for name in MANIFEST]
        if len(found) > len(plain):
            lines.append(listed(f"`/tensors/STATE/PARAMETER`: {TENSORS}"))
        lines.append(listed("States of this checkpoint: " + ", ".join(f"`{name.decode()}`" for name in file["/states/name"][:])))
    return "\n".join(lines) + "\n"


def printed(trireme, *words):
    return subprocess.run([trireme, *words], capture_output=True, text=True, check=True).stdout


def deck_keys(trireme):
    return printed(trireme, "help", "deck")


def verbs(trireme):
    usage = printed(trireme, "--help")
    names = re.findall(r"^ +trireme ((?:tokenizer |bench )?[a-z][a-z-]*)\b", usage, re.MULTILINE)
    return usage + "".join(f"\n{'-' * 100}\n{printed(trireme, *name.split(), '--help')}" for name in names)


PAGES = {"deck-keys.txt": deck_keys, "verbs.txt": verbs, "run-file.md": run_file, "checkpoint.md": checkpoint}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PAGES:
        sys.exit(__doc__)
    sys.stdout.write(PAGES[sys.argv[1]](sys.argv[2]))
