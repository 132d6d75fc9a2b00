# SPDX-License-Identifier: Apache-2.0
"""Draws the norms by layer (/norms) as heat maps over layers and steps, in SVG without scripts."""

import numpy as np

from .report_tables import escape
from .texts import number

WIDTH, LEFT, ROW = 900, 110, 16
MOST_COLUMNS = 180


def _layer(at, layers):
    return "embeddings" if at == 0 else "final layer" if at == layers - 1 else f"block {at - 1}"


def _table(run):
    """Returns the measured steps, and the arrays [layer, step] of gradient, weight and update; None if nothing was measured."""
    names = ("step", "layer", "gradient", "weight", "update")
    if any(name not in run.norms or not len(run.norms[name]) for name in names):
        return None
    step, layer, *values = (run.norms[name].values for name in names)
    steps, column = np.unique(step, return_inverse=True)
    tables = []
    for value in values:
        table = np.full((int(layer.max()) + 1, len(steps)), np.nan)
        table[layer, column] = value
        tables.append(table)
    return steps, tables


def _svg(steps, table):
    """Returns the drawing, and a sentence about the range of its values. The opacity is linear in the logarithm of the value."""
    at, together = np.arange(len(steps)), -(-len(steps) // MOST_COLUMNS)
    shown = [at[begin:begin + together] for begin in at[::together]]
    cells = np.array([[np.fmax.reduce(row[part]) for part in shown] for row in table])
    cells = np.where(np.isfinite(cells) & (cells > 0), cells, np.nan)
    logs = np.log(cells)
    low, high = (np.nanmin(logs), np.nanmax(logs)) if np.isfinite(logs).any() else (0, 0)
    layers, wide = len(table), (WIDTH - LEFT) // len(shown)
    parts = []
    for row in range(layers):
        name = _layer(row, layers)
        parts.append(f"<text x={LEFT - 6} y={row * ROW + 12} text-anchor=end>{name}</text><g fill=#0072B2>")
        for column, part in enumerate(shown):
            opacity = 0.04 + 0.96 * (logs[row, column] - low) / (high - low) if high > low else 0.5
            if np.isfinite(opacity):
                where = f"steps {steps[part[0]]} to {steps[part[-1]]}" if len(part) > 1 else f"step {steps[part[0]]}"
                told = escape(f"{name}, {where}: {number(cells[row, column])}")
                parts.append(f"<rect x={LEFT + column * wide} y={row * ROW} width={wide} height={ROW} fill-opacity={opacity:.2f}>"
                             f"<title>{told}</title></rect>")
        parts.append("</g>")
    bottom, right = layers * ROW + 14, LEFT + wide * len(shown)
    parts.append(f"<text x={LEFT} y={bottom}>step {steps[0]}</text><text x={right} y={bottom} text-anchor=end>{steps[-1]}</text>")
    spread = f"Faint to strong: {number(np.exp(low))} to {number(np.exp(high))}, logarithmic." if high > low else ""
    return f'<div class=frame><svg viewBox="0 0 {WIDTH} {bottom + 4}">{"".join(parts)}</svg></div>', spread


def heat_maps(runs, names):
    """Returns the HTML of all maps of all runs; empty if no run measured norms."""
    parts = []
    for run, name in zip(runs, names):
        found = _table(run)
        if found is None:
            continue
        steps, (gradient, weight, update) = found
        before = f"{name}: " if len(runs) > 1 else ""
        with np.errstate(divide="ignore", invalid="ignore"):
            maps = (("Norm of the gradient", gradient), ("Norm of the update over that of the weights", update / weight))
        for title, table in maps:
            drawing, note = _svg(steps, table)
            parts.append(f"<h3>{escape(before + title)}</h3><p class=note>{escape(note)}</p>{drawing}")
    return "\n".join(parts)
