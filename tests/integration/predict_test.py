# SPDX-License-Identifier: Apache-2.0
"""`bench reduce --fit`, `plan --machine` and dev/experiments/prediction.sh on the tiny deck: output and errors, not accuracy."""
import json
import os
import shutil
import subprocess

import h5py

from harness import DECK, HERE, TIMEOUT_S, TRIREME, TrainingTest, has_ulfm, start

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
        self.assertEqual(two["weak"], two["strong"])  # the deck's batch is meant for the first number of ranks
        self.assertGreater(two["strong"]["step_s"], two["strong"]["compute_s"])
        self.assertGreater(two["checkpoint_s"], 0)
        with open(self.path("machine.yaml"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"copy_s_per_byte: [1-9]")
        copied = self.rows("--ranks", "2", "parallel.on_lost_rank=shrink", "checkpoint.memory_every_steps=1")[2]["memory_copy_s"]
        self.assertEqual(copied is not None and 0 < copied < 1, has_ulfm())
        encoded = self.rows("--ranks", "2,1", "parallel.gradient_dtype=int8")
        self.assertEqual([encoded[ranks]["encoding_left_out"] for ranks in (1, 2)], [False, True])
        self.assertFalse(two["encoding_left_out"])
        tree = self.rows("--ranks", "2,8", "parallel.reduction=tree", "parallel.logical_shards=4")
        self.assertEqual(tree[8]["missing"], "parallel.logical_shards: 4 shards for 8 ranks")
        self.assertTrue(rows[1]["compute_carried_over"])
        self.assertGreater(rows[1]["strong"]["step_s"], rows[1]["weak"]["step_s"])
        self.assertIn("mpi among 2 ranks on 2 hosts", rows[4]["missing"])  # the machine has two ranks per host
        self.assertIsNone(rows[4]["weak"])
        another = self.rows("--ranks", "2", "model.layers=4")[2]
        self.assertTrue(another["compute_estimated"])
        self.assertGreater(another["strong"]["step_s"], two["strong"]["step_s"])

        self.fit(4)
        rows = self.rows("--ranks", "4,2")
        self.assertFalse(rows[4]["compute_carried_over"])
        self.assertFalse(rows[2]["links_carried_over"])
        many = self.rows("--ranks", "8")
        self.assertEqual(sorted(many), [2 ** power for power in range(13)])
        self.assertEqual([many[ranks]["hosts"] for ranks in (4, 8)], [1, 2])
        self.assertIsNone(many[16]["strong"])

    def check_bytes(self, ranks, *overrides):
        """The prediction for the fit sends as many bytes as the plan, and as a run according to its record of collectives."""
        row = self.rows("--ranks", str(ranks), *overrides)[ranks]
        self.assertEqual((row["missing"], row["links_carried_over"]), ("", False))
        step = row["strong"]
        self.assertGreaterEqual(step["step_s"], step["least_s"] * (1 - 1e-12))  # the same times are added in another order
        self.assertGreater(step["exposed_s"], 0)
        path = self.path("plan.json")
        self.assertEqual(self.plan("--ranks", str(ranks), "--json", path, *overrides).returncode, 0)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        os.remove(path)
        wire = plan["per_rank"]["fp32"]
        self.assertEqual(step["sent_bytes"], wire["gradient_wire_bytes"] + wire["parameter_wire_bytes"])
        run = start(DECK, f"data.train.text=[{self.text}]", BATCH, f"run.directory={self.path('run')}", "run.steps=5", *overrides,
                    ranks=ranks)
        self.assertEqual(run.code, 0, run)
        copies, each = plan["replicas"], ranks // plan["replicas"]
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            names = [name.decode() for name in file["timings/names"][:]]
            samples = file["timings/samples"][:]
        sent = 0
        for sample in samples[(samples["rank"] == 0) & (samples["step"] == 4)]:
            shard = 4 * plan["buckets"][sample["index"]]["shard_elements"] if names[sample["name"]] in ("reduce.bucket", "gather.bucket") else 0
            sent += shard * (each - 1)
            if names[sample["name"]] == "reduce.bucket":
                sent += 2 * (shard - shard // copies)
        self.assertEqual(step["sent_bytes"], sent)
        shutil.rmtree(self.path("run"))

    def test_layers_that_are_gathered(self):
        self.fit(2, "parallel.shard=parameters")
        self.check_bytes(2, "parallel.shard=parameters")
        self.check_bytes(2, "parallel.shard=parameters", "parallel.reshard_after_forward=false", "parallel.prefetch=2")
        self.check_bytes(2, "parallel.shard=parameters", "parallel.overlap_parameters=false", "parallel.overlap_gradients=false")

    def test_copies(self):
        copies = ("parallel.replicate=2", "parallel.reduction=sum")
        self.fit(4, "parallel.shard=parameters", *copies)
        self.check_bytes(4, "parallel.shard=parameters", *copies)
        rows = self.rows("--ranks", "4,2,1", "parallel.shard=parameters", *copies)
        self.assertIn("replicas of one rank have no shards", rows[2]["missing"])
        self.assertIsNone(rows[1]["memory_bytes"])
        self.check_bytes(4, "parallel.shard=optimizer", *copies)

    def test_local_steps_of_single_ranks(self):
        local = ("parallel.replicate=rank", "optimizer.outer.local_steps=2")
        self.fit(2, *local)
        row = self.rows("--ranks", "2", *local)[2]
        self.assertEqual((row["missing"], row["links_carried_over"]), ("", False))
        self.assertGreater(row["strong"]["step_s"], row["strong"]["compute_s"])

    def test_mistakes(self):
        def refused(text, *arguments):
            with open(self.path("machine.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
            done = self.plan("--machine", self.path("machine.yaml"), *arguments)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr

        self.assertIn("machine.yaml:2:1: error: cpu: unknown key: did you mean 'cpus'?", refused("version: 1\ncpu: 2\n"))
        self.assertIn("machine.yaml:1:10: error: a machine file of version 7", refused("version: 7\n"))
        self.assertIn("version 7", self.fit(2, code=2).err)  # reported before measuring
        self.assertEqual(self.plan("--machine", self.path("nowhere.yaml")).returncode, 2)
        several = self.plan("--ranks", "1,2")
        self.assertEqual(several.returncode, 2)
        self.assertIn("several numbers of ranks require --machine", several.stderr)
        self.assertEqual(start("bench", "reduce", "--fit", self.path("x.yaml")).code, 2)
        self.assertEqual(start("bench", "reduce", DECK).code, 2)

    def test_the_script_compares_prediction_and_measurement(self):
        script = os.path.join(HERE, "..", "..", "dev", "experiments", "prediction.sh")
        output = self.path("prediction.json")
        done = subprocess.run(["bash", script, "--steps", "12", "--rounds", "1", "--ranks", "2", "--per-rank", "4", "--output", output, DECK,
                               f"data.train.text=[{self.text}]"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(output, encoding="utf-8") as file:
            found = json.load(file)
        rows = found["rows"]
        self.assertEqual(found["facts"]["sequences per rank"], "4")
        self.assertEqual(sorted((row["ranks"], row["what"]) for row in rows),
                         [(2, what) for what in ("checkpoint", "checkpoint", "step, no overlap", "step, overlap")])
        self.assertGreater(min(min(row["predicted_s"], row["measured_s"]) for row in rows), 0)
        self.assertTrue(os.path.exists(self.path("prediction.png")) and os.path.exists(self.path("prediction.md")))
