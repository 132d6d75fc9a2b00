# SPDX-License-Identifier: Apache-2.0
"""Norms by layer (/norms) as heat maps over layers and steps: SVG that needs no script."""

import numpy as np

from .report_tables import escape
from .texts import number

WIDTH, LEFT, ROW = 900, 110, 16
MOST_COLUMNS = 180


def _layer(at, layers):
    return "embeddings" if at == 0 else "final layer" if at == layers - 1 else f"block {at - 1}"


def _table(run):
    """Measured steps, and a dict of [layer, step] arrays; None where nothing was measured."""
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
    """Dark is large: the logarithm between the smallest and the largest value, in the page's ink."""
    at, together = np.arange(len(steps)), -(-len(steps) // MOST_COLUMNS)
    shown = [at[begin:begin + together] for begin in at[::together]]
    cells = np.array([[np.max(row[part]) for part in shown] for row in table])
    logs = np.log(np.where(cells > 0, cells, np.nan))
    low, high = (np.nanmin(logs), np.nanmax(logs)) if np.isfinite(logs).any() else (0, 0)
    layers, wide = len(table), (WIDTH - LEFT) / len(shown)
    parts = []
    for row in range(layers):
        parts.append(f"<text x={LEFT - 6} y={row * ROW + 12} text-anchor=end>{_layer(row, layers)}</text>")
        for column, part in enumerate(shown):
            opacity = 0.04 + 0.96 * (logs[row, column] - low) / (high - low) if high > low else 0.5
            if np.isfinite(opacity):
                where = f"steps {steps[part[0]]} to {steps[part[-1]]}" if len(part) > 1 else f"step {steps[part[0]]}"
                told = escape(f"{_layer(row, layers)}, {where}: {number(cells[row, column])}")
                parts.append(f"<rect x={LEFT + column * wide:.2f} y={row * ROW} width={wide:.2f} height={ROW} fill=#0072B2 "
                             f"fill-opacity={opacity:.3f}><title>{told}</title></rect>")
    bottom = layers * ROW + 14
    parts.append(f"<text x={LEFT} y={bottom}>step {steps[0]}</text><text x={WIDTH} y={bottom} text-anchor=end>{steps[-1]}</text>")
    return f'<div class=frame><svg viewBox="0 0 {WIDTH} {bottom + 4}">{"".join(parts)}</svg></div>'


def heat_maps(runs, names):
    """HTML of all maps of all runs; empty where no run measured norms."""
    parts = []
    for run, name in zip(runs, names):
        found = _table(run)
        if found is None:
            continue
        steps, (gradient, weight, update) = found
        before = f"{name}: " if len(runs) > 1 else ""
        with np.errstate(divide="ignore", invalid="ignore"):
            maps = (("norm of the gradient", gradient), ("norm of the update over that of the weights", update / weight))
        for title, table in maps:
            finite = table[np.isfinite(table) & (table > 0)]
            note = f"Light to dark: {number(finite.min())} to {number(finite.max())}, logarithmic." if len(finite) else ""
            parts.append(f"<h3>{escape(before + title.capitalize())}</h3><p class=note>{escape(note)}</p>{_svg(steps, table)}")
    return "\n".join(parts)
