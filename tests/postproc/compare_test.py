# SPDX-License-Identifier: Apache-2.0
import os
import re
import statistics
import tempfile
import unittest

import h5py
import numpy as np

import made_up
from cli_test import png_size, run
from pictures import drawn_texts
from trireme_postproc.compare_picture import plot_compare
from trireme_postproc.measures import Spread, ranks_of_steps, window_before
from trireme_postproc.run_file import RunFile
from trireme_postproc.smoothing import common_window, smooth_curve
from trireme_postproc.style import groups


class CompareTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.first, self.second = (self.run_directory(name) for name in "ab")

    def run_directory(self, name, **options):
        path = f"{self.directory}/{name}"
        os.makedirs(path, exist_ok=True)
        made_up.write(path + "/run.h5", **{"steps": 40, "sets": {"code": {"step": [0, 40], "loss": [4.0, 2.0]}}, **options})
        return path

    def changed(self, path, **factors):
        """Multiplies columns of /steps."""
        with h5py.File(path + "/run.h5", "a") as file:
            for name, factor in factors.items():
                file[f"steps/{name}"][:] = file[f"steps/{name}"][:] * factor
        return path

    def rows(self, text, title):
        """Cells of the rows below a title."""
        lines = text.splitlines()
        start = next(at for at, line in enumerate(lines) if line.startswith(title))
        rows = []
        for line in lines[start + 2:]:
            if not line:
                return rows
            rows.append(re.split(r"  +", line.strip()))
        return rows

    def compared(self, *paths):
        code, out, err = run("compare", *paths)
        self.assertEqual((code, err), (0, ""))
        return out

    def test_the_losses_of_different_tokenizers_are_compared_in_bytes(self):
        for path, tokenizer, factor in ((self.first, "1", 1.0), (self.second, "2", 0.5)):
            with h5py.File(path + "/run.h5", "a") as file:
                file.attrs["tokenizer_hash"] = tokenizer
                for table in ("steps", "validation"):
                    file[f"{table}/bits_per_byte"] = np.full(len(file[f"{table}/loss"]), 3 * factor)
                    file[f"{table}/bits_per_byte"].attrs["units"] = "bit/byte"
        text = self.compared(self.first, self.second)
        for name in ("steps", "tokens"):
            rows = self.rows(text, f"loss after the same number of {name}")
            self.assertEqual((rows[0][2], rows[1][1], rows[1][-1]), ("3.000 bit/byte", "1.500 bit/byte", "0.5000"))
        rows = self.rows(text, "evaluated at the last common step")
        self.assertEqual([row[0] for row in rows[::2]], ["validation (step 40)", "set code (step 40)"])
        self.assertEqual([row[-1] for row in rows[1::2]], ["0.5000", "1.000"])
        runs = [RunFile(path) for path in (self.first, self.second)]
        self.assertIn("loss [bit/byte]", [text for text, _ in drawn_texts(plot_compare, runs, self.directory + "/in-bytes.png")[0]])
        with h5py.File(self.second + "/run.h5", "a") as file:
            file.attrs["tokenizer_hash"] = "unknown"
        self.assertNotIn("bit/byte", self.rows(self.compared(self.first, self.second), "loss after the same number of steps")[0][2])

    def test_ratios(self):
        self.changed(self.second, tokens_per_s=0.5, seconds=2, loss=1.25, exposed_s=6)
        with h5py.File(self.second + "/run.h5", "a") as file:
            file["evaluation/code/loss"][1] = 2.5
        text = self.compared(self.first, self.second)
        with h5py.File(self.first + "/run.h5") as file:
            columns = {name: file[f"steps/{name}"][:].tolist() for name in ("loss", "seconds", "tokens_per_s")}
        speeds = self.rows(text, "speed, over the recorded steps")
        median = statistics.median(columns["tokens_per_s"])
        low, _, high = statistics.quantiles(columns["tokens_per_s"], n=4, method="inclusive")
        shown = [f"{value:,.0f}".replace(",", " ") for value in (median, low, high)]
        self.assertEqual(speeds[0], ["speed", "made-up (a)", f"{shown[0]} tokens/s", f"{shown[1]} … {shown[2]}", "40", "1.000"])
        self.assertEqual(speeds[1][-1], "0.5000")
        by_name = dict(zip((row[0] for row in speeds[::2]), speeds[1::2]))
        self.assertEqual(by_name["step"][-1], "2.000")
        self.assertEqual(by_name["exposed communication (rank 0)"][-1], "6.000")
        # 6 times 4 ms in a step that takes twice as long: three times the share.
        share = statistics.median(100 * 0.024 / (2 * seconds) for seconds in columns["seconds"])
        self.assertEqual(by_name["exposed share of the step (rank 0)"][1], f"{share:.2f} %")
        self.assertEqual(by_name["exposed share of the step (rank 0)"][-1], "3.000")
        for title in ("loss after the same number of steps", "loss after the same number of tokens"):
            losses = self.rows(text, title)
            self.assertEqual([row[-1] for row in losses], ["1.000", "1.250"] * 4)
            self.assertEqual(losses[-2][2], f"{statistics.median(columns['loss'][38:]):.3f} nat/token")  # 5 % of 40 steps
        self.assertEqual([row[0] for row in losses[::2]], ["tokens 40 960", "tokens 81 920", "tokens 122 880", "tokens 163 840"])
        self.assertIn("first differ at step 1\n", text)
        self.assertEqual(self.rows(text, "evaluated at the last common step")[2:],
                         [["set code (step 40)", "made-up (a)", "2.000 nat/token", "1", "1.000"], ["made-up (b)", "2.500 nat/token", "1", "1.250"]])
        spans = self.rows(text, "time of the median step by span")
        part = f"{20 * statistics.median(columns['seconds']):.3f}"  # 2 % of the median step
        whole = f"{1e3 * statistics.median(columns['seconds']):.2f}"
        self.assertEqual(spans[0], ["data.next", "made-up (a)", f"{part} ms", f"{part} … {part}", "40", "1.000"])
        self.assertEqual(spans[-2][:3], ["step", "made-up (a)", f"{whole} ms"])
        self.assertEqual((spans[1][-1], spans[-1][-1]), ("2.000", "2.000"))

    def test_equal_runs_and_different_decks(self):
        with h5py.File(self.second + "/run.h5", "a") as file:
            file["deck"].attrs["model.layers"] = "6"
            file["deck"].attrs["run.seed"] = "x" * 100
            file.attrs["machine"] = "node08"
        text = self.compared(self.first, self.second)
        self.assertIn("to the bit, in all 40 common steps", text)
        self.changed(self.first, loss=np.nan)
        self.changed(self.second, loss=np.nan)
        self.assertIn("to the bit, in all 40 common steps", self.compared(self.first, self.second))
        self.assertEqual(self.rows(text, "keys of the deck that differ"), [["model.layers", "4", "6"], ["run.seed", "–", "x" * 59 + "…"]])
        self.assertEqual(self.rows(text, "facts that differ"), [["machine", "node07", "node08"]])

    def test_one_step_in_common(self):
        self.run_directory("c", steps=1)
        with h5py.File(self.second + "/run.h5", "a") as file, h5py.File(self.directory + "/c/run.h5") as short:
            file["steps/loss"][0] = short["steps/loss"][0]
        text = self.compared(self.directory + "/c", self.second)
        self.assertIn("in the only common step\n", text)
        self.assertEqual([row[0] for row in self.rows(text, "loss after the same number of tokens")], ["tokens 4 096", "made-up (b)"])

    def test_share_of_the_ceiling(self):
        for path, ceiling in ((self.first, 1.0e12), (self.second, 0.5e12)):
            with h5py.File(path + "/run.h5", "a") as file:
                file["timings"].attrs["ceiling_flops_per_s"] = ceiling
                file["steps/flops_per_s"][:] = 0.25e12  # for two ranks
        rows = [row for row in self.rows(self.compared(self.first, self.second), "speed") if "ceiling" in row[0] or row[-2] == "40"]
        at = next(at for at, row in enumerate(rows) if row[0] == "share of ceiling")
        self.assertEqual((rows[at][2], rows[at + 1][1], rows[at + 1][-1]), ("12.50 %", "25.00 %", "2.000"))

    def test_runs_of_other_lengths_and_units(self):
        for name, options in (("short", {"steps": 7, "wanted": 40}), ("empty", {"steps": 0, "validation": False, "spans": False, "sets": None}),
                              ("bytes", {"units": {"loss": "bit/byte"}}), ("single", {"steps": 1, "spans": False})):
            with self.subTest(name):
                other = self.run_directory(name, **options)
                for paths in ((self.first, other), (other, self.first)):
                    text = self.compared(*paths)
                    self.assertIn("speed, over the recorded steps", text)
                self.assertEqual("other unit" in text, name == "bytes")

    def test_pictures(self):
        picture = self.directory + "/compare.png"
        empty = self.run_directory("empty", steps=0, validation=False, spans=False)
        for paths in ((self.first, self.changed(self.second, loss=1.5), empty), (empty, self.first)):
            code, out, err = run("compare", *paths, "--png", picture)
            self.assertEqual((code, err), (0, ""))
            self.assertTrue(out.endswith(f"picture: {picture}\n"))
            self.assertGreater(png_size(picture)[0], 1500)

    def test_pictures_show_names_as_they_are(self):
        strange = self.run_directory("strange")
        with h5py.File(strange + "/run.h5", "a") as file:
            file["deck"].attrs["run.name"] = "_a$\\frac{$"
        for words in (("compare", self.first, strange, "--png"), ("plot", strange, "--output"), ("timeline", strange, "--step", "2", "--png")):
            code, _, err = run(*words, self.directory + "/named.png")
            self.assertEqual((code, err), (0, ""), words)
        runs = [RunFile(self.first), RunFile(strange)]
        texts = {text for text, _ in drawn_texts(plot_compare, runs, self.directory + "/named.png")[0]}
        self.assertIn(r" _a\$\frac{\$", texts)

    def test_a_difference_in_one_step_is_told(self):
        for name in (self.first, self.second):
            made_up.write(name + "/run.h5", steps=100)
        with h5py.File(self.second + "/run.h5", "a") as file:
            for step, factor, said in ((50, 1.0, "no difference"), (50, 1.065, "largest difference: 6.5e-02 of the loss")):
                file["steps/loss"][step] *= factor
                file.flush()
                texts = drawn_texts(plot_compare, [RunFile(self.first), RunFile(self.second)], self.directory + "/c.png")[0]
                self.assertIn(said, [text for text, _ in texts])

    def test_refuses(self):
        code, _, err = run("compare", self.first, self.first + "/run.h5")
        self.assertEqual(code, 2)
        self.assertIn("is named twice", err)
        made_up.write(self.second + "/run.h5", version=(3, 0))
        code, _, err = run("compare", self.first, self.second)
        self.assertEqual((code, err.count("\n")), (2, 1))
        self.assertIn("b/run.h5: is format version 3.0", err)


