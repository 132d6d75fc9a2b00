# SPDX-License-Identifier: Apache-2.0
"""Resumes with a changed deck: harmless changes are shown, changes of the experiment need run.allow_changes, and the record keeps the deck
of every session.
"""
import os
import shutil
import sys
import unittest

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import TrainingTest  # noqa: E402

USER = 2


class Changes(TrainingTest):
    def setUp(self):
        super().setUp()
        self.train_well()

    def resume(self, *overrides):
        return self.train("run.steps=14", *overrides)

    def log(self):
        with open(self.path("run/log.txt"), encoding="utf-8") as file:
            return file.read()

    def decks(self):
        with h5py.File(self.path("run/run.h5"), "r") as file:
            return [text.decode() for text in file["sessions/deck"][:]]

    def test_what_changes_the_experiment_is_refused_until_the_deck_allows_it(self):
        for key, value in (("batch.sequences", "24"), ("data.validation_fraction", "0.2"), ("optimizer.schedule.kind", "linear"),
                           ("optimizer.schedule.warmup_steps", "5")):
            with self.subTest(key):
                before = self.log()
                self.assert_refused(self.resume(f"{key}={value}"), USER, f"{key}: {value} here", f"run.allow_changes=[{key}]")
                self.assertEqual(self.log(), before, "a refused start wrote something")
        run = self.resume("batch.sequences=24", "run.allow_changes=[batch]")
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out, r"changed since step 12:\n  run\.steps +12 -> 14\n  batch\.sequences +12 -> 24\n")

    def test_what_is_free_is_shown_and_every_session_keeps_its_deck(self):
        run = self.resume("optimizer.learning_rate=0.001", "optimizer.beta2=0.9", "parallel.reduction=sum", "model.dropout=0")
        self.assertEqual(run.code, 0, run)
        for text in (run.out, self.log()):
            for part in ("optimizer.learning_rate", "0.003 -> 0.001", "0.95 -> 0.9", "ordered -> sum", "0.1 -> 0"):
                self.assertIn(part, text)
        decks = self.decks()
        self.assertEqual(len(decks), 2)
        self.assertIn("optimizer.learning_rate: 0.003\n", decks[0])
        self.assertIn("optimizer.learning_rate: 0.001\n", decks[1])
        self.assertEqual(self.column("first_step", "sessions"), [1, 13])

    def test_other_text_is_found_by_its_hash_and_moved_text_is_not(self):
        old, self.text = self.text, self.path("moved")
        shutil.move(old, self.text)
        run = self.resume()
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out, r"  data\.train\.text +\S+/text\] -> \S+/moved\]\n")
        with open(os.path.join(self.text, "a.txt"), "r+", encoding="ascii") as file:
            file.write("X")
        self.assert_refused(self.train("run.steps=16"), USER, "data: these are not the tokens that", "run.allow_changes=[data]")
        run = self.train("run.steps=16", "run.allow_changes=[data]")
        self.assertEqual(run.code, 0, run)

    def test_the_jump_of_the_rate_is_reported_before_it_happens(self):
        run = self.train("run.steps=24")
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out + run.err, r"the learning rate jumps from 0\.0003 at step 12 to 0\.00\d+ at step 13")
        self.assertIn("optimizer.schedule.steps=12 keeps the one that the run had", run.out + run.err)
        run = self.train("run.steps=30", "optimizer.schedule.steps=24")
        self.assertEqual(run.code, 0, run)
        self.assertNotIn("jumps", run.out + run.err)
        rates = self.column("learning_rate", "steps")
        self.assertEqual(rates[23:], [rates[23]] * 7)

    def test_a_checkpoint_of_another_run_is_refused(self):
        self.train_well(name="other")
        shutil.rmtree(self.path("run/checkpoints"))
        shutil.copytree(self.path("other/checkpoints"), self.path("run/checkpoints"))
        self.assert_refused(self.resume(), USER, "this is a checkpoint of run")
        # So is its record.
        for name in ("steps.jsonl", "run.h5", "run.id"):
            shutil.copy(self.path(f"other/{name}"), self.path(f"run/{name}"))
        self.assertEqual(self.resume().code, 0)


if __name__ == "__main__":
    unittest.main()
