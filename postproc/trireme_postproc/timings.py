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


def totals(run):
    """A SpanTotal for every name that has samples, in the order of the file's table."""
    if not len(run.samples):
        return []
    steps = len(np.unique(run.samples["step"][run.samples["step"] > 0])) or 1
    ranks = num_ranks(run)
    result = []
    for position, span in enumerate(run.spans):
        duration = _of(run, position)["duration_s"]
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


def per_step(run, position):
    """Steps, and for each the seconds of one span, summed over micro-steps and indices and averaged
    over ranks."""
    samples = _of(run, position)
    if not len(samples):
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    steps, where = np.unique(samples["step"].astype(np.int64), return_inverse=True)
    seconds = np.bincount(where, weights=samples["duration_s"])
    return steps, seconds / num_ranks(run)


def step_table(run):
    """Steps, and a list of (label, seconds per step) that adds up to the whole step. What no part
    explains is the rest. Empty without spans of whole steps."""
    whole = next((i for i, span in enumerate(run.spans) if span.name == ROOT), None)
    if whole is None:
        return np.zeros(0, dtype=np.int64), []
    steps, seconds = per_step(run, whole)
    parts = []
    rest = seconds.copy()
    for label, position in parts_of_step(run):
        part_steps, part_seconds = per_step(run, position)
        aligned = np.zeros(len(steps))
        known = np.isin(part_steps, steps)
        aligned[np.searchsorted(steps, part_steps[known])] = part_seconds[known]
        parts.append((label, aligned))
        rest -= aligned
    if len(steps):
        parts.append((REST, np.maximum(rest, 0.0)))
    return steps, parts
