# SPDX-License-Identifier: Apache-2.0
"""`bench reduce --fit`, `plan --machine` and jobs/prediction.sh on the tiny deck: what they write and refuse, not how near they come."""
import json
import os
import subprocess

from harness import DECK, HERE, TIMEOUT_S, TRIREME, TrainingTest, start

BATCH = "batch={sequences: 8, micro_sequences: 1}"


class Prediction(TrainingTest):
    def fit(self, ranks, *overrides, code=0):
        run = start("bench", "reduce", DECK, f"data.train.text=[{self.text}]", BATCH, *overrides, "--fit", self.path("machine.yaml"),
                    "--repetitions", "2", ranks=ranks)
        self.assertEqual(run.code, code, run)
        return run

    def plan(self, *arguments):
        return subprocess.run([TRIREME, "plan", DECK, f"data.train.text=[{self.text}]", BATCH, *arguments], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)

    def rows(self, *arguments):
        path = self.path("plan.json")
        done = self.plan("--machine", self.path("machine.yaml"), "--json", path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["scaling"]
        os.remove(path)
        return {row["ranks"]: row for row in rows}

    def test_a_fit_is_kept_and_predicts(self):
        self.fit(2)
        rows = self.rows("--ranks", "2,1,4")
        two = rows[2]
        self.assertEqual((two["hosts"], two["links_carried_over"], two["compute_carried_over"], two["compute_estimated"]),
                         (1, False, False, False))
        self.assertEqual(two["weak"], two["strong"])  # the deck's batch is that of the first number of ranks
        self.assertGreater(two["strong"]["step_s"], two["strong"]["compute_s"])
        self.assertGreater(two["checkpoint_s"], 0)
        self.assertTrue(rows[1]["compute_carried_over"])
        self.assertGreater(rows[1]["strong"]["step_s"], rows[1]["weak"]["step_s"])
        self.assertIn("mpi among 2 ranks on 2 hosts", rows[4]["missing"])  # the machine has two ranks per host
        self.assertIsNone(rows[4]["weak"])

        self.fit(1)
        rows = self.rows("--ranks", "1,2")
        self.assertFalse(rows[1]["compute_carried_over"])
        self.assertFalse(rows[2]["links_carried_over"])
        self.fit(4)
        many = self.rows("--ranks", "8")
        self.assertEqual(sorted(many), [2 ** power for power in range(13)])
        self.assertEqual([many[ranks]["hosts"] for ranks in (4, 8)], [1, 2])
        self.assertIsNone(many[16]["strong"])

    def test_another_model_is_an_estimate(self):
        self.fit(2)
        row = self.rows("--ranks", "2", "model.layers=4")[2]
        self.assertTrue(row["compute_estimated"])
        self.assertGreater(row["strong"]["step_s"], self.rows("--ranks", "2")[2]["strong"]["step_s"])

    def test_mistakes(self):
        def refused(text, *arguments):
            with open(self.path("machine.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
            done = self.plan("--machine", self.path("machine.yaml"), *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr

        self.assertIn("machine.yaml:2:1: error: cpu: unknown key; did you mean 'cpus'?", refused("version: 1\ncpu: 2\n"))
        self.assertIn("machine.yaml:1:10: error: a machine file of version 7", refused("version: 7\n"))
        self.assertIn("version 7", self.fit(2, code=2).err)  # before anything is measured
        self.assertEqual(self.plan("--machine", self.path("nowhere.yaml")).returncode, 2)
        several = self.plan("--ranks", "1,2")
        self.assertEqual(several.returncode, 2)
        self.assertIn("need --machine", several.stderr)
        self.assertEqual(start("bench", "reduce", "--fit", self.path("x.yaml")).code, 2)
        self.assertEqual(start("bench", "reduce", DECK).code, 2)

    def test_the_script_compares_prediction_and_measurement(self):
        script = os.path.join(HERE, "..", "..", "jobs", "prediction.sh")
        output = self.path("prediction.json")
        done = subprocess.run(["bash", script, "--steps", "5", "--rounds", "1", "--ranks", "1,2", "--output", output, DECK, BATCH,
                               f"data.train.text=[{self.text}]"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(output, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual(sorted((row["ranks"], row["setting"]) for row in rows),
                         [(ranks, setting) for ranks in (1, 2) for setting in ("no overlap", "overlap")])
        self.assertGreater(min(min(row["predicted_s"], row["measured_s"]) for row in rows), 0)
        self.assertTrue(os.path.exists(self.path("prediction.png")) and os.path.exists(self.path("prediction.md")))
