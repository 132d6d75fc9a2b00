#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds habits of this project's early texts that readers stumble over, and says what to write instead.

  python3 dev/plain_words.py                      counts them in src, docs, jobs, dev, postproc, input, modules and the pages
  python3 dev/plain_words.py --changed [COMMIT]   shows them in the lines that differ from a commit; default: HEAD

Exit code 1 if one of them is frequent (MOST or more), or in a changed line.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
FOLDERS = ("src", "docs", "jobs", "dev", "postproc", "input", "modules", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
MOST = 10  # occurrences per habit that are accepted in the whole tree, because a phrase can be used in its normal sense
HABITS = {
    r"besides?": "next to, in addition to, compared with, or during",
    r"lies?": "is, or is stored",
    r"(?<!there )(?<!There )(?:is|are) no (?!longer|more|faster)": "is not a",
    r"so (?:many|much)": "this number of, or N",
    r"by (?:itself|themselves)": "alone, separately, or on its own",
    r"anew": "again, or recreated",
    r"the begin": "the beginning",
    r"the mend": "the fix",
    r"(?:leave|left) away": "remove, or omit",
    r"go(?:es)? on": "continue, or resume",
    r"(?:are|were) others": "differ",
    r"tak(?:es?|ing) turns|in turns": "alternate, or one after another",
    r"patience": "timeout, or backoff",
    r"passengers?": "message",
    r"made[- ]up": "generated",
}
PATTERNS = {habit: re.compile(rf"\b(?:{habit})\b" if habit[-1] != ")" else rf"\b(?:{habit})") for habit in HABITS}
THIS = ("dev/plain_words.py",)


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True, errors="replace").stdout


def tree():
    """Yields (file, text) for all text files that git lists, or that are on disk if this is not a git repository."""
    try:
        names = git("ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS).splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(folder, name), ROOT) for top in FOLDERS for folder, _, files in os.walk(os.path.join(ROOT, top))
                 for name in files] + [name for name in FOLDERS if os.path.isfile(os.path.join(ROOT, name))]
    for name in names:
        path = os.path.join(ROOT, name)
        if name not in THIS and os.path.isfile(path) and not name.endswith((".csv", ".bin", ".gz", ".png")):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield name, file.read()


def found_in(lines):
    """Yields (place, habit, line) for each habit found in `lines`, which are pairs (place, text)."""
    for place, text in lines:
        for habit, pattern in PATTERNS.items():
            if pattern.search(text):
                yield place, habit, text.strip()


def changed(commit):
    name = ""
    for line in git("diff", "-U0", commit, "--", *FOLDERS).splitlines():
        if line.startswith("+++ b/"):
            name = line[6:]
        elif line.startswith("+") and name not in THIS and not name.endswith(".csv"):
            yield name, line[1:]


def main():
    if sys.argv[1:2] == ["--changed"]:
        found = list(found_in(changed((sys.argv[2:] or ["HEAD"])[0])))
        for place, habit, text in found:
            print(f"{place}: write {HABITS[habit]}: {text}")
        return 1 if found else 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(found_in((f"{name}:{number}", line) for name, text in tree() for number, line in enumerate(text.split("\n"), 1)))
    status = 0
    for habit, better in HABITS.items():
        of_habit = [(place, text) for place, one, text in found if one == habit]
        if len(of_habit) >= MOST:
            status = 1
            print(f"'{habit}' {len(of_habit)} times: write {better}")
            print("\n".join(f"  {place}: {text[:140]}" for place, text in of_habit))
    print("" if status else f"each of {len(HABITS)} habits occurs less than {MOST} times")
    return status


if __name__ == "__main__":
    sys.exit(main())
