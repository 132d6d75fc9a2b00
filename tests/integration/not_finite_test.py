# SPDX-License-Identifier: Apache-2.0
"""Gradients that are not finite: the run stops, or skips steps up to a limit, which a restart does not reset."""
import unittest

from harness import TrainingTest


class NotFinite(TrainingTest):
    """The weights grow ninefold per step and overflow after about forty steps."""
    GROWING = ("run.steps=60", "optimizer.learning_rate=1", "optimizer.weight_decay=10",
               "evaluate.every_steps=0", "optimizer.schedule.kind=constant", "optimizer.schedule.warmup_steps=0")
    SKIPPING = (*GROWING, "optimizer.on_non_finite=skip", "optimizer.max_skipped_steps=3", "checkpoint.every_steps=1")

    def test_a_run_stops_or_skips_as_the_deck_says(self):
        stopped = self.train(*self.GROWING, "checkpoint.every_steps=0", ranks=2, name="stop")
        self.assert_refused(stopped, 2, "is not finite", "in bucket", "nothing was updated")
        first = self.column("step", "steps", "stop")[-1] + 1
        self.assertEqual(self.column("step", "skipped", "stop"), [])
        skipped = self.train(*self.SKIPPING, ranks=2, name="skip")
        for start in (0, 1):
            self.assert_refused(skipped, 2, f"step {first + 3} is not finite", "in the 3 before it (optimizer.max_skipped_steps)")
            self.assertEqual(self.column("step", "skipped", "skip"), [first, first + 1, first + 2])
            self.assertEqual(skipped.out.count("skipped: the gradient was not finite"), 3 if start == 0 else 0, skipped)
            skipped = self.train(*self.SKIPPING, ranks=2, name="skip")


if __name__ == "__main__":
    unittest.main()
