# SPDX-License-Identifier: Apache-2.0
import re
import tempfile
import unittest

import h5py
import numpy as np

import made_up
from trireme_postproc import timings
from trireme_postproc.measures import steps_of_rows
from trireme_postproc.run_file import RunFile
from trireme_postproc.summary import summary
from trireme_postproc.texts import number, size, with_unit


class SummaryTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = self.directory.name + "/run.h5"

    def fact(self, text, name):
        match = re.search(rf"^{re.escape(name)}  +(.*)$", text, re.MULTILINE)
        self.assertIsNotNone(match, f"no line '{name}' in\n{text}")
        return match.group(1)

    def test_states_what_the_run_was_and_learned(self):
        made_up.write(self.path, steps=40, noise=0)
        text = summary(RunFile(self.path))
        self.assertEqual(self.fact(text, "run"), "made-up")
        self.assertEqual(self.fact(text, "model"), "4 layers, 128 channels")
        self.assertEqual(self.fact(text, "parameters"), "842 240")
        self.assertEqual(self.fact(text, "ranks"), "2")
        self.assertEqual(self.fact(text, "steps"), "40 of 40")
        self.assertEqual(self.fact(text, "tokens"), "163 840 tokens")
        self.assertEqual(self.fact(text, "speed, median"), "40 960 tokens/s")
        self.assertEqual(self.fact(text, "exposed communication, mean"), "4.000 ms per step (4.0 % of the step)")
        self.assertEqual(self.fact(text, "memory, peak resident"), "1.50 GiB")
        with h5py.File(self.path) as file:
            losses = file["steps/loss"][:]
            best = float(np.min(file["validation/loss"][:]))
        self.assertEqual(self.fact(text, "loss, first"), f"{losses[0]:.3f} nat/token")
        self.assertEqual(self.fact(text, "loss, last"), f"{losses[-1]:.3f} nat/token")
        self.assertEqual(self.fact(text, "validation, best"), f"{best:.3f} nat/token (step 40)")

    def test_the_time_of_steps_without_a_row_is_estimated(self):
        made_up.write(self.path, steps=43, noise=0)
        self.assertEqual(self.fact(summary(RunFile(self.path)), "time in steps"), "4.300 s")
        made_up.keep_rows(self.path, (10, 20, 30, 40, 43))
        self.assertEqual(self.fact(summary(RunFile(self.path)), "time in steps"), "4.300 s (estimated from 5 recorded steps)")
        with h5py.File(self.path, "a") as file:
            del file["sessions/ranks"]
            file["sessions/first_step"] = [1, 26]  # steps 21 to 25 took as long as the steps of their start
            file["steps/seconds"][2:] = 1.0
        run = RunFile(self.path)
        self.assertEqual(steps_of_rows(run).tolist(), [10, 15, 5, 10, 3])
        self.assertEqual(self.fact(summary(run), "time in steps"), "20.50 s (estimated from 5 recorded steps)")

    def test_units_come_from_the_file(self):
        made_up.write(self.path, units={"loss": "bit/byte", "tokens_per_s": "bytes/h"})
        text = summary(RunFile(self.path))
        self.assertTrue(self.fact(text, "loss, last").endswith(" bit/byte"))
        self.assertTrue(self.fact(text, "speed, median").endswith(" bytes/h"))

    def test_time_is_split_by_nested_names(self):
        made_up.write(self.path, steps=10)
        lines = summary(RunFile(self.path)).splitlines()
        rows = {line.split()[0]: line for line in lines[lines.index(next(
            line for line in lines if line.startswith("time by span"))) + 2 :]}
        self.assertEqual(rows["step"].split()[1:], ["20", "2.000", "100.0", "100.0", "100.0", "%"])
        # Two micro-steps of 25 ms each on two ranks; the longest is one micro-step.
        self.assertEqual(rows["model.backward"].split()[1:], ["40", "1.000", "50.00", "25.00", "50.0", "%"])
        depth = {name: len(line) - len(line.lstrip()) for name, line in rows.items()}
        self.assertEqual(depth["model.train"] - depth["step"], 2)
        self.assertEqual(depth["model.backward"] - depth["step"], 4)
        self.assertEqual(depth["reduce.bucket"], depth["step"])  # it overlaps the step but is not a part of it
        self.assertNotIn("%", rows["reduce.bucket"])
        self.assertNotIn("evaluate", rows)

    def test_what_is_inside_a_span_outside_the_step_has_no_share_of_it(self):
        made_up.write(self.path, steps=10)
        position = {name: at for at, (name, _, _) in enumerate(made_up.SPANS)}
        with h5py.File(self.path, "a") as file:
            help_of = file["timings/names"].attrs["help_of"]
            help_of[position["reduce.bucket"]] = "Within evaluate: a part of it."
            file["timings/names"].attrs["help_of"] = help_of
            samples = file["timings/samples"][:]
            samples["name"][np.flatnonzero(samples["name"] == position["reduce.bucket"])[0]] = position["evaluate"]
            file["timings/samples"][:] = samples
        lines = summary(RunFile(self.path)).splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("  evaluate "))
        self.assertTrue(lines[at + 1].startswith("    reduce.bucket "), lines[at + 1])
        self.assertNotIn("%", lines[at] + lines[at + 1])

    def test_runs_that_ended_early(self):
        made_up.write(self.path, steps=3, wanted=100)
        self.assertEqual(self.fact(summary(RunFile(self.path)), "steps"), "3 of 100 (not finished)")
        made_up.write(self.path, steps=0, wanted=100, validation=False, spans=False)
        text = summary(RunFile(self.path))
        self.assertEqual(self.fact(text, "steps"), "0 of 100 (not finished)")
        self.assertEqual(self.fact(text, "validation"), "–")
        self.assertIn("no spans were recorded", text)

    def test_columns_of_different_length_are_cut(self):
        made_up.write(self.path, steps=10)
        with h5py.File(self.path, "a") as file:
            file["steps/loss"].resize((7,))
        run = RunFile(self.path)
        self.assertEqual({len(column) for column in run.steps.values()}, {7})
        self.assertEqual(self.fact(summary(run), "steps"), "7 of 10 (not finished)")

    def test_groups_may_be_absent(self):
        made_up.write(self.path, steps=4)
        with h5py.File(self.path, "a") as file:
            for name in ("deck", "validation", "sessions", "timings", "memory"):
                del file[name]
        self.assertEqual(self.fact(summary(RunFile(self.path)), "steps"), "4")

    def test_losses_that_are_no_numbers(self):
        made_up.write(self.path, steps=16)
        with h5py.File(self.path, "a") as file:
            file["validation/loss"][-1] = np.nan
        text = summary(RunFile(self.path))
        self.assertIn("nan nat/token", self.fact(text, "validation, last"))
        self.assertNotIn("nan", self.fact(text, "validation, best"))
        with h5py.File(self.path, "a") as file:
            file["validation/loss"][:] = np.nan
        self.assertEqual(self.fact(summary(RunFile(self.path)), "validation, best"), "–")

    def test_a_killed_and_continued_run_counts_its_sessions(self):
        made_up.write(self.path, steps=4)
        with h5py.File(self.path, "a") as file:
            del file["sessions/ranks"]
            file["sessions/ranks"] = np.array([2, 4])
        text = summary(RunFile(self.path))
        self.assertEqual(self.fact(text, "ranks"), "2, then 4")
        self.assertEqual(self.fact(text, "sessions"), "2")


