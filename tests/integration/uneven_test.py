# SPDX-License-Identifier: Apache-2.0
"""Batches that the number of ranks does not divide: the same samples and, except for rounding, the same results on any number of ranks."""
import os
import shutil
import unittest

from harness import TrainingTest, start


class Uneven(TrainingTest):
    DECK = ("run.steps=8", "model.dropout=0.1", "batch.sequences=7", "batch.micro_sequences=2", "checkpoint.every_steps=4", "evaluate.every_steps=4")

    def series(self, name):
        return [self.column(column, group, name) for column, group in (("loss", "steps"), ("grad_norm", "steps"), ("tokens", "steps"), ("loss", "validation"))]

    def assert_close(self, name, reference, what):
        for found, expected in zip(self.series(name), self.series(reference)):
            self.assertEqual(len(found), len(expected), what)
            for one, other in zip(found, expected):
                self.assertAlmostEqual(one, other, delta=2e-5 * abs(other), msg=what)
        self.assertEqual(self.losses(name)[0], self.losses(reference)[0], f"the exact sum over the tokens of the first step: {what}")

    def test_every_number_of_ranks_makes_the_same_run(self):
        self.train_well(*self.DECK, name="one")
        for ranks, *switches in ((2,), (3, "parallel.shard=none"), (4, "parallel.shard=gradients", "parallel.reduce_every=micro_step"),
                                 (5, "parallel.shard=parameters", "parallel.reduce_every=micro_step", "model.recompute=block"),
                                 (8, "parallel.overlap_gradients=false"), (6, "parallel.reduction=ordered")):
            name = f"on-{ranks}"
            self.train_well(*self.DECK, *switches, ranks=ranks, name=name)
            self.assert_close(name, "one", f"{ranks} ranks, {switches}")

    def test_fewer_sequences_than_ranks_and_batches_that_grow(self):
        words = ("run.steps=8", "batch.sequences=2", "batch.micro_sequences=1", "checkpoint.every_steps=4", "evaluate.every_steps=4", "batch.schedule=[{step: 4, sequences: 5}, {step: 7, sequences: 9}]")
        self.train_well(*words, name="one")
        for ranks in (3, 4):
            self.train_well(*words, ranks=ranks, name=f"on-{ranks}")
            self.assert_close(f"on-{ranks}", "one", f"{ranks} ranks")

    def test_a_run_resumes_on_another_number_of_ranks(self):
        self.train_well(*self.DECK, ranks=3, name="whole")
        self.train_well(*self.DECK, ranks=5, name="parts")
        shutil.rmtree(os.path.join(self.path("parts"), "checkpoints", "step-00000008"))
        self.train_well(*self.DECK, ranks=2, name="parts")
        self.assert_close("parts", "whole", "5 ranks, then 2")

    def test_idle_ranks_are_named_and_can_be_forbidden(self):
        note = "some idle for 50.0 % of the compute time of a step. They have equally many of 4 or 8"
        for verb in ("check", "plan"):
            done = start(verb, *self.words("run", (*self.DECK, "--ranks", "4")))
            self.assertEqual(done.code, 0, done)
            self.assertIn(note, " ".join(done.out.split()))
        refused = self.train(*self.DECK, "batch.equal_ranks=true", ranks=2)
        self.assertEqual(refused.code, 2, refused)
        self.assertIn("a step needs a multiple of 4 = 2 micro_sequences x 2 ranks", refused.err)


if __name__ == "__main__":
    unittest.main()
