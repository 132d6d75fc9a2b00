# SPDX-License-Identifier: Apache-2.0
"""Every model family from end to end: trained, resumed on another number of ranks, sampled, exported and imported again."""
import os
import shutil
import unittest

from harness import TrainingTest, start

# No dropout and a tree of leaves: the same bits on every number of ranks.
COMMON = ("model.dropout=0", "batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4")
FAMILIES = {"llama": ("model.key_value_heads=1",), "qwen3": ("model.key_value_heads=1", "model.head_channels=24"),
            "nanochat": ()}


class Families(TrainingTest):
    def words_of(self, family):
        return (*COMMON, f"model.family={family}", *FAMILIES[family])

    def test_resumes_to_the_bit_on_another_number_of_ranks(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                whole, parts = f"{family}-whole", f"{family}-parts"
                self.train_well(*self.words_of(family), name=whole)
                losses = self.losses(whole)
                self.assertEqual(len(losses), 12)
                self.assertLess(losses[-1], losses[0])
                shutil.copytree(self.path(whole), self.path(parts))
                shutil.rmtree(os.path.join(self.path(parts), "checkpoints", "step-00000012"))
                run = self.train_well(*self.words_of(family), ranks=2, name=parts)
                self.assertIn("resumed from", run.out)
                self.assertEqual(self.weights(12, parts), self.weights(12, whole))
                self.assertEqual(self.losses(parts), losses)

    def test_samples_with_kept_keys_and_from_an_exported_folder(self):
        for family in FAMILIES:
            with self.subTest(family=family):
                self.train_well(*self.words_of(family), name=family)
                folder = self.path(f"{family}-hf")
                exported = start("export", self.path(family), "--format", "huggingface", "--output", folder)
                self.assertEqual(exported.code, 0, exported)
                words = ("--prompt", "the quick", "--tokens", "24", "--seed", "4")  # more than the context of 16
                said = [start("sample", place, *words, *more)
                        for place, more in ((self.path(family), ()), (self.path(family), ("--no-cache",)), (folder, ()))]
                self.assertEqual([run.code for run in said], [0, 0, 0], said[-1])
                self.assertTrue(said[0].out.startswith("the quick"), said[0])
                self.assertEqual(said[1].out, said[0].out, "with kept keys and without")
                self.assertEqual(said[2].out, said[0].out, "from transformers' folder")

    def test_parts_of_a_run_cannot_change(self):
        self.train_well(*self.words_of("qwen3"), "run.steps=6")
        refused = self.train(*self.words_of("qwen3"), "model.qk_norm=without_gain")
        self.assert_refused(refused, 2, "model.qk_norm: without_gain here", "was written with with_gain, and a run cannot change it")


if __name__ == "__main__":
    unittest.main()
