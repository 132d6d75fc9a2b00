# SPDX-License-Identifier: Apache-2.0
"""Prints predicted and measured steps and checkpoints as Markdown, from the file that dev/experiments/prediction.sh writes."""

import json

import numpy as np

from .prediction_record import FILETYPE, VERSION
from .run_file import RunFileError
from .texts import number

HEADINGS = ("ranks", "what", "predicted", "measured", "error", "errors of rounds", "exposed: predicted", "measured")


class Case:
    """A step with one setting, or a checkpoint, on one number of ranks, over all rounds. `errors`: predicted / measured - 1 of each round,
    because the speed of a machine changes between rounds. `error` is their median."""

    def __init__(self, ranks, what, rows):
        self.ranks, self.what = ranks, what
        take = lambda name: np.array([row[name] for row in rows if name in row])  # noqa: E731
        self.predicted, self.measured = take("predicted_s"), take("measured_s")
        self.measured_low, self.measured_high = take("measured_low_s"), take("measured_high_s")
        self.predicted_exposed, self.measured_exposed = take("predicted_exposed_s"), take("measured_exposed_s")
        self.errors = self.predicted / self.measured - 1
        self.error = float(np.median(self.errors))

    def cells(self):
        middle = lambda values: f"{number(1e3 * np.median(values), 4)} ms" if len(values) else "-"  # noqa: E731
        each = f"{100 * min(self.errors):+.1f} … {100 * max(self.errors):+.1f} %"
        return [str(self.ranks), self.what, middle(self.predicted), middle(self.measured), f"{100 * self.error:+.1f} %", each,
                middle(self.predicted_exposed), middle(self.measured_exposed)]


class Prediction:
    """The content of the file: `facts` about the measurement, and the cases in the order of ranks."""

    def __init__(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
            if not isinstance(found, dict) or found.get("filetype") != FILETYPE:
                raise RunFileError(f"{path}: is not a file of dev/experiments/prediction.sh: its filetype is not '{FILETYPE}'")
            if found.get("version") != VERSION:
                raise RunFileError(f"{path}: version {found.get('version')}, this program reads {VERSION}")
            if not found["rows"]:
                raise RunFileError(f"{path}: has no rows. Measure at least one case with dev/experiments/prediction.sh")
            self.facts = found["facts"]
            # Steps come before checkpoints, because their names are longer.
            kinds = sorted({(row["ranks"], row["what"]) for row in found["rows"]}, key=lambda kind: (kind[0], -len(kind[1]), kind[1]))
            self.cases = [Case(*kind, [row for row in found["rows"] if (row["ranks"], row["what"]) == kind]) for kind in kinds]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFileError(f"{path}: cannot be read: {error}") from error


def table(prediction):
    """Returns Markdown: the facts, then the cases."""
    lines = [", ".join(f"{name}: {str(value).strip()}" for name, value in prediction.facts.items()), ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    lines += ["| " + " | ".join(case.cells()) + " |" for case in prediction.cases]
    return "\n".join(lines) + "\n"
