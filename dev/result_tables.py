#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of measurements into the pages of docs/ from the data files in docs/results.

  python3 dev/result_tables.py            rewrites the tables of all pages
  python3 dev/result_tables.py --check    exit code 1, and the difference, where a page is not what its data say

A table stands between `<!-- table: FILE.csv -->` and `<!-- end of table -->`. A data file begins with lines `# NAME: VALUE` for machine,
command, commit and date; the first row of its CSV has the column names. Machine, commit, date and command are written below the table.
"""
import csv
import difflib
import os
import re
import sys
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
PAGES = ("figures.md", "ablation.md", "portability.md")
FACTS = ("machine", "command", "commit", "date")
TABLE = re.compile(r"(<!-- table: (\S+\.csv) -->\n).*?(<!-- end of table -->)", re.DOTALL)
OWN_COLUMN = "as in the table"


def read_data(path):
    """The facts of the head, and the rows."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = file.read().splitlines()
    facts = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rows = list(csv.reader(line for line in lines if line and not line.startswith("# ")))
    name = os.path.basename(path)
    missing = [fact for fact in FACTS if not facts.get(fact)]
    if missing:
        raise ValueError(f"{name}: no line '# {missing[0]}: …' at its beginning")
    if len(rows) < 2:
        raise ValueError(f"{name}: no rows")
    for row in rows[1:]:
        if len(row) != len(rows[0]):
            raise ValueError(f"{name}: {len(row)} cells instead of {len(rows[0])} in the row that begins with '{row[0]}'")
    for fact in FACTS:
        if facts[fact] == OWN_COLUMN and fact not in rows[0]:
            raise ValueError(f"{name}: '# {fact}: {OWN_COLUMN}', but there is no such column")
    return facts, rows


def code(text):
    return f"`{text}`"


def markdown(path):
    facts, rows = read_data(path)
    of_code = {index for index, name in enumerate(rows[0]) if name == "command"}
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    for row in rows[1:]:
        cells = [code(cell) if index in of_code and cell else cell for index, cell in enumerate(row)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    name = os.path.basename(path)
    shown = {fact: facts[fact] for fact in ("machine", "commit", "date") if facts[fact] != OWN_COLUMN}
    sentences = [f"{fact.capitalize()}: {value}." for fact, value in shown.items()] + [f"Data: [{name}](results/{name})."]
    lines += ["", *textwrap.wrap(" ".join(sentences), 100, break_long_words=False, break_on_hyphens=False)]
    if facts["command"] != OWN_COLUMN:
        lines += ["", f"    {facts['command']}"]
    return "\n".join(lines) + "\n"


def rewritten(text):
    return TABLE.sub(lambda found: found[1] + markdown(os.path.join(ROOT, "docs", "results", found[2])) + found[3], text)


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    used, status = set(), 0
    for page in PAGES:
        path = os.path.join(ROOT, "docs", page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        used |= {found[2] for found in TABLE.finditer(text)}
        wanted = rewritten(text)
        if wanted == text:
            continue
        if check:
            status = 1
            print(f"docs/{page} is not what docs/results says; run python3 dev/result_tables.py", file=sys.stderr)
            sys.stderr.writelines(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True), "page", "data", n=1))
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(wanted)
            print(f"docs/{page} rewritten")
    if not used:
        print("no page of docs/ has a table", file=sys.stderr)
        return 1
    print(f"{len(used)} tables of {len(PAGES)} pages are those of docs/results" if status == 0 else "")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
