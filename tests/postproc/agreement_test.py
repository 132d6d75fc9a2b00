# SPDX-License-Identifier: Apache-2.0
"""Properties that hold for any runs: equal runs have ratios of 1, and the parts of a step add up to the step."""
import os
import re
import tempfile
import unittest
from unittest import mock

import h5py
import numpy as np

import made_up
from trireme_postproc import compare_picture, timings
from trireme_postproc.compare import compare, losses_at_equal, times
from trireme_postproc.measures import per_step
from trireme_postproc.report_data import charts
from trireme_postproc.report_tables import times_table
from trireme_postproc.run_file import RunFile
from trireme_postproc.smoothing import common_window, ratio_curve, smooth_curve
from trireme_postproc.step_parts import parts
from trireme_postproc.summary import time_table


class AgreementTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def run_of(self, losses, every=1):
        """A run with the given losses in its first steps, and a row for every `every` steps."""
        path = f"{self.directory}/{len(os.listdir(self.directory))}"
        os.mkdir(path)
        made_up.write(path + "/run.h5", steps=len(losses), spans=False, validation=False)
        with h5py.File(path + "/run.h5", "a") as file:
            file["steps/loss"][:] = losses
            for column in file["steps"].values() if every > 1 else ():
                kept = column[every - 1::every]
                column.resize(kept.shape)
                column[:] = kept
        return RunFile(path + "/run.h5")

    def ratios_drawn(self, runs):
        """The y values of the curves in the plot of ratios."""
        drawn = []
        whole = compare_picture._ratios

        def spied(axes, *more):
            whole(axes, *more)
            drawn.extend(line.get_ydata() for line in axes.lines)

        with mock.patch.object(compare_picture, "_ratios", spied):
            compare_picture.plot_compare(runs, self.directory + "/ratios.svg")
        return drawn

    def test_runs_with_equal_bits_have_ratios_of_one(self):
        dice = np.random.default_rng(7)
        for lengths, every in (((450, 60), (1, 1)), ((60, 450, 59), (1, 1, 1)), ((450, 450), (1, 10)), ((3000, 200), (7, 1)), ((5, 90), (1, 1)),
                               ((1, 80), (1, 1))):
            with self.subTest(lengths=lengths, every=every):
                losses = 5 + dice.normal(0, 1, max(lengths))
                losses[dice.integers(0, len(losses), 3)] *= 100  # spikes
                runs = [self.run_of(losses[:length], rows) for length, rows in zip(lengths, every)]
                for name in ("step", "tokens"):
                    for row in losses_at_equal(runs, name):
                        if row.spreads[0].count:  # all runs have a row before this point
                            self.assertEqual([spread.ratio(row.spreads[0]) for spread in row.spreads], [1.0] * len(runs), row.text)
                for ratios in self.ratios_drawn(runs):
                    self.assertGreater(len(ratios), 0)
                    self.assertTrue(np.all(ratios == 1.0), ratios)
                self.assertNotIn("first differ", compare(runs))

    def test_curves_of_runs_with_equal_bits_are_the_same(self):
        """Except for the last half window of the shorter run, where its median is over fewer values."""
        losses = np.random.default_rng(8).normal(5, 1, 900)
        for shorter in (59, 200, 899):
            runs = [self.run_of(losses), self.run_of(losses[:shorter])]
            places = [per_step(run, "tokens").values for run in runs]
            window = common_window(places)
            curves = [smooth_curve(place, losses[:len(place)], window) for place in places]
            same = places[1] + window.half <= places[1][-1]
            self.assertGreater(same.sum(), 30)
            np.testing.assert_array_equal(curves[0][1][:shorter][same], curves[1][1][same])
            series = [curve for curve in charts(runs, ["a", "b"])[0]["series"] if not curve.get("faint")]
            self.assertEqual(len(series), 2)
            count = int(same.sum())
            self.assertEqual(series[0]["y"][:count], series[1]["y"][:count])

    def test_ratios_of_other_numbers_of_tokens(self):
        x, y = np.arange(1, 201) * 3.0, np.full(200, 2.0)
        places, ratio = ratio_curve(x, y, np.arange(1, 101) * 7.0, np.full(100, 4.0))
        self.assertTrue(np.all(ratio == 0.5))
        self.assertLessEqual(places[-1], 600)
        y[3] = np.nan  # values that are not finite are left out
        self.assertTrue(np.all(ratio_curve(x, y, x, np.full(200, 4.0))[1] == 0.5))
        self.assertEqual(len(ratio_curve(x[:0], y[:0], x, y)[0]), 0)

    def run_with_spans(self, seed):
        """Random begins and durations: parts overlap, extend beyond their step, or are missing in some steps."""
        dice = np.random.default_rng(seed)
        path = made_up.write(f"{self.directory}/spans-{seed}.h5", steps=30, muon=bool(seed % 2), noise=0.3)
        with h5py.File(path, "a") as file:
            rows = file["timings/samples"][:]
            if seed > 1:
                rows["duration_s"] *= dice.exponential(1, len(rows))
                rows["begin_s"] += dice.normal(0, 0.01, len(rows))
                rows = rows[dice.random(len(rows)) < 0.9]
            file["timings/samples"].resize(rows.shape)
            file["timings/samples"][:] = rows
        return RunFile(path)

    def test_the_parts_of_a_step_add_up_to_the_step_that_is_stated(self):
        for seed in range(12):
            with self.subTest(seed=seed):
                run = self.run_with_spans(seed)
                median = float(np.median(run.steps["seconds"].values))
                self.assertAlmostEqual(sum(part.median for _, part in parts(run)), median)
                self.assertAlmostEqual(sum(part.share for _, part in parts(run)), 1.0)
                *rows, whole = times([run])
                self.assertEqual(whole.text, "step")
                self.assertAlmostEqual(sum(row.spreads[0].median for row in rows), median)
                self.assertAlmostEqual(whole.spreads[0].median, median)
                steps, by_span = timings.step_table(run)
                position = [name for name, *_ in made_up.SPANS].index("step")
                whole = timings.per_step(run, position, run.samples["duration_s"])
                np.testing.assert_array_equal(steps, whole[0])
                np.testing.assert_allclose(sum(seconds for _, seconds in by_span), whole[1] / timings.ranks_in(run, steps))
                self.assert_shares(re.findall(r"<tr><td>([^<]*)</td>.*?>([0-9.]+) %<", times_table(run)))
                lines = [re.split(r"  +", line.strip()) for line in time_table(run)]
                self.assert_shares([(line[0], line[-1][:-2]) for line in lines if line[-1].endswith(" %")])
                per = {line[0]: float(line[3 if line[0] != "rest" else 2]) for line in lines if line[-1].endswith(" %")}
                self.assertAlmostEqual(sum(per.values()) - per["step"], per["step"], delta=2e-3 * per["step"])

    def assert_shares(self, shares):
        shares = {name: float(share) for name, share in shares}
        self.assertEqual(shares.pop("step"), 100.0)
        self.assertGreater(len(shares), 4)
        self.assertAlmostEqual(sum(shares.values()), 100.0, delta=0.06 * len(shares))

    def test_the_picture_of_times_agrees_with_the_table(self):
        runs = [self.run_with_spans(seed) for seed in (2, 3)]
        drawn = []
        whole = compare_picture._times

        def spied(axes, *more):
            whole(axes, *more)
            drawn.extend(text.get_text() for text in axes.texts)

        with mock.patch.object(compare_picture, "_times", spied):
            compare_picture.plot_compare(runs, self.directory + "/times.svg")
        for text, run in zip(drawn, runs):
            self.assertAlmostEqual(float(text.split()[0]), 1e3 * np.median(run.steps["seconds"].values), delta=0.06)


if __name__ == "__main__":
    unittest.main()
