# SPDX-License-Identifier: Apache-2.0
import json
import os
import tempfile
import unittest

import h5py
import numpy as np

from cli_test import png_size, run
from made_up import SECONDS, write
from pictures import drawn_texts, problems
from trireme_postproc.ablation import Ablation
from trireme_postproc.ablation_picture import plot_ablation
from trireme_postproc.ablation_record import FIELDS, gather


class AblationTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = os.path.join(temporary.name, "made_up.h5")
        with h5py.File(self.path, "w") as file:
            file.attrs.update({"filetype": "trireme-ablation", "version": (1, 0), "deck": "made_up.yaml", "ranks": "2"})
            self.row(file, "overlap", 1, ("overlap of gradients", "about 1.3 times", 1.3, "step", "s"), [0.30, 0.30, 0.40, 0.40], [0.20, 0.20, 0.20, 0.20])
            self.row(file, "bandwidth", 2, ("padding", "20–30 % more bandwidth", 1.25, "bandwidth of reductions", "B/s"), [2e9, 4e9], [3e9, 6e9])
            self.row(file, "allocations", 3, ("memory pool", "", float("nan"), "allocations of a step", "1"), [24, 24, 24, 24], [0, 0, 0, 0])
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
            "| overlap of gradients: step | about 1.3 times | key=false: 350.0 ms | key=true: 200.0 ms | 1.75 | 1.62 … 1.88 |",
            "| padding: bandwidth of reductions | 20–30 % more bandwidth | key=false: 3.00 GB/s | key=true: 4.50 GB/s | 1.50 | – |",
            "| memory pool: allocations of a step | – | key=false: 24.00 | key=true: 0 | – | – |"])
        self.assertGreater(min(png_size(self.path[:-3] + ".png")), 300)

    def test_texts_of_the_picture_can_be_read(self):
        """With one row in each panel, and with many."""
        def picture():
            return problems(plot_ablation, Ablation(self.path), self.path[:-3] + ".png")

        self.assertEqual(picture(), [])
        with h5py.File(self.path, "a") as file:
            for at in range(10):
                ratio = 10.0 ** (at / 4)
                self.row(file, f"steps{at}", 10 + at, (f"a long name of an optimization, {at}", "", [1.3, float("nan")][at % 2], "step", "s"), [ratio] * 4, [1.0] * 4)
                self.row(file, f"bytes{at}", 20 + at, (f"another long name of one, {at}", "8 times", ratio, "bytes of something", "B"), [ratio], [1.0])
        self.assertEqual(picture(), [])

    def test_a_file_without_a_ratio(self):
        with h5py.File(self.path, "a") as file:
            for name in ("overlap", "bandwidth", "bytes"):
                del file[name]
        texts = [text for text, _ in drawn_texts(plot_ablation, Ablation(self.path), self.path[:-3] + ".png")[0]]
        self.assertEqual(texts, ["no row has a ratio"])

    def test_table_of_communication_where_runs_have_spans(self):
        with h5py.File(self.path, "a") as file:
            file["overlap"].attrs.update({"compute_s": [0.2, 0.1], "communication_s": [0.05, 5e-5], "exposed_share": [0.25, 0.001]})
        code, out, _ = run("ablation", self.path)
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines()[-3:], [
            "| runs | off: communication / compute | exposed | on: communication / compute | exposed |",
            "|---|---|---|---|---|",
            "| overlap of gradients | 50.00 ms / 200.0 ms = 0.250 | 25.0 % | 50.0 µs / 100.0 ms = 5.00e-04 | 0.1 % |"])

    def test_refuses_another_file(self):
        with h5py.File(self.path, "a") as file:
            file.attrs["filetype"] = "trireme-run"
        code, _, err = run("ablation", self.path)
        self.assertEqual(code, 2)
        self.assertIn("its filetype is not 'trireme-ablation'", err)

    def test_refuses_other_versions(self):
        for version, said in (((2, 0), "version 2.0, this program reads 1.x"), (2, "version 2, this program"), ("new", "version new, this program"),
                              (np.bytes_(b"1.x"), "version 1.x, this program"), (np.zeros((2, 2), dtype=int), "version [0, 0].[0, 0], this program"),
                              ((), "version , this program"), (h5py.Empty("i8"), "has no version"), (None, "has no version")):
            with h5py.File(self.path, "a") as file:
                del file.attrs["version"]
                if version is not None:
                    file.attrs["version"] = version
            with self.subTest(version=version):
                code, out, err = run("ablation", self.path)
                self.assertEqual((code, out, err.count("\n")), (2, "", 1))
                self.assertIn(said, err)
            with h5py.File(self.path, "a") as file:
                file.attrs["version"] = (1, 0)

    def test_reads_a_version_that_is_a_scalar(self):
        with h5py.File(self.path, "a") as file:
            file.attrs["version"] = 1
        self.assertEqual(run("ablation", self.path)[0], 0)


