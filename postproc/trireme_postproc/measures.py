# SPDX-License-Identifier: Apache-2.0
"""Quantities that several verbs need of a run: columns per step with their units, and the spread of values."""

import numpy as np

from .run_file import Column

WINDOW = 0.05  # share of the common steps or tokens: the loss "at" a place is the median of this range before it


class Spread:
    """Median and quartiles of the finite values."""

    def __init__(self, values, unit=""):
        values = np.asarray(values, dtype=float)
        values = values[np.isfinite(values)]
        self.unit, self.count = unit, len(values)
        self.low, self.median, self.high = np.percentile(values, (25, 50, 75)) if len(values) else (float("nan"),) * 3

    def ratio(self, first):
        """Returns the ratio of the medians; NaN if units differ, a median is missing, or the divisor is 0."""
        if self.unit != first.unit or not self.count or not first.count or first.median == 0:
            return float("nan")
        return float(self.median / first.median)


def starts_of_steps(run, steps):
    """Returns for each step the index of the start that made it: the last one in /sessions whose first_step is not after the step. A start
    that found its newest checkpoints damaged may have a smaller first_step than an earlier start."""
    starts = np.zeros(len(steps), dtype=int)
    for start, first in enumerate(run.sessions["first_step"].values):
        starts[np.asarray(steps) >= first] = start
    return starts


def before_starts(run):
    """Returns for each row of /steps the last step before the start that made it."""
    steps = run.steps["step"].values
    if "first_step" not in run.sessions or not len(run.sessions["first_step"]):
        return np.zeros(len(steps), dtype=int)
    return run.sessions["first_step"].values[starts_of_steps(run, steps)] - 1


def before_rows(run):
    """Returns for each row of /steps the last step that was recorded before it or made by an earlier start. With record.every_steps, the
    row stands for all steps after that one."""
    return np.maximum(before_starts(run), np.concatenate([[0], run.steps["step"].values])[:-1])


def steps_of_rows(run):
    """Returns for each row of /steps the number of steps that it stands for, including those until the next start that have no row."""
    if "step" not in run.steps:
        return 1
    return np.diff(np.append(before_rows(run), run.steps["step"].values[-1:]))


def ranks_of_steps(run):
    """Returns the number of ranks for each row of /steps, according to /sessions; 0 if the file does not have it."""
    steps = run.steps["step"].values if "step" in run.steps else np.zeros(0)
    if "ranks" not in run.sessions or not len(run.sessions["ranks"]):
        return np.zeros(len(steps), dtype=int)
    ranks = run.sessions["ranks"].values
    if "first_step" not in run.sessions:
        return np.full(len(steps), int(ranks[-1]))
    return ranks[starts_of_steps(run, steps)].astype(int)


def per_step(run, name):
    """Returns a column of /steps as floats; None if the file does not have it, or it has no rows."""
    column = run.steps.get(name)
    return Column(column.values.astype(float), column.unit) if column is not None and len(column) else None


def exposed_share(run):
    """Returns the exposed time on rank 0 in percent of each step; None if the file does not have it."""
    exposed, seconds = per_step(run, "exposed_s"), per_step(run, "seconds")
    if exposed is None or seconds is None or exposed.unit != seconds.unit:
        return None
    share = np.divide(100 * exposed.values, seconds.values, out=np.full(len(exposed), np.nan), where=seconds.values > 0)
    return Column(share, "%")


def share_of_ceiling(run):
    """Returns the FLOP/s per rank of each step in percent of the FLOP/s of matrix products alone; None if not measured."""
    speed, ranks, ceiling = per_step(run, "flops_per_s"), ranks_of_steps(run), run.fact("ceiling_flops_per_s")
    if speed is None or not ceiling > 0 or not np.all(ranks > 0):
        return None
    return Column(100 * speed.values / ranks / ceiling, "%")


def energy_per_token(run):
    """Returns the energy per token of the CPUs, memory and GPUs of all ranks, as far as it is known; None if nothing is. A counter may
    advance only ten times per second. Only steps in which it advances have a value: a mean since the last advance at least 1 s earlier."""
    parts = [column for column in (per_step(run, "cpu_joules"), per_step(run, "gpu_joules"))
             if column is not None and np.isfinite(column.values).any()]
    speed, seconds = per_step(run, "tokens_per_s"), per_step(run, "seconds")
    if not parts or speed is None or seconds is None:
        return None
    known = np.any([np.isfinite(part.values) for part in parts], axis=0)
    joules = sum(np.nan_to_num(part.values) for part in parts)
    rows = (seconds.values, joules, speed.values * seconds.values)
    time, energy, tokens = (np.concatenate([[0.0], np.cumsum(np.where(known, values, 0))]) for values in rows)
    advanced = np.concatenate([[0], np.flatnonzero(joules > 0) + 1])
    at, end = time[advanced], advanced[1:]
    begin = advanced[np.maximum(np.searchsorted(at, at[1:] - 1, side="right") - 1, 0)]
    keep = ((at[1:] >= 1) | (end == advanced[-1])) & (tokens[end] > tokens[begin])
    found = np.full(len(joules), np.nan)
    found[end[keep] - 1] = (energy[end] - energy[begin])[keep] / (tokens[end] - tokens[begin])[keep]
    return Column(found, parts[0].unit + "/token") if np.isfinite(found).any() else None


def energy_of_ranks(run):
    """Yields (what, text) with the energy per step of the ranks that used least and most, if several ranks measured energy."""
    if not all(name in run.energy for name in ("first_step", "last_step", "rank", "cpu_joules", "gpu_joules")):
        return
    first, last, rank = (run.energy[name].values for name in ("first_step", "last_step", "rank"))
    for what, name in (("hosts' CPUs", "cpu_joules"), ("ranks' GPUs", "gpu_joules")):
        joules, unit = run.energy[name].values, run.energy[name].unit
        known = np.isfinite(joules)
        ranks = np.unique(rank[known])
        if len(ranks) < 2:
            continue
        of_rank = [known & (rank == one) for one in ranks]
        per_step = [joules[rows].sum() / (last - first + 1)[rows].sum() for rows in of_rank]
        least, most = np.argmin(per_step), np.argmax(per_step)
        yield what, f"{per_step[least]:.4g} {unit}/step (rank {ranks[least]}) to {per_step[most]:.4g} {unit}/step (rank {ranks[most]})"


def window_inside(places, place, width):
    """Returns the places in (place - width, place]."""
    return places[(places > place - width) & (places <= place)]


def window_before(places, values, place, width):
    """Returns the values at places in (place - width, place] or, if there are none, the last value before."""
    chosen = (places > place - width) & (places <= place)
    if not chosen.any():
        chosen = np.zeros(len(places), dtype=bool)
        chosen[np.flatnonzero(places <= place)[-1:]] = True
    return values[chosen]
