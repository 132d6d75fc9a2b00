# SPDX-License-Identifier: Apache-2.0
"""Shows runs in progress: the current step, loss and speed, and the remaining time. Nothing is locked or written, so that runs are not
disturbed."""

import os
import re
import socket
import sys
import time

import numpy as np

from .evaluation import ACCURACIES, LOSSES, curves
from .measures import per_step
from .run_file import RunFileError, locate, names_of, read_while_written
from .run_log import Log
from .summary import with_error
from .texts import MISSING, number, size, with_unit

RECENT = 20  # number of newest rows whose median is the current speed
BAR = 30
RUNNING, ENDED, UNKNOWN = "running", "ended", "unknown"
CLOCKS_S = 60.0  # tolerance for a file server whose clock is late
HOLDER = re.compile(r"process (\d+) on (\S+)")


def holder(path):
    """Returns (process, host) of the last user of the directory of the run file at `path`, running or not; None if not known."""
    try:
        with open(os.path.join(os.path.dirname(path), "lock"), encoding="utf-8", errors="replace") as file:
            found = HOLDER.match(file.read(300))
    except OSError:
        return None
    return (int(found.group(1)), found.group(2)) if found else None


def _lives(process, signed):
    """Whether the process that wrote the lock at time `signed` is alive. Its PID may have been reused. A zombie counts as ended."""
    try:
        os.kill(process, 0)  # signal 0 only checks whether the process exists
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            facts = file.read().rpartition(b")")[2].split()
    except OSError:  # hidden from other users, or not Linux
        return True
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(facts[19]) / os.sysconf("SC_CLK_TCK")
    return facts[0] not in (b"Z", b"X") and time.time() - age_s < signed + CLOCKS_S


def state_of(path):
    """Returns RUNNING or ENDED for the process that holds the lock of the run at `path`; UNKNOWN if it is on another host."""
    found = holder(path)
    if found is None or found[1] not in (socket.gethostname(), socket.gethostname().partition(".")[0]):
        return UNKNOWN
    try:
        # Do not try to take the lock: a run that starts at that moment would find it taken.
        return RUNNING if _lives(found[0], os.stat(os.path.join(os.path.dirname(path), "lock")).st_mtime) else ENDED
    except OSError:
        return UNKNOWN


