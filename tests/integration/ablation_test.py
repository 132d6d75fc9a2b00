# SPDX-License-Identifier: Apache-2.0
"""dev/experiments/ablation.sh on the tiny deck: every row is present, and the numbers of bytes are right. Speed is not checked."""
import os
import subprocess

import h5py
from harness import DECK, HERE, TIMEOUT_S, TrainingTest


class Ablation(TrainingTest):
    def test_every_row(self):
        script = os.path.join(HERE, "..", "..", "dev", "experiments", "ablation.sh")
        output = self.path("ablation.h5")
        done = subprocess.run(["bash", script, "--steps", "4", "--rounds", "1", "--output", output, DECK, f"data.train.text=[{self.text}]"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with h5py.File(output, "r") as file:
            rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
            steps = [group for group in file.values() if group.attrs["quantity"] == "step"]
            self.assertEqual(len(rows), 2 + len(file) + len(steps))  # two headings, all rows, and the communication of steps
            for group in steps:
                self.assertGreater(min(group.attrs["communication_s"].min(), group.attrs["compute_s"].min()), 0)
                self.assertTrue(all(0 <= share < 1 for share in group.attrs["exposed_share"]), group.name)
            for key, group in file.items():
                self.assertGreater(group["off"][:].min(), 0)
                self.assertEqual(group["on"][:].min() > 0, key != "pool_allocations", key)  # the pool is warm, so it allocates nothing
                if group.attrs["quantity"] == "step":  # two turns, with one step after warm-up in each
                    self.assertEqual([list(group[side][:]) for side in ("off_turn", "on_turn")], [[1, 2], [1, 2]])
            # One boundary: 12 800 elements up to it, 13 184 after it, and the tied embedding in a bucket of its own.
            self.assertEqual(file["boundaries"].attrs["off"], "parallel.bucket_boundaries=[h.0.mlp.proj.bias] parallel.bucket_elements=auto")
            # Megatron pads to 7 * 128 and 7 * 65536 on 7 ranks (four buckets), and to 65536 on 2. Each rank reduces a bucket once.
            padded = {key: (group["off"][0], group["on"][0]) for key, group in file.items() if key.startswith("padding_")}
            self.assertEqual(padded["padding_megatron_high_bandwidth_bytes"][1], 4 * 4 * 7 * 65536)
            self.assertEqual(padded["padding_megatron_bytes"], padded["padding_aligned_bytes"])
            self.assertLess(*padded["padding_aligned_bytes"])
            buckets, rest = divmod(padded["padding_megatron_high_bandwidth_memory"][1], 4 * 65536)
            self.assertEqual((rest, len(file["padding_megatron_high_bandwidth_bandwidth"]["on"])), (0, 2 * 2 * buckets))
            pool = {key: [list(group[side][:]) for side in ("off", "on")] for key, group in file.items() if key.startswith("pool_")}
            self.assertEqual(pool["pool_allocations"][1], [0, 0])  # one step after warm-up in each of two turns
            self.assertEqual(*pool["pool_scratch"])  # the switch does not change what a step takes from the pool
            self.assertEqual(len(pool["pool_growth"][0]), 2)
            self.assertEqual([file[key]["off"][0] / file[key]["on"][0] for key in ("sharded_bytes", "bf16_bytes", "accumulation_bytes")], [4, 2, 6])
        self.assertTrue(os.path.exists(self.path("ablation.png")) and os.path.exists(self.path("ablation.md")))
