#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks .github/workflows/ci.yml against the project's scripts: every script that it names must exist, and every script that the head of
tests/run.sh names must have a job.
  usage: check_ci.py SOURCE_DIR"""
import os
import re
import sys


def main():
    source = sys.argv[1]
    with open(os.path.join(source, ".github/workflows/ci.yml"), encoding="utf-8") as file:
        workflow = file.read()
    with open(os.path.join(source, "tests/run.sh"), encoding="utf-8") as file:
        head = "".join(line for line in file if line.startswith("#"))
    wrong = []
    started = set(re.findall(r"bash ((?:jobs|tests|modules)/[\w/.-]+\.sh)", workflow))
    if not started:
        wrong.append("ci.yml starts no script")
    wrong += [f"ci.yml starts {script}, which does not exist" for script in sorted(started) if not os.path.exists(os.path.join(source, script))]
    offered = {"tests/run.sh", "jobs/quickstart.sh", *re.findall(r"tests/[\w/.-]+\.sh", head)}
    wrong += [f"tests/run.sh names {script}, and no job of ci.yml runs it" for script in sorted(offered - started)]
    presets = set(re.findall(r"(?:PRESET=|--preset )([\w-]+)", workflow))
    with open(os.path.join(source, "CMakePresets.json"), encoding="utf-8") as file:
        known = file.read()
    wrong += [f"ci.yml uses the preset {preset}, which CMakePresets.json does not have" for preset in sorted(presets)
              if f'"name": "{preset}"' not in known]
    print("\n".join(wrong) if wrong else f"{len(started)} scripts and {len(presets)} presets are as ci.yml names them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
