#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of measurements into the pages of docs/ from the data files in docs/results.

  python3 dev/result_tables.py            rewrites the tables of all pages
  python3 dev/result_tables.py --check    exit code 1, and the difference, if a page differs from its data

A table is between `<!-- table: FILE.csv -->` and `<!-- end of table -->`; `<!-- table: FILE.csv: A | B -->` shows columns A and B only.
A data file is CSV with the columns machine, commit, date and command in addition to what was measured. Columns of these four that have
one value in all rows are written below the table. Every data file has a link in docs/results/README.md.
"""
import csv
import difflib
import os
import re
import sys
import textwrap

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "docs")
PAGES = ("results/README.md",)
FACTS = ("machine", "commit", "date", "command")
TABLE = re.compile(r"(<!-- table: ([\w.-]+\.csv)(?:: ([^\n]*?))? -->\n).*?(<!-- end of table -->)", re.DOTALL)


def read_data(name):
    """Returns the names of the columns, and a dictionary for each row."""
    with open(os.path.join(DOCS, "results", name), encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    columns = rows[0] if rows else []
    if len(rows) < 2 or len(set(columns)) < len(columns):
        raise ValueError(f"{name}: no rows, or two columns of one name")
    for row in rows[1:]:
        if len(row) != len(columns):
            raise ValueError(f"{name}: {len(row)} cells instead of {len(columns)} in the row that begins with '{row[0]}'")
    data = [dict(zip(columns, row)) for row in rows[1:]]
    for fact in FACTS:
        if not all(row.get(fact) for row in data):
            raise ValueError(f"{name}: the column {fact} is missing, or has an empty cell")
    return columns, data


def markdown(name, wanted, page):
    columns, data = read_data(name)
    common = [fact for fact in FACTS if len({row[fact] for row in data}) == 1]
    shown = [column.strip() for column in wanted.split("|")] if wanted else [column for column in columns if column not in common]
    unknown = [column for column in shown if column not in columns]
    if unknown:
        raise ValueError(f"docs/{page}: {name} has no column '{unknown[0]}'")
    lines = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    for row in data:
        cells = [f"`{row[column]}`" if column == "command" else row[column] for column in shown]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    link = os.path.relpath(f"results/{name}", os.path.dirname(page))
    facts = [f"{fact.capitalize()}: {data[0][fact]}." for fact in common if fact != "command" and fact not in shown]
    lines += ["", *textwrap.wrap(" ".join(facts + [f"Data: [{name}]({link})."]), 100, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def check_links():
    """Raises ValueError if a data file is malformed or no page has a link to it."""
    text = ""
    for page in (*PAGES, "portability.md"):
        with open(os.path.join(DOCS, page), encoding="utf-8") as file:
            text += file.read()
    for name in sorted(os.listdir(os.path.join(DOCS, "results"))):
        if name.endswith(".csv"):
            read_data(name)
            if f"({name})" not in text and f"(results/{name})" not in text:
                raise ValueError(f"no page has a link to docs/results/{name}")


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__, file=sys.stderr)
        return 2
    used, status = set(), 0
    for page in PAGES:
        path = os.path.join(DOCS, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        used |= {found[2] for found in TABLE.finditer(text)}
        wanted = TABLE.sub(lambda found: found[1] + markdown(found[2], found[3], page) + found[4], text)
        if wanted == text:
            continue
        if check:
            status = 1
            print(f"docs/{page} differs from docs/results; run python3 dev/result_tables.py", file=sys.stderr)
            sys.stderr.writelines(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True), "page", "data", n=1))
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(wanted)
            print(f"docs/{page} rewritten")
    check_links()
    if not used:
        raise ValueError("no page of docs/ has a table")
    print(f"{len(used)} tables of {len(PAGES)} pages are those of docs/results" if status == 0 else "")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
