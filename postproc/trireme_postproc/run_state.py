# SPDX-License-Identifier: Apache-2.0
"""Determines the state of a run from its record, the process that the file `lock` names, and the end of log.txt."""

import os
import re
import time

from .watch import RUNNING, UNKNOWN, done_and_wanted, holder, printable, state_of

FINISHED, STOPPED, INTERRUPTED, FAILED = "finished", "stopped", "interrupted", "failed"
TAIL = 65536  # bytes of log.txt
QUIET_S = 900.0  # a run on another host that writes nothing for this long counts as interrupted
LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (info|warning|error) (.*)$")


class RunState:
    """`word`: a state above, or RUNNING or UNKNOWN. `text`: a sentence for people."""

    def __init__(self, word, text):
        self.word, self.text = word, printable(text)


def _end_of_log(directory):
    """Returns (FAILED, first line of the last error), (STOPPED, ""), or None if the log ends with anything else."""
    try:
        with open(os.path.join(directory, "log.txt"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    error = None
    for line in reversed(lines):
        match = LINE.match(line)
        if match is None:
            continue
        level, text = match.groups()
        if level == "error":
            error = text  # keeps the first of the lines of one error
        elif error is not None:
            break
        elif level == "info" and text.startswith("stopped after step "):
            return STOPPED, ""
        elif level == "info":
            return None
    return (FAILED, error) if error is not None else None


def run_state(run, now=None):
    """Returns the state of a run. `now`: seconds since 1970; only tests set it."""
    done, wanted = done_and_wanted(run)
    place = f"after step {done}" + (f" of {wanted}" if wanted is not None else "")
    process = state_of(run.path)
    if process == RUNNING:
        return RunState(RUNNING, f"running, {place}")
    directory = os.path.dirname(run.path)
    end = _end_of_log(directory)
    if run.finished() and (end is None or end[0] != STOPPED):  # if stopped at the last step, an evaluation is still missing
        return RunState(FINISHED, "finished")
    if end is not None and end[0] == FAILED:
        return RunState(FAILED, f"failed {place}: {end[1]}")
    if end is not None:
        return RunState(STOPPED, f"stopped {place}; the same command resumes it")
    if process == UNKNOWN:
        found = holder(run.path)
        if found is None:
            return RunState(UNKNOWN, f"not finished, {place}; whether it is running is not known without the file lock")
        quiet = (time.time() if now is None else now) - os.stat(run.path).st_mtime
        if quiet <= QUIET_S:
            return RunState(UNKNOWN, f"not finished, {place}; process {found[0]} on {found[1]} may be running it")
    way_on = "resumes it from the newest checkpoint" if len(run.checkpoints.get("step", ())) else "starts it again: it has no checkpoint"
    return RunState(INTERRUPTED, f"interrupted {place}; the same command {way_on}")
