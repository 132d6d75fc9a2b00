# SPDX-License-Identifier: Apache-2.0
"""A run directory that an older trireme left goes on with this one.

old_run.tar.xz was made by revision 0619fc4 (checkpoints of format 2.1, run.h5 1.3, AdamW without named slots, no tokenizer in
either) with the text of TrainingTest and the words below, on 2 ranks, up to step 6; LOSSES are those of the same executable's next
steps."""
import os
import tarfile
import unittest

from harness import TrainingTest, start

WORDS = ("model.layers=1", "model.channels=8", "model.heads=1", "model.context=8", "optimizer.schedule.steps=12", "record.spans=false")
LOSSES = [5.427845880389214, 5.416448131203651, 5.408396527171135, 5.380210513869922, 5.391474316517512, 5.375121980905533]


class OldRun(TrainingTest):
    def unpack(self, name):
        with tarfile.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "old_run.tar.xz")) as file:
            file.extractall(self.path(name))

    def test_it_resumes_to_the_same_losses(self):
        for ranks in (1, 3):
            name = f"run-{ranks}"
            self.unpack(name)
            run = self.train_well(*WORDS, ranks=ranks, name=name)
            self.assertIn("resumed from", run.out)
            self.assertEqual(self.column("step", "steps", name), list(range(1, 13)))
            losses = self.losses(name)[6:]
            self.assertEqual(len(losses), len(LOSSES))
            for mine, golden in zip(losses, LOSSES):
                self.assertAlmostEqual(mine, golden, delta=2e-6 * golden)  # fp32, in the order of another processor's kernels

    def test_its_checkpoint_is_read_by_every_verb(self):
        self.unpack("run")
        self.assertEqual(start("checkpoints", self.path("run"), "--verify").code, 0)
        self.assertEqual(start("export", self.path("run"), "--format", "huggingface", "--output", self.path("hf")).code, 0)
        samples = [start("sample", self.path(place), "--tokens", "5") for place in ("run", "hf")]
        self.assertEqual([sample.code for sample in samples], [0, 0], samples[0])
        self.assertEqual(samples[0].out, samples[1].out)


if __name__ == "__main__":
    unittest.main()