class TimingsTest(unittest.TestCase):
    def test_the_parts_add_up_to_the_step(self):
        with tempfile.TemporaryDirectory() as directory:
            run = RunFile(made_up.write(directory + "/run.h5", steps=5))
        steps, parts = timings.step_table(run)
        self.assertEqual(steps.tolist(), [1, 2, 3, 4, 5])
        self.assertEqual(
            [name for name, _ in parts],
            ["data.next", "model.train", "model.forward", "model.backward", "reduce.exposed", "optim.step", "rest"],
        )
        np.testing.assert_allclose(sum(seconds for _, seconds in parts), 0.1)
        # Waits are inside optim.step and are counted once.
        np.testing.assert_allclose(dict(parts)["reduce.exposed"], 0.004)
        np.testing.assert_allclose(dict(parts)["optim.step"], 0.006)
        np.testing.assert_allclose(dict(parts)["rest"], 0.008)
        np.testing.assert_allclose(dict(parts)["model.forward"], 0.025)
        np.testing.assert_allclose(dict(parts)["model.train"], 0.005)

    def test_a_run_that_went_on_with_more_ranks(self):
        with tempfile.TemporaryDirectory() as directory:
            run = RunFile(made_up.write(directory + "/run.h5", steps=5))
        run.samples = run.samples[(run.samples["step"] > 3) | (run.samples["rank"] == 0)]
        for seconds, name in ((0.1, "step"), (0.05, "model.backward"), (0.006, "reduce.bucket")):
            total = next(one for one in timings.totals(run) if one.span.name == name)
            np.testing.assert_allclose((total.per_step, total.total), (seconds, 7 * seconds), err_msg=name)
        np.testing.assert_allclose(sum(seconds for _, seconds in timings.step_table(run)[1]), 0.1)
        text = summary(run)
        self.assertIn("time by span (1 to 2 ranks; ", text)
        rows = {row[0]: row[1:] for row in map(str.split, text.splitlines()) if row}
        self.assertEqual(rows["model.backward"], ["14", "0.3500", "50.00", "25.00", "50.0", "%"])
        self.assertEqual(rows["rest"], ["0.05600", "8.000", "8.0", "%"])

    def test_spans_inside_spans_inside_parts(self):
        """With Muon's spans: the time of a part excludes that of inner parts, and the sum is complete."""
        with tempfile.TemporaryDirectory() as directory:
            run = RunFile(made_up.write(directory + "/run.h5", steps=5, muon=True))
        parts = dict(timings.step_table(run)[1])
        for name, seconds in (("optim.step", 0.003), ("optim.matrices", 0.001), ("matrices.wait", 0.002), ("reduce.exposed", 0.004), ("rest", 0.008)):
            np.testing.assert_allclose(parts[name], seconds, err_msg=name)
        np.testing.assert_allclose(sum(parts.values()), 0.1)
        self.assertNotIn("matrices.travel", parts)
        rows = {row[0]: row for row in map(str.split, summary(run).splitlines()) if row}
        self.assertEqual([rows[name][-2] for name in ("optim.step", "optim.matrices", "matrices.wait")], ["3.0", "1.0", "2.0"])

    def test_a_span_that_fills_the_one_around_it(self):
        with tempfile.TemporaryDirectory() as directory:
            path = made_up.write(directory + "/run.h5", steps=5, muon=True)
            with h5py.File(path, "a") as file:
                rows = file["timings/samples"][:]
                at = {name: rows["name"] == position for position, (name, _, _) in enumerate(made_up.SPANS)}
                for field in ("begin_s", "duration_s"):
                    rows[field][at["optim.matrices"]] = rows[field][at["optim.step"]]
                file["timings/samples"][:] = rows
            parts = dict(timings.step_table(RunFile(path))[1])
        # The waits for buckets are now also inside optim.matrices, the shortest span around them.
        for name, seconds in (("optim.step", 0), ("optim.matrices", 0.004), ("matrices.wait", 0.002), ("reduce.exposed", 0.004), ("rest", 0.008)):
            np.testing.assert_allclose(parts[name], seconds, atol=1e-12, err_msg=name)

    def test_a_session_begins_another_clock(self):
        """Steps 3 and 4 are in a second session, whose clock is half a millisecond ahead."""
        with tempfile.TemporaryDirectory() as directory:
            path = made_up.write(directory + "/run.h5", steps=4)
            with h5py.File(path, "a") as file:
                rows = file["timings/samples"][:]
                rows["begin_s"][rows["step"] >= 3] -= 0.1995
                file["timings/samples"][:] = rows
                for name, column in (("first_step", [1, 1, 3, 3]), ("rank", [0, 1, 0, 1]), ("calendar_s", [1.7e9, 1.7e9, 1.8e9, 1.8e9])):
                    file[f"timings/anchors/{name}"] = column
            parts = dict(timings.step_table(RunFile(path))[1])
        np.testing.assert_allclose(parts["optim.step"], 0.006)
        np.testing.assert_allclose(parts["rest"], 0.008)

    def test_a_part_that_some_steps_lack(self):
        with tempfile.TemporaryDirectory() as directory:
            path = made_up.write(directory + "/run.h5", steps=4)
            with h5py.File(path, "a") as file:
                rows = file["timings/samples"][:]
                position = [name for name, _, _ in made_up.SPANS].index("optim.step")
                rows = rows[~((rows["name"] == position) & (rows["step"] == 2))]
                file["timings/samples"].resize(rows.shape)
                file["timings/samples"][:] = rows
            run = RunFile(path)
        parts = dict(timings.step_table(run)[1])
        np.testing.assert_allclose(parts["optim.step"], [0.006, 0, 0.006, 0.006])
        np.testing.assert_allclose(parts["rest"], [0.008, 0.014, 0.008, 0.008])


class NumberTest(unittest.TestCase):
    def test_numbers(self):
        for value, text in (
            (0, "0"), (7, "7"), (1234567, "1 234 567"), (0.0, "0"), (1.0, "1.000"), (123.456, "123.5"),
            (0.00123456, "0.001235"), (1.5e-7, "1.500e-07"), (40870.2, "40 870"), (99.99999, "100.0"), (float("nan"), "nan"),
        ):
            self.assertEqual(number(value), text)

    def test_units(self):
        self.assertEqual(with_unit(0.25, "s"), "250.0 ms")
        self.assertEqual(with_unit(2.5, "s"), "2.500 s")
        self.assertEqual(with_unit(2.5e12, "FLOP/s"), "2.500 TFLOP/s")
        self.assertEqual(with_unit(2.5, "1"), "2.500")
        self.assertEqual(size(512, "byte"), "512 B")
        self.assertEqual(size(3 * 2**30, "byte"), "3.00 GiB")


if __name__ == "__main__":
    unittest.main()
