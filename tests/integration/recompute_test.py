# SPDX-License-Identifier: Apache-2.0
"""model.recompute as a list and as bytes: the same bits, memory below the limit, and both the key and the result in the record."""
import json
import os
import subprocess

import h5py

from harness import TIMEOUT_S, TRIREME, TrainingTest

DEEP = ("model.layers=5", "evaluate.every_steps=0")


class Recompute(TrainingTest):
    def held(self, recompute, ranks, *overrides):
        """Planned memory of a rank in bytes."""
        path = self.path("plan.json")
        subprocess.run([TRIREME, "plan", *self.words("none", [*DEEP, "run.steps=6", *overrides, f"model.recompute={recompute}"]), "--ranks", str(ranks),
                        "--json", path], check=True, capture_output=True, timeout=TIMEOUT_S)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        os.remove(path)
        return plan["per_rank"]["fp32"]["whole_bytes"]

    def trained(self, recompute, ranks, *overrides, steps=6):
        name = f"run{len(os.listdir(self.folder))}"
        run = self.train_well(*DEEP, f"run.steps={steps}", *overrides, f"model.recompute={recompute}", ranks=ranks, name=name)
        return name, run

    def attributes(self, name):
        with h5py.File(os.path.join(self.path(name), "run.h5"), "r") as file:
            return dict(file.attrs), dict(file["deck"].attrs), dict(file["memory"].attrs)

    def test_no_bit_changes_and_the_record_says_what_was_done(self):
        for ranks, words in ((1, ()), (2, ("parallel.shard=parameters",)), (3, ("batch.micro_sequences=2",))):
            kept, _ = self.trained("none", ranks, *words)
            most, least = (self.held(one, ranks, *words) for one in ("none", "block"))
            limit = least + (most - least) // 2
            for recompute, did in (("[block, gelu, block, none, block]", "block, gelu, block, none, block"),
                                   (f"{{memory: {limit}}}", None)):
                name, run = self.trained(recompute, ranks, *words)
                self.assertEqual(self.losses(name), self.losses(kept), (ranks, recompute))
                self.assertEqual(self.weights(6, name), self.weights(6, kept), (ranks, recompute))
                facts, deck, memory = self.attributes(name)
                self.assertIn(str(limit) if did is None else recompute, deck["model.recompute"])
                with open(os.path.join(self.path(name), "deck.resolved.yaml"), encoding="utf-8") as file:
                    self.assertIn(f"recompute: {recompute} ", file.read())
                if did is None:
                    held = sum(memory[part] for part in ("gradients", "parameters", "optimizer", "activations", "scratch", "snapshot"))
                    self.assertLessEqual(held, limit)
                    self.assertGreater(held, least)
                    self.assertRegex(facts["recompute"], r"^block x \d")
                    self.assertIn(f"model.recompute: {facts['recompute']}: a rank takes ", run.out)
                else:
                    self.assertEqual(facts["recompute"], did)

    def test_too_few_bytes_name_the_least(self):
        least = self.held("block", 2)
        self.trained(f"{{memory: {least}}}", 2)
        run = self.train(*DEEP, "run.steps=6", f"model.recompute={{memory: {least - 1}}}", ranks=2, name="none")
        self.assert_refused(run, 2, "command line:", "model.recompute", f"in fp32 a rank needs at least {least} bytes", "with block")
        self.assertFalse(os.path.exists(self.path("none/run.h5")))

    def test_a_run_goes_on_with_another(self):
        whole, _ = self.trained("none", 1, steps=9)
        words = (*DEEP, "optimizer.schedule.steps=9")
        self.train_well(*words, "run.steps=6", "model.recompute=block")
        second = self.train_well(*words, "run.steps=7", "model.recompute=[block, block, gelu, none, none]", ranks=2)
        self.assertRegex(second.out, r"model\.recompute +block -> \[block, block, gelu, none, none\]")
        third = self.train_well(*words, "run.steps=9", f"model.recompute={{memory: {self.held('block', 3) + 1000}}}", ranks=3)
        self.assertIn("model.recompute: block", third.out)
        self.assertEqual(len(self.losses()), 9)
        self.assertEqual(self.losses()[:6], self.losses(whole)[:6])
        for one, other in zip(self.losses(), self.losses(whole), strict=True):
            self.assertAlmostEqual(one, other, delta=1e-5)
