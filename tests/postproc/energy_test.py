# SPDX-License-Identifier: Apache-2.0
"""Energy per token in all views of a run. Nothing is shown for a run without counters."""
import os
import tempfile
import time
import unittest

import h5py
import numpy as np

import made_up
from cli_test import run
from trireme_postproc.measures import energy_per_token
from trireme_postproc.run_file import Column, RunFile


class EnergyTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def run_on(self, ranks, steps=8, **joules):
        """A run with steps of 4096 tokens and the given joules in each."""
        path = f"{self.directory}/{ranks}"
        os.mkdir(path)
        made_up.write(path + "/run.h5", steps=steps)
        with h5py.File(path + "/run.h5", "a") as file:
            file["sessions/ranks"][:] = ranks
            file["deck"].attrs.update({"batch.sequences": "16", "run.name": f"on{ranks}"})
            for name, value in joules.items():
                file[f"steps/{name}"] = np.full(steps, value)
                file[f"steps/{name}"].attrs["units"] = "J"
        return path

    def shown(self, verb, *paths):
        code, out, err = run(verb, *paths)
        self.assertEqual((code, err), (0, ""))
        return out

    def test_energy_is_shown_by_every_verb_that_shows_speed(self):
        paths = [self.run_on(1, cpu_joules=8.192, gpu_joules=np.nan), self.run_on(2, cpu_joules=8.192, gpu_joules=16.384)]
        first, second = "0.002000 J/token", "0.006000 J/token"
        self.assertIn(first, self.shown("summary", paths[0]))
        for verb in ("compare", "scaling"):
            out = self.shown(verb, *paths)
            self.assertIn(first, out)
            self.assertIn(second, out)
        self.shown("report", *paths, "-o", self.directory + "/report.html")
        with open(self.directory + "/report.html", encoding="utf-8") as file:
            self.assertIn("Energy of CPUs, memory and GPUs", file.read())

    def test_a_counter_that_advances_every_tenth_step_gives_the_same_energy(self):
        joules = np.zeros(80)
        joules[9::10] = 81.92
        path = self.run_on(1, steps=80, cpu_joules=np.nan, gpu_joules=joules)
        self.assertIn("0.002000 J/token", self.shown("summary", path))

    def test_rows_without_a_counter_count_neither_energy_nor_tokens(self):
        cpu, gpu = np.full(80, 4.096), np.full(80, 8.192)
        cpu[:30], gpu[10:20], cpu[10:20] = np.nan, np.nan, np.nan
        shown = energy_per_token(RunFile(self.run_on(1, steps=80, cpu_joules=cpu, gpu_joules=gpu)))
        known = shown.values[np.isfinite(shown.values)]
        self.assertAlmostEqual(known[0], 0.002)
        self.assertAlmostEqual(known[-1], 0.003)
        self.assertTrue(np.all(np.diff(known) > -1e-12), known)

    def test_a_long_run_takes_no_minutes(self):
        path = self.run_on(1, steps=8, cpu_joules=1.0)
        found, count = RunFile(path), 300_000
        for name in ("cpu_joules", "tokens_per_s", "seconds"):
            found.steps[name] = Column(np.full(count, 0.5), found.steps[name].unit)
        found.steps["gpu_joules"] = Column(np.full(count, np.nan), "J")
        began = time.process_time()
        shown = energy_per_token(found).values
        self.assertLess(time.process_time() - began, 10)
        self.assertEqual(shown[1:].tolist(), [2.0] * (count - 1))

    def test_ranks_that_use_least_and_most_are_named(self):
        """The record has three ranks and intervals of 4 steps. Rank 1 reports nothing at first."""
        path = self.run_on(3, gpu_joules=np.full(8, 1.0))
        with h5py.File(path + "/run.h5", "a") as file:
            rows = [(1, 4, 0, 100), (1, 4, 1, np.nan), (1, 4, 2, 300), (5, 8, 0, 100), (5, 8, 1, 200), (5, 8, 2, 300)]
            for name, values in zip(("first_step", "last_step", "rank", "gpu_joules"), zip(*rows)):
                file[f"energy/{name}"] = values
            file["energy/cpu_joules"] = np.full(len(rows), np.nan)
            for name in file["energy"]:
                file[f"energy/{name}"].attrs["units"] = "J"
        self.assertIn("25 J/step (rank 0) to 75 J/step (rank 2)", self.shown("summary", path))

    def test_no_counter_or_one_that_never_advances_is_no_energy(self):
        paths = [self.run_on(1, cpu_joules=np.nan, gpu_joules=np.nan), self.run_on(2), self.run_on(4, cpu_joules=0.0, gpu_joules=np.nan)]
        for verb, given in (("summary", paths[:1]), ("summary", paths[2:]), ("compare", paths), ("scaling", paths)):
            self.assertNotIn("energy", self.shown(verb, *given).replace("cpu_joules", ""))


if __name__ == "__main__":
    unittest.main()
