# SPDX-License-Identifier: Apache-2.0
"""`jobs/ablation.sh`: its rows, what it leaves out and what it refuses; not how fast anything is."""
import os
import subprocess
import unittest

import h5py
from harness import DECK, HERE, TIMEOUT_S, TrainingTest

SCRIPT = os.path.join(HERE, "..", "..", "jobs", "ablation.sh")


class Ablation(TrainingTest):
    def ablate(self, output, *overrides, **environment):
        return subprocess.run(["bash", SCRIPT, DECK, self.path(output), f"data.train.text=[{self.text}]", *overrides],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              env={**os.environ, "RANKS": "2", "TURNS": "1", "STEPS": "4", **environment})

    def test_rows(self):
        done = self.ablate("out", "parallel.reduction=tree", "parallel.logical_shards=2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with h5py.File(self.path("out/ablation.h5"), "r") as file:
            self.assertEqual((file.attrs["filetype"], file.attrs["ranks"], file.attrs["turns"]), ("trireme-ablation", 2, 1))
            names = [name.decode() for name in file["ablation/optimization"][:]]
            units = [name.decode() for name in file["ablation/unit"][:]]
            off, on, ratio = (file[f"ablation/{name}"][:] for name in ("off", "on", "ratio"))
            low, high = file["ablation/lowest_ratio"][:], file["ablation/highest_ratio"][:]
        self.assertEqual(len(set(names)), len(names))
        for row in zip(off, on, ratio, low, high):
            self.assertGreater(min(row), 0)
            self.assertAlmostEqual(row[0] / row[1], row[2])
            self.assertLessEqual(row[3], row[2])
            self.assertLessEqual(row[2], row[4])
        state = units.index("byte")
        self.assertEqual(off[state], 2 * on[state], "two ranks halve the optimizer's state")
        with open(self.path("out/ablation.md"), encoding="utf-8") as file:
            text = file.read()
        for name in names:
            self.assertIn(f"| {name} |", text)
        self.assertIn("ranks: 2", text)

    def test_refuses(self):
        os.mkdir(self.path("out"))
        done = self.ablate("out")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("is there already", done.stderr)
        self.assertNotEqual(self.ablate("few", STEPS="3").returncode, 0)


if __name__ == "__main__":
    unittest.main()
