# SPDX-License-Identifier: Apache-2.0
"""Running medians for pictures that compare runs.

All curves of a picture share one Window, whose width is in units of the x axis, so runs of different lengths are smoothed in the same way.
Where the values of two runs are equal, their curves are equal, up to half a window before the end of the shorter run. A ratio of runs is
calculated value by value and then smoothed.
"""

import numpy as np

from .style import FEWEST_SMOOTHED, group_size, groups


class Window:
    """`size`: number of consecutive values that become one point. `half`: half the width of the running median; 0: no smoothing."""

    def __init__(self, size=1, half=0.0):
        self.size, self.half = size, half


def common_window(places):
    """Returns the window for curves with these x values (arrays, or None for a run without them). The longest curve decides."""
    longest = max((np.asarray(one, dtype=float) for one in places if one is not None), key=len, default=np.zeros(0))
    if len(longest) < FEWEST_SMOOTHED:
        return Window()
    size = group_size(len(longest))
    longest = groups(longest, size)
    return Window(size, (max(5, len(longest) // 40) // 2) * float(np.median(np.diff(longest))))


def smooth_curve(x, y, window):
    """Returns the running median of a curve. `x` must not decrease."""
    x, y = groups(x, window.size), groups(y, window.size)
    if window.half <= 0 or not len(x):
        return x, y
    half = np.minimum(window.half, np.minimum(x - x[0], x[-1] - x))  # symmetric, because otherwise the ends of a slope would be biased
    first, last = np.searchsorted(x, x - half, side="left"), np.searchsorted(x, x + half, side="right")
    return x, np.array([np.median(y[begin:end]) for begin, end in zip(first, last)])


def ratio_curve(x, y, first_x, first_y):
    """Returns the ratio of a curve to that of the first run, at their common x values or, if these are few, by interpolation."""
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
