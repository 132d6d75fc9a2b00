# SPDX-License-Identifier: Apache-2.0
"""Replicas that update separately and are averaged once per step (optimizer.outer)."""
import math
import os
import shutil
import unittest

import h5py
from harness import TrainingTest

BATCH = ("parallel.reduction=sum", "batch.sequences=16", "batch.micro_sequences=1")
LOCAL = (*BATCH, "parallel.replicate=2", "optimizer.outer.local_steps=4")


class LocalSteps(TrainingTest):
    def resumed_at_six(self, whole, name, *overrides, ranks):
        """Resumes the run `whole` from its checkpoint of step 6 in another folder."""
        shutil.copytree(self.path(whole), self.path(name))
        shutil.rmtree(os.path.join(self.path(name), "checkpoints", "step-00000012"))
        resumed = self.train_well(*overrides, ranks=ranks, name=name)
        self.assertIn("resumed from", resumed.out)
        return resumed

    def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(self):
        for more in ((), ("optimizer.outer.dtype=int8", "checkpoint.asynchronous=true"),
                     ("optimizer.kind=muon", "run.precision=bf16", "optimizer.moment_dtype=bf16")):
            with self.subTest(more=more):
                whole, parts = (f"{name}-{len(more)}" for name in ("whole", "parts"))
                self.train_well(*LOCAL, *more, ranks=2, name=whole)
                losses = self.losses(whole)
                self.assertLess(losses[-1], losses[0] - 0.5)
                self.assertTrue(all(math.isfinite(norm) for norm in self.column("grad_norm", "steps", whole)))
                self.resumed_at_six(whole, parts, *LOCAL, *more, ranks=2)
                self.assertEqual(self.losses(parts), losses)
                self.assertEqual(self.weights(12, parts), self.weights(12, whole))

    def moments_of(self, name):
        with h5py.File(os.path.join(self.path(name), "checkpoints", "step-00000012", "manifest.h5"), "r") as file:
            return {state: file["tensors"][state]["wte.weight"][:] for state in file["tensors"] if state.startswith("moment1")}

    def test_each_replica_keeps_its_moments(self):
        self.train_well(*LOCAL, ranks=4, name="four")
        first, second = (self.moments_of("four")[state] for state in ("moment1", "moment1-1"))
        self.assertGreater(abs(first - second).max(), 0)

    def test_replicas_may_leave_and_return(self):
        words = ("batch.sequences=20", "batch.micro_sequences=1", "parallel.replicate=rank", "optimizer.outer.local_steps=4")  # 5 sequences per local step
        self.train_well(*words, "run.steps=6", ranks=3)
        for ranks, steps in ((2, 8), (4, 12)):
            self.assertIn("resumed from", self.train_well(*words, f"run.steps={steps}", ranks=ranks).out)
        self.assertEqual(sorted(self.moments_of("run")), ["moment1", "moment1-1", "moment1-2", "moment1-3"])
        losses = self.losses()
        self.assertLess(losses[-1], losses[0] - 0.5)

    def test_replicas_of_different_sizes(self):
        """Replicas of two ranks and of one. The checkpoint contains their shards, which no other number of ranks has."""
        for more in ((), ("optimizer.outer.dtype=int8",), ("optimizer.kind=muon", "parallel.shard=parameters", "run.precision=bf16")):
            with self.subTest(more=more):
                words = ("parallel.reduction=sum", "batch.sequences=24", "batch.micro_sequences=1", "optimizer.outer.local_steps=4", *more)
                whole, parts = (f"{name}-{len(more)}" for name in ("whole", "parts"))
                self.assertIn("3 ranks with 2 copies", self.train_well(*words, "parallel.replicate=2", ranks=3, name=whole).out)
                losses = self.losses(whole)
                self.assertLess(losses[-1], losses[0] - 0.5)
                self.resumed_at_six(whole, parts, *words, "parallel.replicate=2", ranks=3)
                self.assertEqual(self.losses(parts), losses)
                self.assertEqual(self.weights(12, parts), self.weights(12, whole))
                for ranks, replicas in ((2, 2), (4, 3)):
                    name = f"{len(more)}-on-{ranks}"
                    self.resumed_at_six(whole, name, *words, f"parallel.replicate={replicas}", ranks=ranks)
                    self.assertNotEqual(self.losses(name), losses)
                    self.assertAlmostEqual(self.losses(name)[-1], losses[-1], delta=0.1)

    def test_a_run_continues_with_other_replicas(self):
        for dtype in ("fp32", "int8"):
            whole, sent = f"whole-{dtype}", f"optimizer.outer.dtype={dtype}"
            self.train_well(*LOCAL, sent, ranks=2, name=whole)
            for ranks, replicas in ((4, 4), (4, 2), (1, 1)):
                with self.subTest(ranks=ranks, replicas=replicas, dtype=dtype):
                    words = (*BATCH, "optimizer.outer.local_steps=4", f"parallel.replicate={replicas}", sent)
                    name = f"{dtype}-on-{ranks}-in-{replicas}"
                    resumed = self.resumed_at_six(whole, name, *words, ranks=ranks)
                    self.assertEqual("errors of the changes of weights" in resumed.out + resumed.err, dtype == "int8" and replicas == 1, resumed)
                    self.assertAlmostEqual(self.losses(name)[6], self.losses(whole)[6], delta=0.1)
                    self.assertLess(self.losses(name)[-1], self.losses(whole)[6] - 0.1)

    def test_a_gradient_that_is_not_finite_in_one_replica_ends_all(self):
        diverge = ("optimizer.learning_rate=1", "optimizer.clip_norm=0", "optimizer.beta2=0.1", "optimizer.outer.rate=2",
                   "optimizer.schedule.kind=constant", "run.steps=200", "evaluate.every_steps=0")
        for seed in (7, 8):
            run = self.train(*LOCAL, *diverge, f"run.seed={seed}", ranks=2, name=f"run-{seed}")
            self.assertEqual(run.code, 2, run)
            self.assertEqual([line for line in run.errors if "is not finite" not in line], [], run)

    def test_the_number_of_local_steps_cannot_change(self):
        self.train_well(*LOCAL, ranks=2)
        shutil.rmtree(os.path.join(self.path("run"), "checkpoints", "step-00000012"))
        refused = self.train(*BATCH, ranks=2)
        self.assertEqual(refused.code, 2, refused)
        self.assertTrue(any("optimizer.outer.local_steps" in line for line in refused.errors), refused)


if __name__ == "__main__":
    unittest.main()
