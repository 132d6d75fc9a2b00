# SPDX-License-Identifier: Apache-2.0
"""Weak and strong scaling: compares the speed of runs on different numbers of ranks with the run on the fewest ranks.

Strong scaling: the same batch on more ranks. Weak scaling: the batch grows with the number of ranks. In both cases, the efficiency is the
speed per rank over the speed per rank of the run on the fewest ranks.
"""

import numpy as np

from .measures import Spread, before_starts, energy_per_token, exposed_share, per_step, ranks_of_steps
from .run_file import RunFileError, names_of
from .texts import MISSING, columns_text, number, with_unit

STRONG, WEAK = "strong", "weak"
WARM_UP = 3  # first steps of each start that are omitted, where other steps remain
# Keys that decide what a step computes. Runs that differ in one of them do not scale the same problem.
SAME = ("model.preset", "model.layers", "model.heads", "model.channels", "model.context", "model.vocabulary")


def warm_seconds(run):
    """Returns the seconds of the steps after warm-up."""
    seconds = run.steps["seconds"].values[_warm(run)]
    if not len(seconds):
        raise RunFileError(f"{run.path}: has no steps after the first {WARM_UP}: run more")
    return seconds


class Point:
    """The results of the steps of one run with one batch on one number of ranks. `batch`: sequences per step; None: not known."""

    def __init__(self, name, run, ranks, batch, chosen):
        self.name, self.run, self.ranks, self.batch = name, run, int(ranks), int(batch) or None
        self.hosts = _hosts(run, _start_with(run, ranks))
        speed, exposed = per_step(run, "tokens_per_s"), exposed_share(run)
        self.speed = Spread(speed.values[chosen], speed.unit)
        self.exposed = Spread(exposed.values[chosen], exposed.unit) if exposed is not None else None
        energy = energy_per_token(run)
        self.energy = Spread(energy.values[chosen], energy.unit) if energy is not None else None


class Series:
    """Points of one kind of scaling, in the order of ranks. Points with the same number of ranks are repetitions. `held`: the number that
    is the same for all points: sequences per step, or sequences per step and rank."""

    def __init__(self, kind, held, points):
        self.kind, self.held = kind, held
        self.points = sorted(points, key=lambda point: point.ranks)

    def speedup(self, point):
        first = [one.speed.median for one in self.points if one.ranks == self.points[0].ranks]
        return point.speed.median / float(np.median(first))

    def efficiency(self, point):
        return self.speedup(point) * self.points[0].ranks / point.ranks

    def title(self):
        held = number(int(self.held) if float(self.held).is_integer() else self.held)
        return f"{self.kind} scaling, {held} sequences per step" + (" and rank" if self.kind == WEAK else "")


def _start_with(run, ranks):
    """Returns the row in /sessions of the newest start with this number of ranks."""
    return int(np.flatnonzero(run.sessions["ranks"].values == ranks)[-1])


def _of_start(run, name, start):
    column = run.sessions.get(name)
    return str(column.values[start]) if column is not None and start < len(column) else ""


def _batches(run):
    """Returns for each row of /steps the sequences of its step, which batch.schedule and resumes change; 0: not known."""
    tokens = per_step(run, "tokens_per_s").values * per_step(run, "seconds").values
    deck = {**run.deck, **dict(line.partition(": ")[::2] for line in _of_start(run, "deck", 0).splitlines())}
    try:
        # The deck of a preset has no context. The deck of the first start has the batch of the first step.
        return np.nan_to_num(np.round(tokens / (int(deck.get("model.context", 0)) or tokens[0] / int(deck["batch.sequences"]))))
    except (KeyError, ValueError, ZeroDivisionError):
        return np.zeros(len(tokens))


def _hosts(run, start):
    """Returns the number of hosts of a start; None if the file does not have it."""
    return len(set(_of_start(run, "machine", start).replace(",", " ").split())) or None


def _warm(run):
    """Returns for each row of /steps whether its step comes after the warm-up of its start."""
    return run.steps["step"].values - before_starts(run) > WARM_UP


def points_of(run, name):
    """Returns a Point for each number of ranks and batch that the run had."""
    if per_step(run, "tokens_per_s") is None or per_step(run, "seconds") is None:
        raise RunFileError(f"{run.path}: has no steps: give runs that have trained")
    ranks = ranks_of_steps(run)
    if not np.all(ranks > 0):
        raise RunFileError(f"{run.path}: does not state its number of ranks (/sessions/ranks): leave it out")
    warm, batches, found = _warm(run), _batches(run), []
    for count, batch in sorted(set(zip(ranks, batches))):
        chosen = (ranks == count) & (batches == batch)
        if (chosen & warm).any():
            chosen &= warm
        found.append(Point(name, run, count, batch, chosen))
    return found


def expect_one_problem(runs):
    for run in runs[1:]:
        for key in SAME:
            if run.deck.get(key) != runs[0].deck.get(key):
                values = [one.deck.get(key, MISSING) for one in (run, runs[0])]
                raise RunFileError(f"{run.path}: {key} is {values[0]}, and {values[1]} in {runs[0].path}: scaling compares runs of one model")
        units = [per_step(one, "tokens_per_s").unit for one in (runs[0], run)]
        if units[0] != units[1]:
            raise RunFileError(f"{run.path}: its speed is in {units[1]}, that of {runs[0].path} in {units[0]}: they cannot be compared")


def series(runs):
    """Returns all Series with at least two different numbers of ranks, strong scaling first."""
    names = names_of(runs)
    points = [point for run, name in zip(runs, names) for point in points_of(run, name)]
    expect_one_problem(runs)
    found = []
    for kind, held in ((STRONG, lambda point: point.batch), (WEAK, lambda point: point.batch / point.ranks if point.batch else None)):
        for value in sorted({held(point) for point in points} - {None}):
            group = [point for point in points if held(point) == value]
            if len({point.ranks for point in group}) > 1:
                found.append(Series(kind, value, group))
    if not found:
        text = ", ".join(f"{point.name}: {point.ranks} rank{'s' if point.ranks != 1 else ''}, {point.batch or MISSING} sequences" for point in points)
        raise RunFileError(f"{runs[0].path}: no two runs have the same batch.sequences, in total or per rank, on different numbers of ranks ({text}): "
                           "give runs that do")
    return found


def scaling(found):
    """Returns the whole text about the result of series()."""
    lines = []
    for one in found:
        table = [("run", "ranks", "hosts", "sequences", "speed, median", "quartiles", "steps", "speed-up", "efficiency", "exposed")]
        with_energy = any(point.energy is not None for point in one.points)
        table[0] += ("energy",) * with_energy
        for point in one.points:
            exposed, energy = (with_unit(spread.median, spread.unit) if spread is not None and spread.count else MISSING
                               for spread in (point.exposed, point.energy))
            table.append((point.name, number(point.ranks), number(point.hosts) if point.hosts else MISSING, number(point.batch),
                          with_unit(point.speed.median, point.speed.unit), f"{number(point.speed.low)} … {number(point.speed.high)}",
                          number(point.speed.count), number(one.speedup(point), 3), f"{100 * one.efficiency(point):.1f} %", exposed) + (energy,) * with_energy)
        lines += [one.title()] + columns_text(table, "  ") + [""]
    lines.append(f"Medians over the steps of a run; the first {WARM_UP} steps of each start are left out. Exposed: share of the step, on rank 0.")
    return "\n".join(lines) + "\n"
