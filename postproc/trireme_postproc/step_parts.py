# SPDX-License-Identifier: Apache-2.0
"""The parts of a step that add up to the step that the tables state.

A sum of medians is not the median of the sums. Each part is therefore the share of its span in all recorded steps, times the median of
`seconds` of /steps. The quartiles are those of the recorded steps, on the same scale.
"""

import numpy as np

from . import timings
from .measures import Spread, per_step


class Part(Spread):
    """`median` is the part of the median step, and `share` its fraction."""

    def __init__(self, seconds, share, step, scale, unit):
        super().__init__(seconds * scale, unit)
        self.share, self.median = share, share * step


def parts(run):
    """Pairs (label, Part); none without spans of whole steps."""
    steps, spans = timings.step_table(run)
    whole = sum(seconds.sum() for _, seconds in spans)
    if not len(steps) or not whole > 0:
        return []
    unit, mean = run.sample_units.get("duration_s", ""), whole / len(steps)
    stated = per_step(run, "seconds")
    step = Spread(stated.values, stated.unit).median if stated is not None and stated.unit == unit else mean
    if not np.isfinite(step):
        step = mean
    return [(label, Part(seconds, float(seconds.sum() / whole), step, step / mean, unit)) for label, seconds in spans]
