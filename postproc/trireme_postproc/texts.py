# SPDX-License-Identifier: Apache-2.0
"""Formats numbers with units, and tables, as text."""

import numpy as np

MISSING = "–"


def number(value, digits=4):
    """Formats an integer in groups of three digits, or a float with this number of significant digits."""
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}".replace(",", " ")
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e9:
        exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded value
        decimals = max(0, digits - 1 - exponent)
        return f"{value:,.{decimals}f}".replace(",", " ")
    return f"{value:.{digits - 1}e}"


def scaled(value, unit):
    """Returns the same quantity with a unit prefix that makes the number easy to read."""
    if unit == "s" and 0 < abs(value) < 1:
        return value * 1e3, "ms"
    if unit.startswith("FLOP"):
        for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M")):
            if abs(value) >= 10**power:
                return value / 10**power, prefix + unit
    return value, unit


def in_small(unit):
    """Returns the unit in which parts of a step are easy to read, preceded by the factor from `unit` to it."""
    return (1e3, "ms") if unit == "s" else (1.0, unit)


def with_unit(value, unit):
    value, unit = scaled(value, unit)
    return number(value) if unit in ("", "1") else f"{number(value)} {unit}"


def size(value, unit):
    """Formats bytes with binary prefixes, and values with other units like with_unit()."""
    if unit not in ("byte", "bytes", "B"):
        return with_unit(value, unit)
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(value) < 1024:
            break
        value /= 1024
    else:
        prefix = "Ti"
    return f"{number(float(value), 3)} {prefix}B" if prefix else f"{value} B"


def columns_text(rows, indent="", left=1):
    """Formats rows as aligned columns: the first `left` columns to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) if at < left else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
