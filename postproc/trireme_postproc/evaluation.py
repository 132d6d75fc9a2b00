# SPDX-License-Identifier: Apache-2.0
"""Results of the sets of `evaluate.sets` over the steps: losses of texts and tokens, accuracies of multiple-choice questions."""

import numpy as np

# Columns of /evaluation/NAME, and the name of their kind for labels.
LOSSES = (("loss", ""),)
IN_BYTES = (("bits_per_byte", ""),)
ACCURACIES = (("accuracy", "accuracy"), ("accuracy_per_token", "per token"), ("accuracy_per_character", "per character"))


class Curve:
    """The finite values of one column of one set, with standard errors if the file has them. The last value is kept even if it is not
    finite, to show that a run diverged, unless no value is finite. Fractions are in percent."""

    def __init__(self, name, kind, steps, column, errors):
        known = np.isfinite(column.values)
        known[-1:] = known.any()
        factor, self.unit = (100.0, "%") if column.unit == "fraction" else (1.0, column.unit)
        self.name = name
        self.kind = kind
        self.steps = steps.values[known]
        self.values = column.values[known] * factor
        self.errors = np.full(len(self.values), np.nan) if errors is None else errors.values[known] * factor


def curves(sets, columns):
    """Returns a Curve for each of `columns` that has a finite value, for every set in `sets` (name → columns)."""
    found = []
    for name, table in sets.items():
        for column, kind in columns:
            if "step" in table and column in table:
                curve = Curve(name, kind, table["step"], table[column], table.get(column + "_error"))
                if len(curve.values):
                    found.append(curve)
    return found
