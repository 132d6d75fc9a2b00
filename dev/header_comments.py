#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures which share of the lines in the headers of src/ is comments. The aim is about a third (CONTRIBUTING.md).

    python3 dev/header_comments.py            # a line per room, and the total
    python3 dev/header_comments.py ROOM …     # a line per header of these rooms, and their total

Blank lines, licence lines, includes, #pragma once and namespace lines are not counted. A comment line counts as one line of comment, and a
comment after code as half a line.
"""
import pathlib
import re
import sys

SRC = pathlib.Path(__file__).resolve().parent.parent / "src"
LEFT_OUT = re.compile(r"// SPDX|#include|#pragma once|namespace |}  // namespace")


def count(header):
    lines = comment = 0.0
    for line in map(str.strip, header.read_text(encoding="utf-8").splitlines()):
        if not line or LEFT_OUT.match(line):
            continue
        lines += 1
        comment += 1 if line.startswith("//") else 0.5 if re.search(r"\s//", line) else 0
    return comment, lines


def main(rooms):
    shares = {}
    for header in sorted(SRC.rglob("*.hpp")):
        name = header.relative_to(SRC / header.relative_to(SRC).parts[0])  # ROOM/…, without the folder above it
        if rooms and name.parts[0] not in rooms:
            continue
        comment, lines = count(header)
        for row in (str(name) if rooms else name.parts[0], "all"):
            before = shares.get(row, (0, 0))
            shares[row] = (before[0] + comment, before[1] + lines)
    for row, (comment, lines) in shares.items():
        if row != "all":
            print(f"{row:44}{lines:7.0f} lines{100 * comment / max(lines, 1):7.1f} %")
    comment, lines = shares.get("all", (0, 0))
    print(f"{'all':44}{lines:7.0f} lines{100 * comment / max(lines, 1):7.1f} %")


if __name__ == "__main__":
    main(set(sys.argv[1:]))
