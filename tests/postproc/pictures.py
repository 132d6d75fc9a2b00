# SPDX-License-Identifier: Apache-2.0
"""Finds texts in plots that are cut off or overlap, as drawn by Matplotlib."""

import itertools
from unittest import mock

from matplotlib.figure import Figure
from matplotlib.text import Text

ROOM = 1.0  # tolerance in pixels: extents are slightly larger than their texts


def drawn_texts(plot, *arguments):
    """(text, extent) pairs of the figure that `plot` saves, and the extent of the figure."""
    found, whole = {}, []
    draw, save = Text.draw, Figure.savefig

    def noted(text, renderer, *more, **named):
        if text.get_visible() and text.get_text().strip():
            found[id(text)] = text.get_text(), text.get_window_extent(renderer)
        draw(text, renderer, *more, **named)

    def saved(figure, *more, **named):
        save(figure, *more, **named)
        whole.append(figure.bbox.frozen())

    with mock.patch.object(Text, "draw", noted), mock.patch.object(Figure, "savefig", saved):
        plot(*arguments)
    return list(found.values()), whole[-1]


def problems(plot, *arguments):
    """Messages about texts that are cut off or overlap."""
    texts, whole = drawn_texts(plot, *arguments)
    told = [f"'{text}' is cut off" for text, at in texts
            if at.x0 < whole.x0 - ROOM or at.y0 < whole.y0 - ROOM or at.x1 > whole.x1 + ROOM or at.y1 > whole.y1 + ROOM]
    for (one, at), (other, there) in itertools.combinations(texts, 2):
        if min(at.x1, there.x1) - max(at.x0, there.x0) > ROOM and min(at.y1, there.y1) - max(at.y0, there.y0) > ROOM:
            told.append(f"'{one}' and '{other}' lie on each other")
    return told
