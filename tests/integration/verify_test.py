# SPDX-License-Identifier: Apache-2.0
"""`trireme verify`: every combination of switches gives the same bits on any number of ranks."""
import os
import re
import unittest

from harness import DECK, TrainingTest, start


class VerifyTest(TrainingTest):
    def verify(self, *arguments, ranks):
        run = start("verify", DECK, f"data.train.text=[{self.text}]", f"run.directory={self.path('run')}", *arguments,
                    ranks=ranks)
        self.assertFalse(os.path.exists(self.path("run")), "verify writes no run directory")
        return run

    def assert_all_equal(self, run, steps, combinations=694, groups=12):
        """Numbers of combinations: 694 with several micro-steps per step; 693 with one; 384 if the deck excludes sharded gradients; 48 with
        compressed gradients. Replicas add 69 or 24."""
        self.assertEqual(run.code, 0, run)
        settings = [int(number) for number in re.findall(r"(\d+) settings equal", run.out)]
        self.assertEqual((len(settings), sum(settings)), (groups, combinations), run)
        self.assertIn(f"{combinations} combinations gave the same bits: loss, gradient norm and all parameters after each of {steps} "
                      "steps", run.out)


class Verify(VerifyTest):
    def test_all_combinations_on_1_and_4_ranks(self):
        # The other tests use 2 and 3 ranks.
        for ranks, steps in ((1, 3), (4, 2)):
            with self.subTest(ranks=ranks):
                # One layer, because a bucket per parameter, padded to 2^16 elements, needs a lot of memory.
                self.assert_all_equal(self.verify("model.layers=1", "batch.sequences=8", "--steps", str(steps), ranks=ranks), steps,
                                      combinations=694 if ranks == 1 else 694 + 69)

    def test_bf16_on_the_wire_and_in_the_model(self):
        self.assert_all_equal(self.verify("model.layers=1", "batch.sequences=4", "run.precision=bf16", "parallel.gradient_dtype=bf16", "--steps",
                                          "2", ranks=2), 2)

    def test_compressed_gradients(self):
        for ranks, word in ((2, "gradient_dtype=int8"), (3, "gradient_dtype=fp8"), (2, "gradient_dtype=top4")):
            with self.subTest(ranks=ranks, word=word):
                self.assert_all_equal(self.verify("model.layers=1", f"batch.sequences={2 * ranks}", f"parallel.{word}", "--steps", "2", ranks=ranks), 2,
                                      combinations=48, groups=3)

    def test_factors_of_leaves(self):
        words = ("batch.sequences=4", "batch.micro_sequences=1", "parallel.reduction=tree", "parallel.logical_shards=4")
        self.assert_all_equal(self.verify("model.layers=1", *words, "parallel.gradient_rank=2", "--steps", "2", ranks=3), 2, combinations=192, groups=12)

    def test_mistakes_are_the_users(self):
        self.assert_refused(self.verify("parallel.padding=some", ranks=2), 2, "parallel.padding")


class VerifyMore(VerifyTest):
    """The same with more settings, each of which is also tested elsewhere."""

    def test_micro_steps_launched_as_graphs(self):
        # Graphs are captured in step 2. Inputs of the replays in step 4 were delayed in step 3.
        self.assert_all_equal(self.verify("model.layers=1", "batch.sequences=4", "gpu.graphs=true", "--steps", "4", ranks=2), 4)

    def test_messages_instead_of_shared_memory_and_one_micro_step(self):
        self.assert_all_equal(self.verify("parallel.transport=mpi", "model.layers=1", "batch.sequences=3", "--steps", "2", ranks=3), 2,
                              combinations=693)

    def test_local_steps(self):
        local = ("optimizer.outer.local_steps=2", "parallel.replicate=2", "model.layers=1", "batch.sequences=4", "--steps", "2")
        self.assert_all_equal(self.verify(*local, ranks=2), 2, combinations=502)
        self.assert_all_equal(self.verify(*local, "optimizer.outer.dtype=int8", ranks=2), 2, combinations=205, groups=3)

    def test_a_tree_of_leaves(self):
        self.assert_all_equal(self.verify("model.layers=1", "parallel.reduction=tree", "parallel.logical_shards=8", "batch.sequences=8",
                                          "--steps", "2", ranks=2), 2, combinations=384)

    def test_muon_with_moments_in_bf16_and_one_micro_step(self):
        self.assert_all_equal(self.verify("optimizer.moment_dtype=bf16", "optimizer.kind=muon", "model.layers=1", "batch.sequences=3", "--steps",
                                          "2", ranks=3), 2, combinations=693)

    def test_families_with_muon_and_with_all_that_a_model_can_have(self):
        one = ("model.layers=1", "model.dropout=0", "--steps", "2")
        self.assert_all_equal(self.verify("model.family=qwen3", "model.key_value_heads=1", "model.head_channels=24",
                                          "optimizer.kind=muon", *one, ranks=2), 2)
        self.assert_all_equal(self.verify("model.family=nanochat", *one, ranks=2), 2)
        self.assert_all_equal(self.verify("model.family=llama", "model.attention_window=5", "model.window_pattern=SL", "model.layers=2",
                                          "model.logit_softcap=15", "model.z_loss=1e-4", "model.dropout=0", "--steps", "1", ranks=2), 1)


if __name__ == "__main__":
    unittest.main()