def duration_text(seconds):
    seconds = max(0.0, float(seconds))
    if seconds < 60:
        return f"{number(seconds, 3)} s"
    minutes, rest = divmod(int(round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def printable(text):
    """Replaces characters that a terminal would interpret."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def done_and_wanted(run):
    """Returns the number of steps done (0 without rows) and the number of steps in the deck (None if not known)."""
    steps = per_step(run, "step")
    try:
        wanted = int(run.deck["run.steps"])
    except (KeyError, ValueError):
        wanted = None
    return int(steps.values[-1]) if steps is not None else 0, wanted


def _recent(run, name):
    column = per_step(run, name)
    return (float(np.median(column.values[-RECENT:])), column.unit) if column is not None else None


def remaining_s(run):
    """Estimates the seconds left from the median of the newest steps, without evaluations and checkpoints; None if not known."""
    done, wanted = done_and_wanted(run)
    recent = _recent(run, "seconds")
    return (wanted - done) * recent[0] if recent and wanted is not None and recent[1] == "s" else None


def _evaluated(run):
    """Yields pairs (name, text) of the newest values of validation and of each set."""
    for name, table in [("validation", run.validation), *run.evaluation.items()]:
        found = curves({name: table}, LOSSES + ACCURACIES)
        if found:
            texts = [f"{curve.kind} {with_error(curve, -1)}".strip() for curve in found]
            yield (name if name == "validation" else f"set {name}"), f"{', '.join(texts)} (step {int(max(curve.steps[-1] for curve in found))})"


def status(run, word):
    """Returns lines that each have a name and a text."""
    done, wanted = done_and_wanted(run)
    rows = [("run", f"{run.name} ({run.path}), {word}")]
    text = number(done) if wanted is None else f"{number(done)} of {number(wanted)}"
    if wanted:
        filled = min(BAR, BAR * done // wanted)
        text += f"  [{'#' * filled}{'.' * (BAR - filled)}]  {100 * done // wanted} %"
    rows.append(("step", text))
    for name, label in (("loss", "loss"), ("tokens_per_s", "speed")):
        column, recent = per_step(run, name), _recent(run, name)
        if recent:
            last = with_unit(column.values[-1], column.unit)
            rows.append((label, f"{last}, median of the last {min(RECENT, len(column))}: {with_unit(*recent)}"))
    left = remaining_s(run) if word in (RUNNING, UNKNOWN) or word.startswith((RUNNING, "not finished")) else None
    rows.append(("remaining", MISSING if left is None else f"{duration_text(left)}, without evaluations and checkpoints"))
    rows += list(_evaluated(run)) or [("validation", MISSING)]
    table = run.checkpoints
    if "step" in table and len(table["step"]):
        stored = f", {size(int(table['bytes'].values[-1]), table['bytes'].unit)}" if "bytes" in table else ""
        rows.append(("checkpoint", f"step {number(int(table['step'].values[-1]))}{stored}"))
    else:
        rows.append(("checkpoint", "none yet"))
    width = max(len(name) for name, _ in rows)
    return [printable(f"{name.ljust(width)}  {text}") for name, text in rows]


def one_line(run, word=RUNNING):
    """Returns one line about the newest step. `word`: RUNNING, UNKNOWN, or why the run has ended."""
    done, wanted = done_and_wanted(run)
    parts = [f"step {number(done)}" + (f" of {number(wanted)}" if wanted is not None else "")]
    for name, before in (("loss", "loss "), ("tokens_per_s", "")):
        column = per_step(run, name)
        if column is not None:
            parts.append(before + with_unit(column.values[-1], column.unit))
    left = remaining_s(run)
    if word not in (RUNNING, UNKNOWN):
        parts.insert(0, word.partition(";")[0])
    elif left:
        parts.append(f"{duration_text(left)} left")
    return printable(", ".join(parts))


class _Screen:
    """On a terminal, replaces the lines that it wrote before. Otherwise prints one line for each new step."""

    def __init__(self, out):
        self.out, self.is_terminal = out, out.isatty()
        self.shown, self.last = 0, {}

    def show(self, watched):
        alone = len(watched) == 1
        names = names_of([one.run for one in watched])
        lines = {one.path: one_line(one.run) if alone else f"{printable(name)}: {one_line(one.run, one.word)}"
                 for name, one in zip(names, watched)}
        if not self.is_terminal:
            for path, line in lines.items():
                if line != self.last.get(path):
                    print(line, file=self.out, flush=True)
            self.last = lines
            return
        shown = status(watched[0].run, watched[0].word) if alone else list(lines.values())
        width, rows = os.get_terminal_size(self.out.fileno())
        width, most = width or 80, max(rows - 1, 1) if rows else len(shown)
        if len(shown) > most:
            shown[most - 1:] = [f"… and {len(shown) - most + 1} more"]
        begin = f"\x1b[{self.shown}F\x1b[J" if self.shown else ""
        self.out.write(begin + "".join(line[: max(width - 1, 1)] + "\n" for line in shown))
        self.out.flush()
        self.shown = len(shown)


def ended(run, previous, word, quiet_s, timeout_s):
    """Returns why the run is over; "" while it may continue. `previous` and `word`: results of state_of() at the last poll and now.
    `quiet_s`: seconds since the record last changed."""
    if word == ENDED and (previous == ENDED or run.finished()):
        early = "it ended before its last step; run the same command again to continue it"
        return {True: "finished", False: early, None: "its process has ended"}[run.finished()]
    if run.finished() and word == UNKNOWN and quiet_s > min(10.0, timeout_s):
        return "finished"
    if quiet_s > timeout_s and word != RUNNING:
        return f"nothing new for {duration_text(quiet_s)}: it has ended, or hangs; see its log"
    return ""


def signature_of(*paths):
    """Returns a value that changes when one of the files changes."""
    return [(facts.st_size, facts.st_mtime_ns) for facts in (os.stat(path) for path in paths if os.path.exists(path))]


class _Watched:
    """The state of one run between two polls."""

    def __init__(self, path, clock):
        self.path, self.log, self.clock = path, Log(os.path.dirname(locate(path))), clock
        self.run = read_while_written(path, samples=False, log=self.log)
        self.previous, self.word, self.changed, self.signature, self.reason = None, "", clock(), None, ""

    def look(self, timeout_s, alone):
        if self.reason:
            return
        state_now = state_of(self.run.path)  # before the record is read, which then includes all that an ended process wrote
        try:
            self.run = read_while_written(self.path, samples=False, log=self.log)
        except RunFileError:
            if alone:
                raise
            self.reason = self.word = "its record is gone"
            return
        now = signature_of(self.run.path, self.log.path)
        if self.signature != now:
            self.signature, self.changed = now, self.clock()
        self.reason = ended(self.run, self.previous, state_now, self.clock() - self.changed, timeout_s)
        self.previous, self.word = state_now, self.reason or state_now


def watch(paths, once=False, every_s=2.0, timeout_s=900.0, out=None, clock=time.monotonic, pause=time.sleep):
    """Shows runs until all have ended: one run in several lines, several runs in one line each. Tests replace `clock` and `pause`."""
    out = out or sys.stdout
    watched = [_Watched(path, clock) for path in paths]
    if once:
        from .run_state import run_state

        print("\n\n".join("\n".join(status(one.run, run_state(one.run).text)) for one in watched), file=out)
        return
    screen = _Screen(out)
    while True:
        for one in watched:
            one.look(timeout_s, len(watched) == 1)
        screen.show(watched)
        if all(one.reason for one in watched):
            print(f"the run is over: {watched[0].reason}" if len(watched) == 1 else "all runs are over", file=out, flush=True)
            return
        pause(every_s)
