# SPDX-License-Identifier: Apache-2.0
import os
import re
import tempfile
import unittest

import h5py
import numpy as np

import made_up
from cli_test import png_size, run
from trireme_postproc.export import step_times
from trireme_postproc.measures import ranks_of_steps
from trireme_postproc.run_file import RunFile
from trireme_postproc.scaling import points_of, series


class ScalingTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def run_on(self, ranks, batch, speed, name=None, **deck):
        """A run of eight steps: three slow ones, then steps with `speed` tokens/s."""
        name = name or f"r{ranks}b{batch}"
        path = f"{self.directory}/{name}"
        os.mkdir(path)
        made_up.write(path + "/run.h5", steps=8, spans=False)
        with h5py.File(path + "/run.h5", "a") as file:
            file["sessions/ranks"][:] = ranks
            file["sessions/machine"] = [" ".join(f"node{host}" for host in range((ranks + 1) // 2))]
            file["deck"].attrs.update({"batch.sequences": str(batch), "model.context": "16", "run.name": name, **deck})
            file["steps/tokens_per_s"][:] = [1.0, 2.0, 3.0] + [speed - 4, speed + 4, speed, speed - 2, speed + 2]
            file["steps/seconds"][:] = 16 * batch / file["steps/tokens_per_s"][:]
        return path

    def rows(self, text, title):
        lines = text.splitlines()
        start = lines.index(title)
        rows = []
        for line in lines[start + 2:]:
            if not line:
                return rows
            rows.append(re.split(r"  +", line.strip()))
        return rows

    def test_strong_scaling(self):
        paths = [self.run_on(ranks, 16, speed) for ranks, speed in ((4, 3000.0), (1, 1000.0), (2, 1800.0))]
        code, out, err = run("scaling", *paths)
        self.assertEqual((code, err), (0, ""))
        rows = self.rows(out, "strong scaling, 16 sequences per step")
        self.assertEqual([row[:9] for row in rows], [
            ["r1b16", "1", "1", "16", "1 000 tokens/s", "998.0 … 1 002", "5", "1.00", "100.0 %"],
            ["r2b16", "2", "1", "16", "1 800 tokens/s", "1 798 … 1 802", "5", "1.80", "90.0 %"],
            ["r4b16", "4", "2", "16", "3 000 tokens/s", "2 998 … 3 002", "5", "3.00", "75.0 %"],
        ])
        self.assertNotIn("weak", out)

    def test_weak_scaling(self):
        # Runs on 2, 4 and 8 ranks. The reference is the run on 2 ranks.
        paths = [self.run_on(ranks, 4 * ranks, speed) for ranks, speed in ((2, 2000.0), (4, 3800.0), (8, 6000.0))]
        found = series([RunFile(path) for path in paths])
        self.assertEqual([one.title() for one in found], ["weak scaling, 4 sequences per step and rank"])
        self.assertEqual([round(found[0].efficiency(point), 9) for point in found[0].points], [1.0, 0.95, 0.75])

    def test_both_and_repetitions(self):
        paths = [self.run_on(1, 8, 1000.0), self.run_on(1, 8, 1200.0, "again"), self.run_on(2, 8, 1760.0), self.run_on(2, 16, 2200.0)]
        found = series([RunFile(path) for path in paths])
        self.assertEqual([one.kind for one in found], ["strong", "weak"])
        # The reference is the median of the two runs on one rank.
        self.assertEqual([round(found[0].efficiency(point), 3) for point in found[0].points], [0.909, 1.091, 0.8])
        self.assertEqual(round(found[1].efficiency(found[1].points[-1]), 9), 1.0)
        picture = self.directory + "/scaling.png"
        code, out, _ = run("scaling", *paths, "--png", picture)
        self.assertEqual((code, out.splitlines()[-1]), (0, f"picture: {picture}"))
        self.assertGreater(png_size(picture)[0], 1500)

    def test_a_run_that_went_on_with_more_ranks(self):
        path = self.run_on(1, 8, 1000.0)
        with h5py.File(path + "/run.h5", "a") as file:
            for name, values in (("ranks", [1, 2]), ("first_step", [1, 5]), ("machine", ["a", "a b"]),
                                 ("deck", ["run.seed: 1\nbatch.sequences: 8\n", "batch.sequences: 16\n"])):
                if name in file["sessions"]:
                    del file[f"sessions/{name}"]
                file[f"sessions/{name}"] = values
            file["steps/tokens_per_s"][:] = [1, 1, 1, 500, 1, 1, 1, 900]
            file["steps/seconds"][:] = 16 * np.repeat([8, 16], 4) / file["steps/tokens_per_s"][:]
        points = points_of(RunFile(path), "x")
        self.assertEqual([(point.ranks, point.hosts, point.batch, point.speed.median, point.speed.count) for point in points],
                         [(1, 1, 8, 500.0, 1), (2, 2, 16, 900.0, 1)])
        self.assertIn("90.0 %", run("scaling", path)[1])

    def test_a_batch_that_changes_during_the_run(self):
        for context in ("16", "0"):  # 0: that of the preset
            path = self.run_on(1, 8, 1000.0, "context" + context, **{"model.context": context})
            with h5py.File(path + "/run.h5", "a") as file:
                file["steps/seconds"][:] = 16 * np.repeat([8, 32], (5, 3)) / file["steps/tokens_per_s"][:]
            points = points_of(RunFile(path), "x")
            self.assertEqual([(point.ranks, point.batch, point.speed.median, point.speed.count) for point in points],
                             [(1, 8, 1000.0, 2), (1, 32, 1000.0, 3)])

    def test_a_start_that_began_before_an_earlier_one(self):
        path = self.run_on(1, 8, 1000.0)
        began = ["2026-01-01 00:00:00 +0000", "2026-01-01 01:00:00 +0000", "2026-01-01 02:00:00 +0000", "2026-01-01 03:00:00 +0000"]
        with h5py.File(path + "/run.h5", "a") as file:
            for name, values in (("ranks", [2, 1, 1, 4]), ("first_step", [1, 5, 7, 3]), ("date_and_time", began),
                                 *((name, ["x"] * 4) for name in file["sessions"] if name not in ("ranks", "first_step", "date_and_time"))):
                if name in file["sessions"]:
                    del file[f"sessions/{name}"]
                file[f"sessions/{name}"] = values
            file["steps/seconds"][:] = 1
        found = RunFile(path)
        self.assertEqual(ranks_of_steps(found).tolist(), [2, 2, 4, 4, 4, 4, 4, 4])
        self.assertEqual([step_times(found)(step) - 1767225600 for step in range(1, 9)], [1, 2, *range(10801, 10807)])

    def test_a_run_that_recorded_few_steps(self):
        path = self.run_on(1, 8, 1000.0)
        with h5py.File(path + "/run.h5", "a") as file:
            file["steps/seconds"][:], file["steps/tokens_per_s"][:] = 1, 128
            file["sessions/first_step"], file["sessions/date_and_time"] = [1], ["2026-01-01 00:00:00 +0000"]
        made_up.keep_rows(path + "/run.h5", (2, 6, 8))
        self.assertEqual([point.speed.count for point in points_of(RunFile(path), "x")], [2])  # steps 6 and 8; step 2 is warm-up
        times = step_times(RunFile(path))
        self.assertEqual([times(step) - 1767225600 for step in range(10)], list(range(10)))

    def test_the_times_of_steps_at_a_second_start(self):
        path = self.run_on(1, 8, 1000.0)
        with h5py.File(path + "/run.h5", "a") as file:
            file["steps/seconds"][:] = 1
            del file["sessions/ranks"], file["sessions/machine"]
            file["sessions/first_step"] = [1, 5]
            file["sessions/date_and_time"] = ["2026-01-01 00:00:00 +0000", "2026-01-01 01:00:00 +0000"]
        made_up.keep_rows(path + "/run.h5", (3, 6, 8))
        times = step_times(RunFile(path))
        self.assertEqual([times(step) - 1767225600 for step in range(9)], [0, 1, 2, 3, 4, 3601, 3602, 3603, 3604])

    def refused(self, *paths):
        code, out, err = run("scaling", *paths)
        self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
        return err

    def test_refuses(self):
        first = self.run_on(1, 8, 1000.0)
        self.assertIn("no two runs have the same batch.sequences", self.refused(first))
        self.assertIn("r2b24: 2 ranks, 24 sequences", self.refused(first, self.run_on(2, 24, 1.0)))
        self.assertIn(": 1 rank, 8 sequences", self.refused(first))
        self.assertIn("model.layers is 9, and 4 in", self.refused(first, self.run_on(2, 8, 1.0, **{"model.layers": "9"})))
        other = self.run_on(4, 8, 1.0)
        with h5py.File(other + "/run.h5", "a") as file:
            file["steps/tokens_per_s"].attrs["units"] = "bytes/h"
        self.assertIn("bytes/h", self.refused(first, other))
        with h5py.File(other + "/run.h5", "a") as file:
            del file["sessions"]
        self.assertIn("does not state its number of ranks", self.refused(first, other))
        with h5py.File(other + "/run.h5", "a") as file:
            for column in file["steps"].values():
                column.resize((0,))
        self.assertIn("has no steps", self.refused(other))


if __name__ == "__main__":
    unittest.main()