class GatherTest(unittest.TestCase):
    """Runs with bucket 0 of 1000 elements without padding, and bucket 1 of 3000 of which 1000 are padding if padding is on."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.output = os.path.join(self.folder, "ablation.h5")
        for side, elements in (("off", 2000), ("on", 3000)):
            os.makedirs(os.path.join(self.folder, "pair", f"{side}-1"))
            path = write(os.path.join(self.folder, "pair", f"{side}-1", "run.h5"), steps=5)
            with h5py.File(path, "a") as file:
                file["deck"].attrs["parallel.gradient_dtype"] = "bf16"
                file["memory"].attrs["gradients"] = 4 * (1000 + elements)
                file["steps/allocations"][:] = [9, 8, 7, elements, elements + 1]
                for name, values in (("first_step", [1, 1]), ("bucket", [0, 1]), ("elements", [1000, elements]), ("padding", [0, elements - 2000])):
                    file[f"buckets/{name}"] = np.array(values)

    def gathered(self, quantity, source="pair"):
        """The values of the row for a quantity: off and on."""
        fields = {"key": "row", "source": source, "quantity": quantity}
        with open(os.path.join(self.folder, "rows.tsv"), "w", encoding="utf-8") as file:
            file.write("\t".join(fields.get(name, "") for name in FIELDS) + "\n")
        gather(self.folder, self.output, {})
        with h5py.File(self.output, "r") as file:
            return [file["row"][side][:] for side in ("off", "on")]

    def test_bandwidth_is_that_of_gradients_and_not_of_padding(self):
        seconds = SECONDS["reduce.bucket"] / 2  # per bucket
        for side in self.gathered("bandwidth of reductions"):  # two ranks, two steps after warm-up
            np.testing.assert_allclose(np.sort(side), [2 * 1000 / seconds] * 4 + [2 * 2000 / seconds] * 4)

    def test_a_step_has_the_communication_and_compute_of_its_runs(self):
        self.gathered("step")
        compute = SECONDS["model.train"] + SECONDS["optim.step"] - SECONDS["reduce.exposed"]  # is within optim.step
        for name, value in (("compute_s", compute), ("communication_s", SECONDS["reduce.bucket"]), ("exposed_share", SECONDS["reduce.exposed"] / SECONDS["step"])):
            with h5py.File(self.output, "r") as file:
                np.testing.assert_allclose(file["row"].attrs[name], [value] * 2, rtol=1e-6)

    def test_compute_of_muon_is_without_its_waits(self):
        for side in ("off", "on"):
            write(os.path.join(self.folder, "pair", f"{side}-1", "run.h5"), steps=5, muon=True)
        self.gathered("step")
        waits = SECONDS["reduce.exposed"] + SECONDS["matrices.wait"]
        for name, value in (("compute_s", SECONDS["model.train"] + SECONDS["optim.step"] - waits),
                            ("communication_s", SECONDS["reduce.bucket"] + SECONDS["matrices.travel"]), ("exposed_share", waits / SECONDS["step"])):
            with h5py.File(self.output, "r") as file:
                np.testing.assert_allclose(file["row"].attrs[name], [value] * 2, rtol=1e-6)

    def test_a_step_without_spans_has_none(self):
        for side in ("off", "on"):
            os.remove(os.path.join(self.folder, "pair", f"{side}-1", "run.h5"))
            write(os.path.join(self.folder, "pair", f"{side}-1", "run.h5"), steps=5, spans=False)
        self.gathered("step")
        with h5py.File(self.output, "r") as file:
            self.assertNotIn("compute_s", file["row"].attrs)

    def test_memory_is_that_of_the_runs(self):
        self.assertEqual([list(side) for side in self.gathered("gradients in memory")], [[12000], [16000]])

    def test_allocations_are_those_after_warm_up(self):
        self.assertEqual([list(side) for side in self.gathered("allocations of a step")], [[2000, 2001], [3000, 3001]])

    def test_fragmentation_is_that_of_the_factor_of_growth(self):
        os.mkdir(os.path.join(self.folder, "bench"))
        with open(os.path.join(self.folder, "bench", "both-1.json"), "w", encoding="utf-8") as file:
            json.dump({"growth": [{"factor": factor, "mean_excess": factor / 8, "worst_excess": factor / 4} for factor in (1.25, 1.5, 2)]}, file)
        for name, divisor in (("mean", 8), ("worst", 4)):
            self.assertEqual([list(side) for side in self.gathered(f"fragmentation, {name}", "bench")], [[2 / divisor], [1.5 / divisor]])


if __name__ == "__main__":
    unittest.main()
