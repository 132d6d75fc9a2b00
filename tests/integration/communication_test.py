# SPDX-License-Identifier: Apache-2.0
"""dev/experiments/communication.py on the tiny deck: the rows that it prints, and the errors that it reports."""
import csv
import os
import shutil
import subprocess
import sys

from harness import DECK, HERE, TIMEOUT_S, TrainingTest

SCRIPT = os.path.join(HERE, "..", "..", "dev", "experiments", "communication.py")


class CommunicationScript(TrainingTest):
    def compared(self, *words):
        return subprocess.run([sys.executable, SCRIPT, "--seeds", "1", "--output", self.path("runs"), *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_rows(self):
        done = self.compared("--methods", "fp32,int8", "--local", "2:int8", DECK, f"data.train.text=[{self.text}]", "record.every_steps=2",
                             "parallel.reduction=sum")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {row.pop("method"): {name: float(value) for name, value in row.items()} for row in csv.DictReader(done.stdout.splitlines())}
        self.assertEqual(list(rows), ["fp32", "int8", "2 local steps, int8"])
        for row in rows.values():
            self.assertGreater(row["seconds per batch"], 0)
            self.assertLess(row["loss after equal tokens"], 5.5)
        sent = [row["bytes sent per batch"] for row in rows.values()]
        self.assertEqual(sent, sorted(sent, reverse=True))

    def test_mistakes(self):
        for words, problem in ((("--methods", "fp64"), "'fp64' is none of fp32, bf16"), (("--local", "x"), "'x' is no number from 1 on"),
                               (("--ranks", "0"), "'0' is no number from 1 on")):
            done = self.compared(*words, DECK)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(problem, done.stderr)
        one = ("--methods", "fp32", "--local", "", DECK, f"data.train.text=[{self.text}]")
        for more, problem in (("evaluate.every_steps=0", "Give evaluate.every_steps=N"), ("model.layer=1", "did you mean"),
                              ("run.steps=3 optimizer.schedule.warmup_steps=0", "of 3 steps, the first 3 are a warm-up")):
            done = self.compared(*one, *more.split())
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(problem, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            shutil.rmtree(self.path("runs"), ignore_errors=True)
