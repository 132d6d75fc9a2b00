# SPDX-License-Identifier: Apache-2.0
"""Prints the file that dev/experiments/ablation.sh writes as a Markdown table that compares steps with and without each optimization."""

import os

import h5py
import numpy as np

from .ablation_record import FILETYPE, VERSION
from .measures import Spread
from .run_file import RunFileError, node_of
from .texts import MISSING, number, size, with_unit

HEADINGS = ("optimization", "what the literature claims", "off", "on", "ratio", "spread")
SPENT_HEADINGS = ("runs", "off: communication / compute", "exposed", "on: communication / compute", "exposed")
MORE_IS_BETTER = ("B/s",)  # units
FACTS = ("machine", "deck", "ranks", "steps", "rounds", "trireme")


class Row:
    """One optimization and one quantity. `ratio` is the median without the optimization over the median with it, or the inverse if more
    is better. Above 1 the optimization pays. NaN: the divisor is 0. `spread` has the quartiles of the ratios of the rounds. Its count is
    the number of rounds with a ratio, which is 1 for values that do not vary, such as the bytes of a plan."""

    def __init__(self, group):
        texts = {name: str(group.attrs[name]) for name in ("title", "claim", "quantity", "unit", "off", "on")}
        self.title, self.claim, self.quantity, self.unit = (texts[name] for name in ("title", "claim", "quantity", "unit"))
        self.labels = texts["off"], texts["on"]
        self.claimed = float(group.attrs["claimed_ratio"])
        sides = [(group[side][:], group[f"{side}_turn"][:]) for side in ("off", "on")]
        self.off, self.on = (Spread(values, self.unit) for values, _ in sides)
        order = -1 if self.unit in MORE_IS_BETTER else 1
        above, below = (self.off, self.on)[::order]
        self.ratio = above.ratio(below)
        rounds = np.intersect1d(sides[0][1], sides[1][1])
        medians = [[np.median(values[of == round_]) for round_ in rounds] for values, of in sides]
        with np.errstate(divide="ignore", invalid="ignore"):  # no ratio if the divisor is 0, such as no allocations
            self.spread = Spread(np.divide(*medians[::order]))

        names = ("compute_s", "communication_s", "exposed_share")
        self.spent = [dict(zip(names, side)) for side in zip(*(group.attrs[name] for name in names if name in group.attrs))]

    def spent_cells(self):
        """For runs with spans: seconds of communication over seconds of compute, and the share of a step during which compute waited."""
        cells = [self.title]
        for side in self.spent:
            communication, compute = side["communication_s"], side["compute_s"]
            cells += [f"{_value(communication, 's')} / {_value(compute, 's')} = {number(communication / compute, 3)}", f"{100 * side['exposed_share']:.1f} %"]
        return cells

    def cells(self):
        sides = [f"{label}: {_value(side.median, self.unit)}" for label, side in zip(self.labels, (self.off, self.on))]
        spread = MISSING if self.spread.count < 2 else f"{number(self.spread.low, 3)} … {number(self.spread.high, 3)}"
        return [f"{self.title}: {self.quantity}", self.claim or MISSING, *sides, number(self.ratio, 3) if np.isfinite(self.ratio) else MISSING, spread]


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _value(value, unit):
    if unit == "s" and 0 < value < 1e-4:
        return f"{number(value * 1e6, 3)} µs" if value >= 1e-6 else f"{number(value * 1e9, 3)} ns"
    if unit == "B/s":
        return f"{number(value / 1e9, 3)} GB/s"
    return size(int(value), unit) if unit == "B" else with_unit(value, unit)


class Ablation:
    """The content of the file: `facts` about the measurement, and the rows in their order."""

    def __init__(self, path):
        if not os.path.exists(path):
            raise RunFileError(f"{path}: does not exist")
        try:
            with h5py.File(path, "r") as file:
                if str(file.attrs.get("filetype")) != FILETYPE:
                    raise RunFileError(f"{path}: is not a file of dev/experiments/ablation.sh: its filetype is not '{FILETYPE}'")
                version = file.attrs.get("version")
                if version is None or isinstance(version, h5py.Empty):
                    raise RunFileError(f"{path}: has no version, this program reads {VERSION[0]}.x")
                version = np.atleast_1d(version).tolist()
                if version[:1] != [VERSION[0]]:
                    raise RunFileError(f"{path}: version {'.'.join(map(_text, version))}, this program reads {VERSION[0]}.x")
                self.facts = [(name, str(file.attrs[name])) for name in FACTS if name in file.attrs]
                groups = [node_of(file, name, h5py.Group) for name in file]
                self.rows = [Row(group) for group in sorted(groups, key=lambda group: group.attrs["position"])]
        except (OSError, KeyError) as error:
            raise RunFileError(f"{path}: cannot be read: {error}") from error


def _markdown(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in rows]


def table(ablation):
    """Returns Markdown: facts, rows, and the ratio of communication to compute in the runs, on which the claims depend."""
    lines = [", ".join(f"{name}: {value.strip()}" for name, value in ablation.facts), ""] if ablation.facts else []
    lines += _markdown(HEADINGS, [row.cells() for row in ablation.rows])
    spent = [row.spent_cells() for row in ablation.rows if row.spent]
    if spent:
        lines += ["", "Communication over compute in these runs, per step and rank: a claim that holds here, or does not, does so at such a ratio.", ""]
        lines += _markdown(SPENT_HEADINGS, spent)
    return "\n".join(lines) + "\n"
