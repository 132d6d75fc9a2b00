# SPDX-License-Identifier: Apache-2.0
"""data.skip and `trireme data`: which samples a run uses, on any number of ranks and after a resume."""
import json
import os
import shutil

from harness import DECK, TrainingTest, start

# The weights do not change, so the loss of a step is the mean of the losses of its samples, independent of earlier steps.
FROZEN = ("optimizer.learning_rate=0", "model.dropout=0", "evaluate.every_steps=0")
SCHEDULE = ("batch.schedule=[{step: 3, sequences: 6}]",)
SIZES = (12, 12, 6, 6, 6, 6)


class DataSurgery(TrainingTest):
    def sample_losses(self):
        """The loss of each of the first samples."""
        with open(os.path.join(self.text, "a.txt"), "w", encoding="ascii") as out:
            out.write("".join(chr(97 + number * number * 7919 % 1009 % 26) for number in range(20000)))
        self.train_well(*FROZEN, "batch.sequences=1", "run.steps=100", "checkpoint.every_steps=0", name="each")
        losses = self.losses("each")
        self.assertGreater(len({round(loss, 4) for loss in losses}), 90, "samples are told apart by their losses")
        return losses

    def steps_of(self, skipped):
        """The samples of each step of a run that skips `skipped`."""
        order = iter(sample for sample in range(1000) if sample not in skipped)
        return [[next(order) for _ in range(size)] for size in SIZES]

    def assert_trained_on(self, steps, run, losses):
        for step, (samples, found) in enumerate(zip(steps, self.losses(run)), 1):
            self.assertAlmostEqual(found, sum(losses[i] for i in samples) / len(samples), 5, f"{run}, step {step}")

    def data(self, name, *words):
        done = start("data", *self.words(name, words), "--json", "-")
        self.assertEqual(done.code, 0, done)
        return json.loads(done.out)

    def test_a_run_uses_the_samples_that_follow_on_any_number_of_ranks_and_after_a_resume(self):
        losses = self.sample_losses()
        skip, more = "data.skip=[3-7, 20]", "data.skip=[3-7, 20, 33-40, 47]"
        few, all_of_them = {*range(3, 8), 20}, {*range(3, 8), 20, *range(33, 41), 47}
        base = (*FROZEN, *SCHEDULE, "checkpoint.every_steps=2", "checkpoint.keep=9")
        short = (*base, "run.steps=6")
        for ranks in (1, 4):
            self.train_well(*short, skip, ranks=ranks, name=f"on-{ranks}")
            self.assert_trained_on(self.steps_of(few), f"on-{ranks}", losses)
        self.assertEqual(self.losses("on-1"), self.losses("on-4"))
        self.assertEqual(self.column("tokens", "steps", "on-4")[-1], 16 * sum(SIZES))

        # Resume from the checkpoint of step 2, the last one before sample 33, with more ranges and another number of ranks.
        for step in (4, 6):
            shutil.rmtree(os.path.join(self.path("on-4"), "checkpoints", f"step-{step:08d}"))
        self.train_well(*short, more, ranks=3, name="on-4")
        self.assert_trained_on(self.steps_of(all_of_them), "on-4", losses)
        self.assertEqual(self.column("tokens", "steps", "on-4")[-1], 16 * sum(SIZES))

        # `trireme data` reports the same samples, for steps before and after the resume.
        for step, samples in enumerate(self.steps_of(all_of_them), 1):
            found = self.data("on-4", *short, more, "--step", str(step))
            self.assertEqual([row["sample"] for row in found], samples)

        # data.skip must not change for samples before the checkpoint.
        self.assert_refused(self.train(*base, "run.steps=8", "data.skip=[3-7, 19]", name="on-4"), 2, 
                            "data.skip: [\"3-7\", \"19\"] differs from [\"3-7\", \"20\", \"33-40\", \"47\"] among the 63 samples before ")
        refused = start("data", *self.words("on-4", (*short, skip)), "--step", "1")
        self.assert_refused(refused, 2, "data.skip: [\"3-7\", \"20\"] differs from [\"3-7\", ")

    def test_documents_of_a_step_and_steps_of_a_document(self):
        lines = os.path.join(self.path("text"), "b.jsonl")
        os.remove(os.path.join(self.text, "a.txt"))
        with open(lines, "w", encoding="ascii") as out:
            for i in range(300):
                out.write(json.dumps({"text": f"{i} " * (1 + i % 9)}) + "\n")
        words = ("data.train.field=text", "run.steps=60", "data.validation.by=documents")
        found = self.data("run", *words, "--step", "2,40-41")
        self.assertEqual(sorted({row["step"] for row in found}), [2, 40, 41])
        self.assertEqual(sum(row["tokens"] for row in found), 3 * 12 * 17)
        with open(lines, "rb") as file:
            for row in found:
                file.seek(row["byte"])
                text = json.loads(file.readline())["text"]
                self.assertLessEqual(row["from"] + row["tokens"], len(text) + 1)  # plus a line feed
        row = next(row for row in found if row["step"] == 40)
        place = f"{row['file']}:{row['byte'] + 5}"
        uses = self.data("run", *words, "--document", place)
        self.assertIn(row, uses)
        for use in uses:  # the reverse query finds it too
            self.assertIn(use, self.data("run", *words, "--step", str(use["step"])))

        # With its samples skipped, no step uses the document. Other samples take their place and may contain it in a later epoch.
        skip = sorted(use["sample"] for use in uses)
        left = self.data("run", *words, f"data.skip={skip}", "--document", place)
        self.assertFalse({use["sample"] for use in left} & set(skip))

    def test_mistakes_are_named(self):
        text = os.path.join(self.text, os.listdir(self.text)[0])
        for words, *parts in ((("data.skip=[9-8]",), "command line:3:12: error: data.skip[0]: 9-8 ends before it begins. Exchange its numbers."),
                              (("data.skip=[5, 4-6]",), "command line:3:15: error: data.skip[1]: 4-6 overlaps an earlier element. Give each sample once."),
                              (("data.skip=[144]",), "144 is not reached: the last sample of the run is 143."),
                              (("data.skip=[x]",), "x is not a sample or a range of samples. Write 4000 or 4000-4999.")):
            self.assert_refused(self.train(*words), 2, *parts)
        for words, part in ((("--step", "13"), "--step 13: the deck states the samples of steps 1 to 12"), (("--step", "0"), "--step 0: "),
                            (("--step", "3-1"), "--step: '3-1' is not a number or a range of them"), ((), "give either --step or --document"),
                            (("--document", "a.txt"), "--document: 'a.txt' is not FILE:OFFSET"), (("--document", "/no/file:0"), "the training data do not have it"),
                            (("--document", f"{DECK}:0"), "the training data do not have it"),
                            (("--document", f"{text}:{os.path.getsize(text)}"), "the training data do not have it")):
            self.assert_refused(start("data", *self.words("run", ()), *words), 2, part)
        self.assertFalse(os.path.exists(self.path("run")), "a question writes nothing")

    def test_plan_states_what_is_skipped(self):
        plan = start("plan", *self.words("run", ("data.skip=[3-7, 100]",)))
        self.assertIn("data.skip: 6 samples of 16 tokens are left out, 96 tokens together", plan.out, plan)
