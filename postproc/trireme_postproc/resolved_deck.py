# SPDX-License-Identifier: Apache-2.0
"""Reads RUN_DIR/deck.resolved.yaml, which states after every key whether its value is from the deck, the command line or the default."""

import os
import re

FILE = "deck.resolved.yaml"
KEY = re.compile(r"^( *)([A-Za-z0-9_]+):(?: |$)")


def keys_given(run):
    """Returns the dotted keys that were given a value; None if the file is not next to the run's record."""
    try:
        with open(os.path.join(os.path.dirname(run.path), FILE), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    given, parents = set(), []
    for line in lines:
        match = KEY.match(line)
        if match is None:
            continue
        depth = len(match.group(1)) // 2
        parents = parents[:depth] + [match.group(2)]
        if "  # " in line and not line.endswith("# default"):
            given.add(".".join(parents))
    return given


def is_given(key, given):
    """Whether a key was given, or an element of it if it is a list."""
    return any(one == key or one.startswith(key + ".") for one in given)
