# SPDX-License-Identifier: Apache-2.0
"""`trireme tune` on the tiny deck: what it measures, decides and writes. The gain cannot be checked on a busy machine."""
import json
import os
import re
import shutil
import signal
import subprocess

from harness import DECK, launch, start, TrainingTest


class Tune(TrainingTest):
    def setUp(self):
        super().setUp()
        with open(DECK, encoding="utf-8") as file:
            text = file.read().replace("directory: unset", f"directory: {self.path('run')}").replace("text: [unset]", f"text: [{self.text}]")
        self.deck = self.path("deck.yaml")
        with open(self.deck, "w", encoding="utf-8") as file:
            file.write("# my deck\n" + text + "# its end\n")

    def tune(self, *words, ranks=2, code=0):
        run = start("tune", self.deck, *words, ranks=ranks)
        self.assertEqual(run.code, code, run)
        return run

    def tuned(self, *words, ranks=2):
        """The report, the tuned deck, and the printed text."""
        run = self.tune(*words, "--seconds", "2", "--output", self.path("tuned.yaml"), "--json", self.path("tuned.json"), ranks=ranks)
        with open(self.path("tuned.json"), encoding="utf-8") as file:
            report = json.load(file)
        with open(self.path("tuned.yaml"), encoding="utf-8") as file:
            return report, file.read(), run.out

    @staticmethod
    def above(repeated):
        """Number of rounds in which the tuned deck was not faster than the original values."""
        return sum(a >= b for a, b in zip(repeated["measured_s"], repeated["own_measured_s"], strict=True))

    def check_decision(self, report):
        """Checks that the measured values were chosen according to the rules."""
        own = report["runs"][0]
        self.assertEqual(own["ratio"], 1)
        best = report["runs"][report["chosen"]]
        for run in report["runs"][1:]:
            self.assertLessEqual(run["memory_bytes"], report["memory_bytes"])
            self.assertEqual(len(run["measured_s"]), len(own["measured_s"]))
        repeated = report["repeated"]
        if report["chosen"] != 0:
            self.assertEqual(repeated["run"], report["chosen"])
            self.assertLessEqual(best["ratio"], 0.99)
            self.assertLessEqual(repeated["ratio"], 0.99)
            self.assertLessEqual(8 * self.above(repeated), len(repeated["measured_s"]))
        elif repeated is not None:
            self.assertTrue(repeated["ratio"] > 0.99 or 8 * self.above(repeated) > len(repeated["measured_s"]))

    def test_parameters_in_shards_and_copies(self):
        report, deck, _ = self.tuned("parallel.shard=parameters", "parallel.replicate=2", "parallel.reduction=sum", ranks=4)
        self.check_decision(report)
        self.assertEqual([run["transport"] for run in report["runs"]][:1], ["shared_memory"])
        self.assertIn("bucket_elements", deck)

    def test_a_deck_is_tuned_and_trains(self):
        report, deck, out = self.tuned()
        self.assertEqual((report["filetype"], report["ranks"], report["hosts"]), ("trireme-tune", 2, 1))
        self.check_decision(report)
        self.assertIn("settings were tried", out)
        # The user's text follows, with only the chosen values changed.
        comments, text = deck.split("\n\n", 1)
        self.assertTrue(all(line.startswith("#") for line in comments.splitlines()), comments)
        self.assertTrue(text.startswith("# my deck\n") and text.endswith("# its end\n"), text)
        with open(self.deck, encoding="utf-8") as file:
            before = file.read()
        if report["chosen"] == 0:
            self.assertEqual(text, before)
        for key, value in report["runs"][report["chosen"]]["values"].items():
            if value != report["runs"][0]["values"][key]:
                self.assertRegex(text, re.escape(f"{key.split('.')[1]}: {value}"))
        # No other file remains.
        self.assertEqual(sorted(os.listdir(self.folder)), ["deck.yaml", "text", "tuned.json", "tuned.yaml"])
        # A run that started with the deck can resume with the tuned deck, and with all other values of the last candidate.
        for steps, deck, values in ((4, self.deck, {}), (8, self.path("tuned.yaml"), {}), (12, self.deck, report["runs"][-1]["values"])):
            trained = start(deck, f"run.steps={steps}", "optimizer.schedule.steps=12", *(f"{key}={value}" for key, value in values.items()), ranks=2)
            self.assertEqual(trained.code, 0, trained)
            self.assertEqual("resumed from" in trained.out, steps > 4, trained)
        self.assertEqual(self.column("step", "steps"), list(range(1, 13)))

    def test_the_same_bits_on_demand(self):
        report, _, _ = self.tuned("--same-bits", ranks=3)
        self.check_decision(report)
        self.assertEqual({run["values"]["batch.micro_sequences"] for run in report["runs"]}, {"1"})
        self.assertFalse(any(run["changes_bits"] for run in report["runs"]))
        for name, deck in (("own", self.deck), ("tuned", self.path("tuned.yaml"))):
            run = start(deck, f"run.directory={self.path(name)}", ranks=3)
            self.assertEqual(run.code, 0, run)
        self.assertEqual(self.losses("own"), self.losses("tuned"))

    def test_one_rank_has_its_micro_batch(self):
        report, _, _ = self.tuned("parallel.reduction=tree", "parallel.logical_shards=4", "model.recompute=block", ranks=1)
        self.check_decision(report)
        for run in report["runs"]:
            self.assertIn(run["values"]["batch.micro_sequences"], ("1", "3"))  # 12 sequences in 4 leaves
            self.assertEqual(run["transport"], "self")

    def test_a_rank_with_few_leaves_has_micro_steps_to_measure(self):
        self.check_decision(self.tuned("parallel.reduction=tree", "parallel.logical_shards=8", "batch.sequences=64", ranks=5)[0])

    def test_bytes_for_recomputing_stay_bytes(self):
        limit = "{memory: 1 MiB}"
        with open(self.deck, encoding="utf-8") as file:
            text = file.read().replace("dropout: 0.1", f"dropout: 0.1, recompute: {limit}")
        with open(self.deck, "w", encoding="utf-8") as file:
            file.write(text)
        report, deck, _ = self.tuned()
        self.check_decision(report)
        self.assertIn(f"recompute: {limit}", deck)
        for run in report["runs"]:
            self.assertEqual(run["values"]["model.recompute"], limit)
            self.assertLessEqual(run["memory_bytes"], 1 << 20)

    def test_recomputation_is_the_least_that_fits(self):
        """One word if it is the same for all blocks, or bytes if only some blocks need it."""
        shape = ("model.layers=6", "batch.micro_sequences=6")
        whole = {}
        for recompute in ("none", "gelu", "block"):
            plan = self.path(f"{recompute}.json")
            self.assertEqual(start("plan", self.deck, *shape, f"model.recompute={recompute}", "--ranks", "2", "--json", plan).code, 0)
            with open(plan, encoding="utf-8") as file:
                whole[recompute] = json.load(file)["per_rank"]["fp32"]["whole_bytes"]
            os.remove(plan)
        for memory, found in ((2 * whole["none"], "none"), ((whole["gelu"] + whole["block"]) / 2, r"\{memory: \d+( [KMG]iB)?\}")):
            run = self.tune(*shape, "model.recompute=block", "--same-bits", "--seconds", "2", "--memory", str(memory / (1 << 30)))
            self.assertRegex(run.out, rf"micro-batches of 6 \(recompute: block\), 6 \(recompute: {found}\) sequences")

    def test_mistakes(self):
        self.tune("--output", self.deck, code=2)
        self.assertIn("this file exists already", self.tune("--json", self.deck, code=2).err)
        self.assertIn("usage: trireme tune", self.tune("--seconds", "0", code=2).err)
        self.assertIn("but may use only", self.tune("--memory", "0.0001", code=2).err)
        with open(self.deck, "w", encoding="utf-8") as file:
            file.write("{run: {directory: x, steps: 3},\n batch: {sequences: 4, micro_sequences: 1}, optimizer: {learning_rate: 1.0e-3},\n"
                       " model: {layers: 1, heads: 1, channels: 8, context: 8}, data: {train: {synthetic: 100000}}}\n")
        self.tuned(ranks=1)

    def test_an_interrupted_one_leaves_nothing(self):
        # The steps are long enough that the signal arrives before the measurement ends, even on a busy machine.
        command = [*launch(2), "tune", self.deck, "model.layers=12", "model.channels=512", "--seconds", "600", "--output", self.path("tuned.yaml")]
        temporary = self.path("temporary")
        os.mkdir(temporary)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "TMPDIR": temporary}) as running:
            self.addCleanup(running.kill)
            self.wait_for_line(running, "measuring")
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=120)
        self.assertNotEqual(running.returncode, 0)
        self.assertEqual([name for name in os.listdir(temporary) if name.startswith("trireme-")], [])
        shutil.rmtree(temporary)
        self.assertEqual(sorted(os.listdir(self.folder)), ["deck.yaml", "text"])
