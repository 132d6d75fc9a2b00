#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests dev/plain_words.py: it finds every habit that it lists, does not report normal uses, and finds few habits in the tree.
  usage: words_test.py SOURCE_DIR"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(sys.argv[1], "dev"))
import plain_words  # noqa: E402  (from the folder above)

BAD = ("one beside it", "where it lies", "this is no list", "so many ranks", "it stops by itself", "made anew", "from the begin", "the mend",
       "leave it out or leave away", "it goes on", "they are others", "they run in turns", "its patience", "a passenger", "made-up text")
GOOD = ("it believes", "there is no list", "it is no longer", "by its name", "continue", "in turn", "others are", "returns", "beginning")


def main():
    wrong = [f"no habit is found in '{text}'" for text in BAD if not list(plain_words.found_in([("", text)]))]
    wrong += [f"{one[1]} is found in '{text}'" for text in GOOD for one in plain_words.found_in([("", text)])]
    found = {one[1] for text in BAD for one in plain_words.found_in([("", text)])}
    wrong += [f"no text of this test has '{habit}'" for habit in plain_words.HABITS if habit not in found]
    print("\n".join(wrong) if wrong else f"{len(BAD)} texts with a habit and {len(GOOD)} without are told apart")
    words = subprocess.run([sys.executable, os.path.join(sys.argv[1], "dev", "plain_words.py")], check=False)
    return 1 if wrong or words.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
