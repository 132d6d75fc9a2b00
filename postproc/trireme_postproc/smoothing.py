# SPDX-License-Identifier: Apache-2.0
"""Running medians for pictures that compare runs.

All curves of a picture share one Window, whose width is in units of the x axis. Runs of different lengths are then smoothed alike: where
their values are the same, their curves are the same, up to half of a window before the end of the shorter one. A ratio of runs is taken
value by value, and only then smoothed.
"""

import numpy as np

from .style import FEWEST_SMOOTHED, group_size, groups


class Window:
    """`size`: values in a row that become one point; `half`: half of the width of the running median, 0 for none."""

    def __init__(self, size=1, half=0.0):
        self.size, self.half = size, half


def common_window(places):
    """The window for curves at these places (arrays, or None where a run has none). The longest curve decides."""
    longest = max((np.asarray(one, dtype=float) for one in places if one is not None), key=len, default=np.zeros(0))
    if len(longest) < FEWEST_SMOOTHED:
        return Window()
    size = group_size(len(longest))
    longest = groups(longest, size)
    return Window(size, (max(5, len(longest) // 40) // 2) * float(np.median(np.diff(longest))))


def smooth_curve(x, y, window):
    """The running median of a curve, whose x does not fall."""
    x, y = groups(x, window.size), groups(y, window.size)
    if window.half <= 0 or not len(x):
        return x, y
    half = np.minimum(window.half, np.minimum(x - x[0], x[-1] - x))  # the same on both sides, or the ends of a slope would be wrong
    first, last = np.searchsorted(x, x - half, side="left"), np.searchsorted(x, x + half, side="right")
    return x, np.array([np.median(y[begin:end]) for begin, end in zip(first, last)])


def ratio_curve(x, y, first_x, first_y):
    """The ratio of a curve to the first run's; at the places that both have, or by interpolation where these are few."""
    x, y, first_x, first_y = (np.asarray(one, dtype=float) for one in (x, y, first_x, first_y))
    known, first_known = np.isfinite(y), np.isfinite(first_y) & (first_y != 0)
    x, y, first_x, first_y = x[known], y[known], first_x[first_known], first_y[first_known]
    if not len(x) or not len(first_x):
        return np.zeros(0), np.zeros(0)
    inside = (first_x >= x[0]) & (first_x <= x[-1])
    shared, at, first_at = np.intersect1d(x, first_x, return_indices=True)
    if len(shared) and 10 * len(shared) >= min(inside.sum(), len(x)):
        return shared, y[at] / first_y[first_at]
    return first_x[inside], np.interp(first_x[inside], x, y) / first_y[inside]
