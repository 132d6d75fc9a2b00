# SPDX-License-Identifier: Apache-2.0
"""Divides the median step into parts that add up to it.

A sum of medians is not the median of the sums. Each part is therefore the share of its span in all recorded steps, times the median of
`seconds` in /steps. The quartiles are those of the recorded steps, scaled by the same factor.
"""

import numpy as np

from . import timings
from .measures import Spread, per_step


class Part(Spread):
    """`median` is the time of this part in the median step, and `share` its fraction of the step."""

    def __init__(self, seconds, share, step, scale, unit):
        super().__init__(seconds * scale, unit)
        self.share, self.median = share, share * step


def parts(run):
    """Returns pairs (label, Part); empty without spans of whole steps."""
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
