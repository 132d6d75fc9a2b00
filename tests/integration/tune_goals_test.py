# SPDX-License-Identifier: Apache-2.0
"""dev/experiments/tune-goals.sh on the tiny deck, in shared memory and over a link: it tunes, runs both decks alternately and judges them.
Whether the goals are reached can be measured only on a quiet machine."""
import json
import os
import subprocess

from harness import DECK, HERE, TIMEOUT_S, TrainingTest


class TuneGoals(TrainingTest):
    def goals(self, *words):
        script = os.path.join(HERE, "..", "..", "dev", "experiments", "tune-goals.sh")
        return subprocess.run(["bash", script, *words, DECK, f"data.train.text=[{self.text}]"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_links_are_tuned_and_judged(self):
        output = self.path("goals.json")
        small = ("--seconds", "2", "--rounds", "1", "--steps", "6", "--output", output)
        done = self.goals("--links", "shared,200mbit", *small)
        links = ["shared", "200mbit"]
        if done.returncode == 3 and "no slow link here" in done.stderr:
            print(f"skipped: the link: {done.stderr.splitlines()[0]}")
            links.pop()
            done = self.goals("--links", "shared", *small)
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        with open(output, encoding="utf-8") as file:
            found = json.load(file)["links"]
        self.assertEqual([link["link"] for link in found], links)
        for link in found:
            self.assertEqual(len(link["rounds_s"]), 1 if link["chosen"] else 0)
            self.assertIn(f"| {link['link']} | ", done.stdout)
        self.assertEqual(done.returncode, 0 if all(all(link["goals"].values()) for link in found) else 1)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("tmp.")], [])

    def test_mistakes(self):
        for words in (("--links", "fast"), ("--steps", "3")):
            done = self.goals(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
        done = subprocess.run(["bash", os.path.join(HERE, "..", "..", "dev", "experiments", "tune-goals.sh"), DECK, "batch.micro_sequences=2"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("batch.micro_sequences=2: tune chooses this key", done.stderr)
