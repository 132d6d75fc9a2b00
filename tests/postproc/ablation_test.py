# SPDX-License-Identifier: Apache-2.0
import os
import tempfile
import unittest

import h5py
import numpy as np

from cli_test import png_size, run


class AblationTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = os.path.join(temporary.name, "made_up.h5")
        with h5py.File(self.path, "w") as file:
            file.attrs.update({"filetype": "trireme-ablation", "version": (1, 0), "deck": "made_up.yaml", "ranks": "2"})
            self.row(file, "overlap", 1, ("overlap of gradients", "about 1.3 times", 1.3, "step", "s"), [0.30, 0.30, 0.40, 0.40], [0.20, 0.20, 0.20, 0.20])
            self.row(file, "bytes", 0, ("sharded optimizer", "", float("nan"), "optimizer state per rank", "B"), [8192], [2048])

    def row(self, file, key, position, texts, off, on):
        group = file.create_group(key)
        group.attrs.update(dict(zip(("title", "claim", "claimed_ratio", "quantity", "unit"), texts)))
        group.attrs.update({"off": "key=false", "on": "key=true", "position": position})
        for side, values in (("off", off), ("on", on)):
            group[side] = np.array(values, dtype=float)
            group[f"{side}_turn"] = np.arange(len(values)) // 2

    def test_table_and_picture(self):
        code, out, _ = run("ablation", self.path)
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines(), [
            "deck: made_up.yaml, ranks: 2", "",
            "| optimization | what the literature claims | off | on | ratio | spread |",
            "|---|---|---|---|---|---|",
            "| sharded optimizer: optimizer state per rank | – | key=false: 8.00 KiB | key=true: 2.00 KiB | 4.00 | – |",
            "| overlap of gradients: step | about 1.3 times | key=false: 350.0 ms | key=true: 200.0 ms | 1.75 | 1.62 … 1.88 |"])
        self.assertGreater(min(png_size(self.path[:-3] + ".png")), 300)

    def test_refuses_another_file(self):
        with h5py.File(self.path, "a") as file:
            file.attrs["filetype"] = "trireme-run"
        code, _, err = run("ablation", self.path)
        self.assertEqual(code, 2)
        self.assertIn("its filetype is not 'trireme-ablation'", err)


if __name__ == "__main__":
    unittest.main()
