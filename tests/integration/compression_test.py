# SPDX-License-Identifier: Apache-2.0
"""Gradients sent as int8, fp8 and low-rank factors: the same bits with all combinations of switches, and after a checkpoint."""
import os
import shutil
import unittest

from harness import TrainingTest


class Compression(TrainingTest):
    def test_compressed_gradients_resume_to_the_bit(self):
        for dtype, *more in (("int8", "parallel.gradient_dtype=int8", "parallel.shard=none"), ("fp8", "parallel.gradient_dtype=fp8"),
                             ("factors", "parallel.gradient_rank=2", "parallel.shard=none", "parallel.reduction=ordered")):
            self.train_well(*more, ranks=2, name=dtype)
            shutil.copytree(self.path(dtype), self.path(f"{dtype}-parts"))
            shutil.rmtree(os.path.join(self.path(f"{dtype}-parts"), "checkpoints", "step-00000012"))
            self.train_well(*more, "parallel.bucket_elements=1", ranks=2, name=f"{dtype}-parts")
            self.assertEqual(self.weights(12, f"{dtype}-parts"), self.weights(12, dtype))
            self.assertEqual(self.losses(f"{dtype}-parts"), self.losses(dtype))
            # The run also resumes on another number of ranks, and in fp32.
            self.train_well(*more, "run.steps=14", ranks=3, name=dtype)
            self.train_well("run.steps=16", ranks=1, name=dtype)

    def test_a_run_that_sent_factors_goes_on_with_int8(self):
        self.train_well("parallel.gradient_rank=2", ranks=2, name="way")
        self.train_well("parallel.gradient_dtype=int8", "run.steps=14", ranks=2, name="way")
        self.train_well("parallel.gradient_rank=2", "run.steps=16", ranks=2, name="way")
        self.train_well("parallel.gradient_dtype=int8", "run.steps=18", ranks=1, name="way")

    def test_factors_in_a_tree_have_the_same_bits_on_any_number_of_ranks(self):
        more = ("parallel.gradient_rank=2", "parallel.reduction=tree", "parallel.logical_shards=4", "batch.sequences=4", "batch.micro_sequences=1")
        self.train_well(*more, ranks=2, name="tree")
        for ranks in (1, 3, 4):
            name = f"tree-{ranks}"
            shutil.copytree(self.path("tree"), self.path(name))
            shutil.rmtree(os.path.join(self.path(name), "checkpoints", "step-00000012"))
            self.train_well(*more, ranks=ranks, name=name)
            self.assertEqual(self.weights(12, name), self.weights(12, "tree"))
            self.assertEqual(self.losses(name), self.losses("tree"))


if __name__ == "__main__":
    unittest.main()
