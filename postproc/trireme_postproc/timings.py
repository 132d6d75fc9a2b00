# SPDX-License-Identifier: Apache-2.0
"""Where the time went: sums over the samples of a run by span name."""

import numpy as np

ROOT = "step"  # the span of a whole step
REST = "rest"


class SpanTotal:
    """Sums of one span over the run. `per_step`: mean seconds per step and rank."""

    def __init__(self, span, count, total, per_step, longest):
        self.span = span
        self.count = count
        self.total = total
        self.per_step = per_step
        self.longest = longest


def ranks_in(run, steps):
    """Returns for each step, which must have samples, the number of ranks that recorded spans in it: a run may resume on other ranks."""
    pairs = np.unique(run.samples["step"].astype(np.int64) << 32 | run.samples["rank"])
    recorded, ranks = np.unique(pairs >> 32, return_counts=True)
    return ranks[np.searchsorted(recorded, steps)]


def own_seconds(run):
    """Returns the duration of every sample. For parts of a step, the duration of other parts inside them is subtracted.

    What is inside what is decided by the times, because a wait for a bucket may be inside training or updating, whatever the file's table
    says. The duration of a sample is subtracted from only one other sample, the shortest that contains its middle.
    """
    samples = run.samples
    own = samples["duration_s"].astype(float)
    parts = [position for _, position in parts_of_step(run)]
    rows = {part: np.flatnonzero(samples["name"] == part) for part in parts}
    inside_of = {part: set(within(run, run.spans[part].name)) for part in parts}
    clocks = _clocks(run)
    for clock in np.unique(clocks):
        of_rank = {part: at[clocks[at] == clock] for part, at in rows.items()}
        of_rank = {part: at[np.argsort(samples["begin_s"][at])] for part, at in of_rank.items() if len(at)}
        for inner, inside in of_rank.items():
            around, seconds = np.full(len(inside), -1), np.full(len(inside), np.inf)
            for outer in sorted(set(of_rank) - {inner}, key=lambda part: len(inside_of[part])):  # of two with equal times, the inner one
                found = _around(samples, of_rank[outer], inside, inner in inside_of[outer])
                length = np.where(found >= 0, samples["duration_s"][found], np.inf)
                around, seconds = np.where(length < seconds, found, around), np.minimum(length, seconds)
            known = around >= 0
            np.subtract.at(own, around[known], samples["duration_s"][inside[known]])
    return np.maximum(own, 0.0)


def _clocks(run):
    """Returns a number for every sample that identifies its clock: the pair of session and rank."""
    first_steps = run.anchors.get("first_step")
    sessions = np.unique(first_steps.values) if first_steps is not None else np.zeros(0)
    return np.searchsorted(sessions, run.samples["step"], side="right").astype(np.int64) << 32 | run.samples["rank"]


def _around(samples, outer, inner, stated):
    """Returns for each row in `inner` the row in `outer` that contains it, or -1. `outer`: rows that do not overlap, in the order of time.
    `stated`: whether the file's table says that `inner` is inside `outer`. Only then may both have the same duration."""
    begin, length = samples["begin_s"][outer], samples["duration_s"][outer]
    duration = samples["duration_s"][inner]
    middle = samples["begin_s"][inner] + duration / 2
    at = np.searchsorted(begin, middle, side="right") - 1
    longer = duration <= length[at] if stated else duration < length[at]
    return np.where((at >= 0) & (middle < begin[at] + length[at]) & longer, outer[at], -1)


def totals(run):
    """Returns a SpanTotal for every name that has samples, in the order of the file's table. Parts of
    a step do not include other parts inside them (own_seconds), so they add up."""
    if not len(run.samples):
        return []
    own = own_seconds(run)
    of_rank = own / ranks_in(run, run.samples["step"])
    steps = len(np.unique(run.samples["step"][run.samples["step"] > 0])) or 1
    result = []
    for position, span in enumerate(run.spans):
        chosen = run.samples["name"] == position
        duration = own[chosen]
        if len(duration):
            per_rank = float(of_rank[chosen].sum())
            result.append(SpanTotal(span, len(duration), float(duration.sum()), per_rank / steps, float(duration.max())))
    return result


def within(run, name):
    """Returns the positions of a span and of all spans nested in it according to the file's table, outer spans first."""
    found = []

    def add(position):
        if position not in found:
            found.append(position)
            for inner, span in enumerate(run.spans):
                if span.parent == run.spans[position].name:
                    add(inner)

    for position, span in enumerate(run.spans):
        if span.name == name:
            add(position)
    return found


def parts_of_step(run):
    """Returns pairs (label, position) of the recorded spans inside `step`. Their own_seconds() do not overlap."""
    names = set(np.unique(run.samples["name"]).tolist())
    return [(run.spans[position].name, position) for position in within(run, ROOT)[1:] if position in names]


def per_step(run, position, durations):
    """Returns the steps, and for each step the seconds of one span, summed over ranks, micro-steps and indices. `durations`: those of all
    samples of the run."""
    chosen = run.samples["name"] == position
    if not chosen.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    steps, where = np.unique(run.samples["step"][chosen].astype(np.int64), return_inverse=True)
    return steps, np.bincount(where, weights=durations[chosen])


def step_table(run):
    """Returns the steps, and a list of (label, seconds per step) that adds up to the whole step, averaged over its ranks. REST is the time
    that no part explains. Empty without spans of whole steps."""
    whole = run.position(ROOT)
    if whole is None:
        return np.zeros(0, dtype=np.int64), []
    own = own_seconds(run) / ranks_in(run, run.samples["step"])
    steps, seconds = per_step(run, whole, own)
    parts = []
    rest = seconds.copy()
    for label, position in parts_of_step(run):
        part_steps, part_seconds = per_step(run, position, own)
        aligned = np.zeros(len(steps))
        known = np.isin(part_steps, steps)
        aligned[np.searchsorted(steps, part_steps[known])] = part_seconds[known]
        parts.append((label, aligned))
        rest -= aligned
    if len(steps):
        # If spans overlap without one being inside the other, the parts can add up to more than the step: scale them.
        scale = np.where(rest < 0, seconds / np.maximum(seconds - rest, 1e-300), 1.0)
        parts = [(label, part * scale) for label, part in parts]
        parts.append((REST, np.maximum(rest, 0.0)))
    return steps, parts