class MeasuresTest(unittest.TestCase):
    def test_spread(self):
        spread = Spread([4.0, 1.0, 2.0, 3.0, float("nan"), 5.0], "s")
        self.assertEqual((spread.low, spread.median, spread.high, spread.count), (2.0, 3.0, 4.0, 5))
        self.assertEqual(Spread([6.0], "s").ratio(spread), 2.0)
        for other in (Spread([], "s"), Spread([1.0], "m"), Spread([0.0], "s")):
            self.assertTrue(np.isnan(spread.ratio(other)))

    def test_long_curves_are_thinned(self):
        self.assertEqual(groups([1, 9, 2, 8, 3], 2).tolist(), [5.0, 5.0, 3.0])
        self.assertEqual(groups([1, 2], 1).tolist(), [1.0, 2.0])
        x, y = smooth_curve(np.arange(59), np.arange(59) ** 2, common_window([np.arange(59)]))
        self.assertEqual(y.tolist(), [value**2 for value in range(59)])  # short curves are not smoothed
        x, y = smooth_curve(np.arange(40000), np.where(np.arange(40000) == 20000, 1e9, np.arange(40000)), common_window([np.arange(40000)]))
        self.assertEqual(len(x), len(y))
        self.assertLessEqual(len(x), 1500)
        np.testing.assert_allclose(y, x, atol=27)  # the width of a group, also at its ends; the spike is removed
        self.assertEqual(len(smooth_curve(x[:0], y[:0], common_window([x]))[0]), 0)

    def test_windows(self):
        places, values = np.array([2.0, 4.0, 6.0, 8.0]), np.array([10, 20, 30, 40])
        self.assertEqual(window_before(places, values, 6, 3).tolist(), [20, 30])
        self.assertEqual(window_before(places, values, 7.5, 0.1).tolist(), [30])
        self.assertEqual(window_before(places, values, 1, 0.5).tolist(), [])

    def test_ranks_of_a_run_that_went_on_with_others(self):
        with tempfile.TemporaryDirectory() as directory:
            path = made_up.write(directory + "/run.h5", steps=4)
            with h5py.File(path, "a") as file:
                del file["sessions/ranks"]
                file["sessions/ranks"], file["sessions/first_step"] = np.array([2, 4]), np.array([1, 3])
            self.assertEqual(ranks_of_steps(RunFile(path)).tolist(), [2, 2, 4, 4])


if __name__ == "__main__":
    unittest.main()
