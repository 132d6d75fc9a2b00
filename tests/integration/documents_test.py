# SPDX-License-Identifier: Apache-2.0
"""Attention within documents: training on any number of ranks, resuming, sampling, `trireme check` and `verify`."""
import json
import os
import shutil

import h5py

from harness import DECK, TrainingTest, start
from text_test import write_tokenizer


class Documents(TrainingTest):
    """Documents of a few tokens, several of which fit into the context of 16."""

    def setUp(self):
        super().setUp()
        self.end = write_tokenizer(self.path("tokenizer"))
        self.text = self.path("short.jsonl")
        with open(self.text, "w", encoding="ascii") as out:
            for i in range(1500):
                out.write(json.dumps({"text": f"the {'quick ' * (i % 3)}dog {i * 7 % 31}"}) + "\n")
        self.data = (f"data.tokenizer={self.path('tokenizer')}", "data.train.field=text")
        self.mask = (*self.data, "model.document_mask=true")

    def test_the_same_bits_on_any_number_of_ranks_and_others_than_without_the_mask(self):
        tree = ("batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4")
        for ranks in (1, 2, 4):
            self.train_well(*self.mask, *tree, ranks=ranks, name=f"on-{ranks}")
        for ranks in (2, 4):
            self.assertEqual(self.weights(12, f"on-{ranks}"), self.weights(12, "on-1"))
            self.assertEqual(self.column("loss", "validation", f"on-{ranks}"), self.column("loss", "validation", "on-1"))
        self.train_well(*self.data, *tree, name="without")
        self.assertNotEqual(self.losses("without")[0], self.losses("on-1")[0])
        self.assertNotEqual(self.column("loss", "validation", "without")[0], self.column("loss", "validation", "on-1")[0])
        with h5py.File(os.path.join(self.path("on-1"), "run.h5"), "r") as file:
            self.assertIn("what document_mask hides included", file.attrs["flops_formula"])

    def test_a_run_resumes_with_another_mask_only_where_that_is_allowed(self):
        self.train_well(*self.mask)
        shutil.rmtree(os.path.join(self.path("run"), "checkpoints", "step-00000012"))
        self.assert_refused(self.train(*self.data), 2, "model.document_mask: false here", "run.allow_changes=[model.document_mask]")
        self.train_well(*self.data, "run.allow_changes=[model.document_mask]", ranks=2)

    def test_kept_keys_and_values_give_what_the_whole_window_gives(self):
        self.train_well(*self.mask, "run.steps=60")  # enough steps to learn how short documents are
        words = ["sample", self.path("run"), "--prompt", "the quick", "--tokens", "120", "--seed", "4", "--ignore-end", "--json", "-"]
        said, again = start(*words), start(*words, "--no-cache")
        self.assertEqual((said.code, again.code), (0, 0), said)
        self.assertGreater(json.loads(said.out)["tokens"].count(self.end), 2, said)
        self.assertEqual(said.out, again.out)

    def test_check_names_the_mask_and_what_it_lacks(self):
        deck = [DECK, f"run.directory={self.path('run')}", f"data.train.text=[{self.text}]"]
        good = start("check", *deck, *self.mask)
        self.assertEqual(good.code, 0, good)
        self.assertIn("different from gpt2: document_mask true\n", good.out)
        self.assert_refused(start("check", *deck, "data.train.field=text", "model.document_mask=true"), 2, "this tokenizer has no end-of-text token")

    def test_no_switch_changes_a_bit(self):
        run = start("verify", DECK, f"run.directory={self.path('run')}", f"data.train.text=[{self.text}]", *self.mask,
                    "model.layers=1", "batch.sequences=4", "--steps", "1", ranks=2)
        self.assertEqual(run.code, 0, run)
        self.assertIn("694 combinations gave the same bits", run.out)
