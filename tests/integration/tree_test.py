# SPDX-License-Identifier: Apache-2.0
"""Tree reduction: the same bits on every number of ranks, and measurements on the leaves of a step."""
import math
import os
import shutil
import unittest

import h5py

from harness import TrainingTest


class Tree(TrainingTest):
    """parallel.reduction: tree, dropout on: the same bits on every number of ranks."""

    def trained(self, ranks, shards, *overrides):
        name = f"run{len(os.listdir(self.folder))}"
        self.train_well("run.steps=20", "checkpoint.every_steps=20", "evaluate.every_steps=10", "model.dropout=0.1",
                        "batch.sequences=16", "parallel.reduction=tree", f"parallel.logical_shards={shards}",
                        *overrides, ranks=ranks, name=name)
        return self.results(name)

    def results(self, name):
        return {"losses": self.losses(name), "norms": self.column("grad_norm", "steps", name),
                "validation": self.column("loss", "validation", name), "weights": self.weights(20, name)}

    def assert_same(self, trained, expected, what):
        """Reports the first step that differs, or the names of parameters, but not their bytes, which take minutes to print."""
        for series in ("losses", "norms", "validation"):
            self.assertEqual(trained[series], expected[series], f"{series} of {what}")
        self.assertEqual(trained["weights"].keys(), expected["weights"].keys())
        different = [name for name, values in expected["weights"].items() if trained["weights"][name] != values]
        self.assertEqual(different, [], what)

    def test_20_steps_have_the_same_bits_on_1_2_and_4_ranks(self):
        one = self.trained(1, 4)
        self.assertEqual((len(one["losses"]), len(one["norms"]), len(one["validation"])), (20, 20, 3))
        self.assertLess(one["losses"][-1], one["losses"][0])
        for ranks in (2, 4):
            self.assert_same(self.trained(ranks, 4), one, f"{ranks} ranks")
        # Two micro-steps of a leaf are added one after the other, so the number of leaves changes the bits.
        self.assertNotEqual(self.trained(1, 8)["losses"], one["losses"])

    def test_8_leaves_have_the_same_bits_on_1_to_8_ranks(self):
        one = self.trained(1, 8)
        for ranks in range(2, 9):
            self.assert_same(self.trained(ranks, 8), one, f"{ranks} ranks")

    def test_switches_and_transports_do_not_change_the_bits(self):
        one = self.trained(1, 4)
        for switches in (["parallel.overlap_gradients=false", "parallel.overlap_parameters=false"],
                         ["parallel.shard=none"], ["parallel.transport=mpi"],
                         ["parallel.bucket_elements=1", "parallel.padding=none", "parallel.cached_shards=false"]):
            self.assert_same(self.trained(2, 4, *switches), one, switches)

    def test_a_run_resumes_on_another_rank_count_with_the_same_bits(self):
        whole = self.trained(1, 4)
        tree = ("batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4", "checkpoint.every_steps=10",
                "evaluate.every_steps=10")
        self.train_well("run.steps=20", *tree, ranks=4, name="parts")
        shutil.rmtree(os.path.join(self.path("parts"), "checkpoints", "step-00000020"))
        self.train_well("run.steps=20", *tree, ranks=2, name="parts")
        self.assert_same(self.results("parts"), whole, "4 ranks, then 2")

    def test_bf16_activations_too(self):
        one = self.trained(1, 4, "run.precision=bf16")
        for ranks in (2, 4):
            self.assert_same(self.trained(ranks, 4, "run.precision=bf16"), one, f"{ranks} ranks")


class NoiseScale(TrainingTest):
    """evaluate.noise_scale and record.norms_every_steps: rows with the same bits on every number of ranks, with dropout."""
    DECK = ("run.steps=12", "batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4", "evaluate.noise_scale.every_steps=3",
            "evaluate.noise_scale.smoothing=0.5", "record.norms_every_steps=4")

    def rows(self, name):
        with h5py.File(os.path.join(self.path(name), "run.h5"), "r") as file:
            return {f"{group}/{column}": dataset[:].tobytes() for group in ("noise_scale", "norms") for column, dataset in file[group].items()}

    def test_rows_have_the_same_bits_on_1_to_4_ranks(self):
        plain = self.train_well(*self.DECK[:-3], name="plain")
        self.assertEqual(self.column("step", "noise_scale", "plain"), [])
        self.assertNotIn("noise scale", plain.out)
        for ranks in (1, 2, 3, 4):
            run = self.train_well(*self.DECK, ranks=ranks, name=f"r{ranks}")
            self.assertEqual(self.rows(f"r{ranks}"), self.rows("r1"), f"{ranks} ranks")
            self.assertEqual(self.weights(12, f"r{ranks}"), self.weights(12, "plain"), "measuring changes no bit")
        self.assertEqual(self.column("step", "noise_scale", "r1"), [3, 6, 9, 12])
        norms = self.column("grad_norm", "steps", "r1")
        self.assertEqual(self.column("norm_squared", "noise_scale", "r1"), [norms[step - 1] ** 2 for step in (3, 6, 9, 12)])
        layers = max(self.column("layer", "norms", "r1")) + 1
        self.assertEqual(self.column("step", "norms", "r1"), [step for step in (4, 8, 12) for _ in range(layers)])
        gradients = self.column("gradient", "norms", "r1")
        for row, step in enumerate((4, 8, 12)):
            self.assertAlmostEqual(math.hypot(*gradients[row * layers:(row + 1) * layers]), norms[step - 1], delta=1e-12 * norms[step - 1])
        small, big = self.column("leaf_norm_squared", "noise_scale", "r1"), self.column("norm_squared", "noise_scale", "r1")
        traces, signals = self.column("trace", "noise_scale", "r1"), self.column("gradient_squared", "noise_scale", "r1")
        smooth_trace, smooth_signal = traces[0], signals[0]
        for row in range(4):
            self.assertGreater(small[row], big[row])
            self.assertAlmostEqual(traces[row], (small[row] - big[row]) / (1 / 4 - 1 / 16), delta=1e-12 * traces[row])
            self.assertAlmostEqual(signals[row], (16 * big[row] - 4 * small[row]) / 12, delta=1e-12 * small[row])
            if row > 0:
                smooth_trace += 0.5 * (traces[row] - smooth_trace)
                smooth_signal += 0.5 * (signals[row] - smooth_signal)
            sequences = self.column("sequences", "noise_scale", "r1")[row]
            if smooth_signal > 0:
                self.assertAlmostEqual(sequences, smooth_trace / smooth_signal, delta=1e-9 * sequences)
            else:
                self.assertNotEqual(sequences, sequences)
        self.assertIn("noise scale", run.out)

    def test_a_resumed_run_has_the_rows_of_an_uninterrupted_one(self):
        self.train_well(*self.DECK, name="whole")
        self.train_well(*self.DECK, ranks=4, name="parts")
        shutil.rmtree(os.path.join(self.path("parts"), "checkpoints", "step-00000012"))
        self.train_well(*self.DECK, ranks=2, name="parts")
        self.assertEqual(self.rows("parts"), self.rows("whole"))

    def test_other_reductions_are_refused_by_name(self):
        for reduction in ("sum", "ordered"):
            run = self.train("evaluate.noise_scale.every_steps=1", f"parallel.reduction={reduction}", ranks=2)
            self.assertEqual(run.code, 2, run)
            self.assertIn(f"is not possible with parallel.reduction = {reduction}", run.err)
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    unittest.main()
