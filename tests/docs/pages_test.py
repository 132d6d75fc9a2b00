#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Markdown pages: links, anchors and mentioned files must exist, the words must be plain, and the tables of measurements must
match docs/results.
  usage: pages_test.py SOURCE_DIR"""
import os
import re
import subprocess
import sys

from pages import MARKED, READING_ORDER, markdown_files, read

sys.path.insert(0, os.path.join(sys.argv[1], "dev"))
import plain_words  # noqa: E402  (from the folder above)

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(r"(?<![\w/.-])((?:src|jobs|dev|tests|modules|postproc|input)/[\w/.-]+\.(?:sh|py|yaml|sbatch|def|hpp|cpp|cuh?))\b")
PLACEHOLDER = re.compile(r"/(?:\w+/)*x(?:_test)?\.\w+$|/ROOM/")  # placeholders in instructions
MOST_WORDS = 22_000  # in all pages together
NEWCOMER = ("README.md", "docs/tour.md", "docs/glossary.md", "docs/adding-things.md")
MOST_WORDS_OF_NEWCOMER = 9_000
MOST_COLUMNS = 100
OF_SOURCE = re.compile(r'(?<![\w/.-])(docs/[\w/-]+\.md)(?:, "([^"]+)")?')  # a page and, optionally, one of its headings
MARKER = re.compile(r"^<!-- (run|check)\b.*$", re.MULTILINE)


def anchors(text):
    """Anchors that GitHub generates for headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def wrong_links(source, page, text):
    for target in LINK.findall(re.sub(r"`[^`]*`", "", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(source, place)):
            yield f"{page}: the link {target} leads to no file"
        elif anchor and place.endswith(".md") and anchor not in anchors(read(source, place)):
            yield f"{page}: the link {target} leads to no heading of {place}"


def too_long(page, text):
    """Lines beyond MOST_COLUMNS, except commands, rows of tables and words that cannot be broken."""
    prose = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    for number, line in enumerate(prose.split("\n"), 1):
        if len(line) > MOST_COLUMNS and not line.startswith(("    ", "|")) and " " in line.lstrip("- ").strip("`"):
            yield f"{page}:{number}: more than {MOST_COLUMNS} characters"


def too_many_words(texts):
    words = {page: len(text.split()) for page, text in texts.items()}
    for pages, most in ((words, MOST_WORDS), (NEWCOMER, MOST_WORDS_OF_NEWCOMER)):
        count = sum(words.get(page, 0) for page in pages)
        if count > most:
            yield f"{count} words in {'all pages' if pages is words else ', '.join(pages)}, more than {most}"


def wrong_references(source, texts):
    """References in src to pages or headings that do not exist."""
    for folder, _, names in os.walk(os.path.join(source, "src")):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), source)
            text = re.sub(r"\n *//[/<]* ?", " ", read(source, path))
            for page, heading in OF_SOURCE.findall(text):
                if page not in texts or heading and not re.search(rf"^#+ {re.escape(heading)}$", texts[page], re.MULTILINE):
                    yield f"{path}: there is no {page}" + (f' with the heading "{heading}"' if heading else "")


def main():
    source = sys.argv[1]
    pages = markdown_files(source)
    wrong = [f"{page} is missing" for page in READING_ORDER if page not in pages]
    texts = {page: read(source, page) for page in pages}
    wrong += too_many_words(texts)
    for page, text in texts.items():
        wrong += too_long(page, text)
        wrong += wrong_links(source, page, text)
        wrong += [f"{page} names {name}, which does not exist" for name in sorted(set(FILE.findall(text)))
                  if not os.path.exists(os.path.join(source, name)) and not PLACEHOLDER.search(name)]
        wrong += [f"{page}: '{line}': write {plain_words.HABITS[habit]}"
                  for _, habit, line in plain_words.found_in((page, line) for line in text.split("\n"))]
        if len(MARKER.findall(text)) != len(MARKED.findall(text)):
            wrong.append(f"{page}: a line <!-- run --> or <!-- check --> is not directly above a fenced block with a language")
        if MARKER.search(text) and page not in READING_ORDER:
            wrong.append(f"{page} has marked blocks, and tests/docs/pages.py does not list it")
    wrong += wrong_references(source, texts)
    if len(pages) < len(READING_ORDER):
        wrong.append(f"only {len(pages)} pages were found in {source}")
    print("\n".join(wrong) if wrong else f"{len(pages)} pages: links, files and markers are right")
    tables = subprocess.run([sys.executable, os.path.join(source, "dev", "result_tables.py"), "--check"], check=False)
    return 1 if wrong or tables.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
