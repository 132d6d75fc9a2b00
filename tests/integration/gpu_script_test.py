# SPDX-License-Identifier: Apache-2.0
"""tests/gpu.sh on emulated GPUs: that the script works before a real GPU is at hand. Its items are a sample, with a model of seconds."""
import os
import subprocess
import unittest

from harness import HERE, TRIREME, TrainingTest

SCRIPT = os.path.join(HERE, "..", "gpu.sh")
SMALL = "model.layers=1 model.heads=1 model.channels=16 model.context=8 batch.sequences=6 batch.micro_sequences=1"


class GpuScript(TrainingTest):
    def gpu_sh(self, *words, **variables):
        """Exit code, verdicts by item, and what it printed."""
        results = self.path("results.txt")
        done = subprocess.run(["bash", SCRIPT, "--tree", os.path.dirname(TRIREME), "--results", results, *words], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=600, check=False,
                              env={**os.environ, "OPTIONS": SMALL, **variables})
        verdicts = {}
        if os.path.exists(results):
            with open(results, encoding="utf-8") as file:
                verdicts = {line[:28].strip(): line[28:].split()[0] for line in file if not line.startswith("#")}
        return done.returncode, verdicts, done.stdout + done.stderr

    def test_items_pass(self):
        listed = subprocess.run(["bash", SCRIPT, "--list"], capture_output=True, text=True, timeout=60, check=True).stdout.split()
        items = [item for item in listed if item.startswith(("one-step", "train-", "nccl-comm-2", "bench-"))]
        self.assertGreaterEqual(len(items), 20, listed)
        code, verdicts, out = self.gpu_sh("--minutes", "9", *items, TRIREME_EMULATED_GPUS="3")
        self.assertEqual(verdicts, {item: "passed" for item in items}, out)
        self.assertEqual(code, 0, out)

    def test_failures_and_limits_have_verdicts(self):
        code, verdicts, out = self.gpu_sh("--limit", "60", "one-step", "train-again", OPTIONS=f"{SMALL} model.wrong=1")
        self.assertEqual((code, verdicts), (1, {"one-step": "FAILED", "train-again": "FAILED"}), out)
        self.assertIn("model.wrong", out)
        self.assertEqual(self.gpu_sh("no-such-item")[0], 2)

    def test_without_a_gpu_it_is_skipped(self):
        code, verdicts, out = self.gpu_sh("one-step", TRIREME_EMULATED_GPUS="0")
        self.assertEqual((code, verdicts), (77, {"all of it": "skipped"}), out)


if __name__ == "__main__":
    unittest.main()
