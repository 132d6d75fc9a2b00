# SPDX-License-Identifier: Apache-2.0
"""Where the time went: sums over the samples of a run, by the names that the file gives."""

import numpy as np

ROOT = "step"  # the span that a whole step is
REST = "rest"


class SpanTotal:
    """Sums of one span over the run; seconds per step are per rank."""

    def __init__(self, span, count, total, per_step, longest):
        self.span = span
        self.count = count
        self.total = total
        self.per_step = per_step
        self.longest = longest


def _of(run, position):
    samples = run.samples
    return samples[samples["name"] == position]


def num_ranks(run):
    """Ranks that recorded spans."""
    return len(np.unique(run.samples["rank"])) if len(run.samples) else 0


def own_seconds(run):
    """The duration of every sample; of the parts of a step without what other parts take inside them.

    Compute waits for buckets in the middle of training and of updating: such a wait is a part of the
    step, and lies in time inside a sample of another part and the same rank.
    """
    samples = run.samples
    own = samples["duration_s"].astype(float)
    parts = [position for _, position in parts_of_step(run)]
    rows = {part: np.flatnonzero(samples["name"] == part) for part in parts}
    for rank in np.unique(samples["rank"]) if len(samples) else ():
        of_rank = {part: at[samples["rank"][at] == rank] for part, at in rows.items()}
        for outer in parts:
            around = of_rank[outer][np.argsort(samples["begin_s"][of_rank[outer]])]
            begin, length = samples["begin_s"][around], samples["duration_s"][around]
            for inner in parts:
                inside = of_rank[inner]
                if inner == outer or not len(around) or not len(inside):
                    continue
                duration = samples["duration_s"][inside]
                middle = samples["begin_s"][inside] + duration / 2
                at = np.searchsorted(begin, middle, side="right") - 1
                within = (at >= 0) & (middle < begin[at] + length[at]) & (duration < length[at])
                np.subtract.at(own, around[at[within]], duration[within])
    return np.maximum(own, 0.0)


def totals(run):
    """A SpanTotal for every name that has samples, in the order of the file's table. Parts of a step
    count without what other parts take inside them."""
    if not len(run.samples):
        return []
    own = own_seconds(run)
    steps = len(np.unique(run.samples["step"][run.samples["step"] > 0])) or 1
    ranks = num_ranks(run)
    result = []
    for position, span in enumerate(run.spans):
        duration = own[run.samples["name"] == position]
        if len(duration):
            total = float(duration.sum())
            result.append(
                SpanTotal(
                    span, len(duration), total, total / (steps * ranks), float(duration.max())
                )
            )
    return result


def parts_of_step(run):
    """The spans that a step is made of and that do not overlap: the deepest ones that were recorded
    under `step`, by the nesting that the file's table states. Pairs (label, list of positions)."""
    present = {span.name for i, span in enumerate(run.spans) if len(_of(run, i))}
    position = {span.name: i for i, span in enumerate(run.spans)}

    def children(name):
        return [s.name for s in run.spans if s.parent == name and s.name in present]

    def leaves(name):
        inner = children(name)
        return [leaf for child in inner for leaf in leaves(child)] if inner else [name]

    return [(leaf, position[leaf]) for child in children(ROOT) for leaf in leaves(child)]


def per_step(run, position, durations):
    """Steps, and for each the seconds of one span, summed over micro-steps and indices and averaged
    over ranks. `durations`: of every sample of the run."""
    chosen = run.samples["name"] == position
    if not chosen.any():
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    steps, where = np.unique(run.samples["step"][chosen].astype(np.int64), return_inverse=True)
    seconds = np.bincount(where, weights=durations[chosen])
    return steps, seconds / num_ranks(run)


def step_table(run):
    """Steps, and a list of (label, seconds per step) that adds up to the whole step. What no part
    explains is the rest. Empty without spans of whole steps."""
    whole = next((i for i, span in enumerate(run.spans) if span.name == ROOT), None)
    if whole is None:
        return np.zeros(0, dtype=np.int64), []
    own = own_seconds(run)
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
        parts.append((REST, np.maximum(rest, 0.0)))
    return steps, parts
