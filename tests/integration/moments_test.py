# SPDX-License-Identifier: Apache-2.0
"""bf16 moments: the same bits with any number of ranks and shards, before and after a checkpoint."""
import os
import shutil
import unittest

import h5py

from harness import TrainingTest, start


class Bf16Moments(TrainingTest):
    """optimizer.moment_dtype: bf16, with a tree of leaves: the same bits on every number of ranks, and after every checkpoint."""
    TREE = ("batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4")
    BF16 = (*TREE, "optimizer.moment_dtype=bf16")

    def cut(self, name, parts):
        shutil.copytree(self.path(name), self.path(parts))
        shutil.rmtree(os.path.join(self.path(parts), "checkpoints", "step-00000012"))

    def test_resumes_to_the_bit_on_another_number_of_ranks(self):
        for kind in ("adamw", "muon"):
            more = (*self.BF16, f"optimizer.kind={kind}")
            whole = f"whole-{kind}"
            self.train_well(*more, name=whole)
            for ranks in (2, 4):
                parts = f"parts-{kind}{ranks}"
                self.cut(whole, parts)
                self.train_well(*more, "parallel.shard=" + ("none" if ranks == 2 else "optimizer"), ranks=ranks, name=parts)
                self.assertEqual(self.weights(12, parts), self.weights(12, whole), (kind, ranks))
            shown = start("checkpoints", self.path(whole), "--verify")
            self.assertEqual(shown.code, 0, shown)

    def test_every_choice_of_shards_has_the_same_bits(self):
        every = ("optimizer.moment_dtype=bf16", "parallel.reduce_every=micro_step")
        for ranks in (2, 3):
            self.train_well(*every, "parallel.shard=none", ranks=ranks, name=f"none{ranks}")
            for shard in ("optimizer", "gradients", "parameters"):
                name = f"{shard}{ranks}"
                self.train_well(*every, f"parallel.shard={shard}", "parallel.bucket_elements=auto", ranks=ranks, name=name)
                self.assertEqual(self.weights(12, name), self.weights(12, f"none{ranks}"), name)
                self.assertEqual(self.losses(name), self.losses(f"none{ranks}"), name)

    def test_moments_lie_in_checkpoints_as_they_are_kept(self):
        self.train_well(*self.BF16, ranks=2)
        self.train_well(*self.TREE, ranks=2, name="fp32")
        folder = os.path.join("checkpoints", "step-00000012", "manifest.h5")
        for name, kept in (("run", b"bf16"), ("fp32", b"fp32")):
            with h5py.File(os.path.join(self.path(name), folder), "r") as file:
                types = dict(zip(file["states/name"][:], file["states/dtype"][:]))
            self.assertEqual(types, {b"master": b"fp32", b"moment1": kept, b"moment2": kept})
        worst = max(abs(a - b) / b for a, b in zip(self.losses(), self.losses("fp32")))
        self.assertGreater(worst, 0)
        self.assertLess(worst, 0.01)

    def test_a_run_changes_it_where_that_is_allowed(self):
        self.train_well(*self.TREE, ranks=2)
        self.cut("run", "bf16")
        refused = self.train(*self.BF16, ranks=2, name="bf16")
        self.assert_refused(refused, 2, "optimizer.moment_dtype: bf16 here, but ", "was written with fp32; change it back, or allow it with "
                            "run.allow_changes=[optimizer.moment_dtype]")
        run = self.train_well(*self.BF16, "run.allow_changes=[optimizer.moment_dtype]", ranks=2, name="bf16")
        self.assertRegex(run.out, r"optimizer\.moment_dtype +fp32 -> bf16\n")
        self.assertNotEqual(self.weights(12, "bf16"), self.weights(12))
        shutil.rmtree(os.path.join(self.path("bf16"), "checkpoints", "step-00000006"))
        self.assert_refused(self.train(*self.TREE, "run.steps=14", ranks=2, name="bf16"), 2, "optimizer.moment_dtype: fp32 here, but ",
                            "was written with bf16")
        self.train_well(*self.TREE, "run.steps=14", "run.allow_changes=[optimizer]", ranks=1, name="bf16")


if __name__ == "__main__":
    unittest.main()
