# SPDX-License-Identifier: Apache-2.0
"""Gradients sent as int8, fp8 and low-rank factors: the same bits with all combinations of switches, and after a checkpoint."""
import os
import shutil
import unittest

from harness import TrainingTest


class Compression(TrainingTest):
    def resume_at_six(self, whole, name, *overrides, ranks):
        """Resumes the run `whole` from its checkpoint of step 6 in another folder."""
        shutil.copytree(self.path(whole), self.path(name))
        shutil.rmtree(os.path.join(self.path(name), "checkpoints", "step-00000012"))
        return self.train_well(*overrides, ranks=ranks, name=name)

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

    def test_errors_keep_their_size_with_another_batch(self):
        """With weights that hardly change, each step sends about as much as the undisturbed run; most of it are errors of earlier steps."""
        more = ("parallel.gradient_dtype=top1", "model.dropout=0", "optimizer.clip_norm=0", "optimizer.learning_rate=1e-6")
        self.train_well(*more, ranks=2, name="whole")
        norms = self.column("grad_norm", "steps", "whole")
        self.assertGreater(norms[6], 2 * norms[0])
        for name, *batch in (("micro", "batch.micro_sequences=6"), ("small", "batch.sequences=4"), ("large", "batch.sequences=48"),
                             ("both", "batch.sequences=48", "batch.micro_sequences=4")):
            with self.subTest(batch=batch):
                self.resume_at_six("whole", name, *more, *batch, "run.steps=7", "run.allow_changes=[batch.sequences]", ranks=2)
                self.assertAlmostEqual(self.column("grad_norm", "steps", name)[6] / norms[6], 1, delta=0.01 if name == "micro" else 0.2)
        self.train_well(*more, "run.steps=7", "batch.schedule=[{step: 7, sequences: 48}]", ranks=2, name="grows")
        self.assertAlmostEqual(self.column("grad_norm", "steps", "grows")[6] / norms[6], 1, delta=0.2)

    def test_errors_that_nothing_carries_are_added_to_the_first_gradient(self):
        """Gradients hardly change, so the first step sends those of all steps before it that were not sent, whatever it sends them in."""
        more = ("model.dropout=0", "optimizer.clip_norm=0", "optimizer.learning_rate=1e-6", "evaluate.every_steps=0")
        tree = ("parallel.reduction=tree", "batch.sequences=8")
        factors = (*tree, "parallel.gradient_rank=1", "parallel.logical_shards=4")
        whole = {}  # the norm of step 7 without compression
        for name, words in (("sum", ()), ("tree", (*tree, "parallel.logical_shards=4"))):
            self.train_well(*more, *words, "run.steps=7", ranks=2, name=name)
            whole[name] = self.column("grad_norm", "steps", name)[6]
        self.train_well(*more, "parallel.gradient_dtype=top1", ranks=2, name="top1")
        self.train_well(*more, *factors, ranks=2, name="factors")
        added = "the first gradient includes the errors of compressed gradients"
        for name, before, ranks, words in (
                ("one rank", "top1", 1, ("parallel.gradient_dtype=top1",)), ("fp32", "top1", 2, ()), ("bf16", "top1", 3, ("parallel.gradient_dtype=bf16",)),
                ("leaves", "factors", 2, (*tree, "parallel.gradient_rank=1", "parallel.logical_shards=8")),
                ("ordered", "factors", 2, ("parallel.gradient_rank=1", "batch.sequences=8")), ("whole tree", "factors", 1, (*tree, "parallel.logical_shards=8"))):
            with self.subTest(name):
                self.assertIn(added, self.resume_at_six(before, name, *more, *words, "run.steps=7", ranks=ranks).out)
                norm = self.column("grad_norm", "steps", name)[6]
                self.assertGreater(norm, (1.05 if before == "factors" else 3) * whole["sum" if before == "top1" else "tree"])
                # No later step has them.
                self.assertNotIn(added, self.train_well(*more, *words, "run.steps=8", ranks=ranks, name=name).out)
        sharded = self.resume_at_six("top1", "sharded", *more, "parallel.shard=gradients", "run.steps=7", ranks=2)
        self.assertIn("the errors of compressed gradients in", sharded.out + sharded.err)
        self.assertNotIn(added, self.resume_at_six("top1", "same", *more, "parallel.gradient_dtype=top1", "run.steps=7", ranks=2).out)

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
