# SPDX-License-Identifier: Apache-2.0
"""The memory in the record matches the prediction of `trireme plan`, part by part. The optimizer's part is proportional to 1 / ranks."""
import json
import os
import subprocess
import unittest

import h5py

from harness import TIMEOUT_S, TRIREME, TrainingTest

LOCAL = ("optimizer.outer.local_steps=2", "parallel.replicate=rank", "parallel.shard=optimizer", "parallel.reduction=sum")


class Memory(TrainingTest):
    def planned(self, ranks, *overrides, steps=5):
        path = self.path(f"plan{ranks}.json")
        subprocess.run([TRIREME, "plan", *self.words("none", [f"run.steps={steps}", *overrides]), "--ranks", str(ranks), "--json", path],
                       check=True, capture_output=True, timeout=TIMEOUT_S)
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        os.remove(path)
        return plan

    def recorded(self, ranks, *overrides, steps=5):
        name = f"run{len(os.listdir(self.folder))}"
        self.train_well(f"run.steps={steps}", "evaluate.every_steps=0", *overrides, ranks=ranks, name=name)
        with h5py.File(os.path.join(self.path(name), "run.h5"), "r") as file:
            return dict(file["memory"].attrs)

    def compared(self, ranks, *overrides, precision="fp32", steps=5):
        """Returns the plan and the record after checking that every part agrees."""
        overrides = (f"run.precision={precision}", *overrides)
        plan, record = self.planned(ranks, *overrides, steps=steps), self.recorded(ranks, *overrides, steps=steps)
        rank = plan["per_rank"][precision]
        self.assertEqual(record["gradients"], rank["gradient_bytes"], ranks)
        self.assertEqual(record["parameters"], rank["parameter_bytes"], ranks)
        slots = ("master", "moment1", "moment2", "outer_begin", "outer_momentum")
        self.assertEqual(record["optimizer"], sum(rank.get(f"{slot}_bytes", 0) for slot in slots), ranks)
        self.assertEqual(record.get("matrices", 0), rank.get("matrix_bytes", 0), ranks)
        self.assertEqual(record["activations"], rank["activation_bytes"], ranks)
        self.assertEqual(record["scratch"], rank["scratch_bytes"], ranks)
        self.assertEqual(record["snapshot"], rank["snapshot_bytes"], ranks)
        self.assertEqual(record["peers"], rank["peer_bytes"], ranks)
        return plan, record

    def test_the_record_holds_what_was_planned(self):
        for ranks in (1, 2, 4):
            plan, record = self.compared(ranks)
            # Two fp32 moments for this rank's shard of the parameters and of the padding.
            self.assertEqual(record["optimizer"] * ranks, 8 * (plan["parameter_elements"] + plan["padding_elements"]), ranks)
            self.assertLess(plan["padding_elements"], plan["parameter_elements"] / 10)

    def test_matrices_of_muon_are_held_as_planned(self):
        for ranks, shard in ((1, "optimizer"), (2, "none"), (3, "optimizer")):
            _, record = self.compared(ranks, "optimizer.kind=muon", f"parallel.shard={shard}")
            self.assertGreater(record["matrices"], 0)

    def test_every_family_is_held_as_planned(self):
        qwen3 = ("model.family=qwen3", "model.key_value_heads=1", "model.head_channels=24")
        for ranks, words in ((1, ("model.family=llama",)), (2, qwen3), (2, (*qwen3, "model.recompute=block")),
                             (2, ("model.layers=4", "model.recompute=[block, gelu, none, block]")),
                             (2, ("model.family=nanochat",))):
            self.compared(ranks, *words)

    def resident(self, ranks, shard, precision="fp32"):
        """Peak memory of a run minus that of a minimal run on as many ranks. It must be within 3 % of the plan."""
        if ranks not in self.nothing:
            self.nothing[ranks] = self.compared(ranks)[1]["peak_resident"]
        # Larger than libraries and tokens. The kernel maps 64 KiB around reads of other ranks' memory: few, large buckets.
        plan, record = self.compared(ranks, "model.channels=640", "model.layers=6", f"batch.sequences={2 * ranks if LOCAL[0] in shard else ranks}", "checkpoint.every_steps=0",
                                     "parallel.bucket_elements=auto", "optimizer.schedule.warmup_steps=0", "record.spans=false", *shard, precision=precision, steps=2)
        rank = plan["per_rank"][precision]
        planned = rank["whole_bytes"] + rank["peer_bytes"]
        found = record["peak_resident"] - self.nothing[ranks]
        print(f"{ranks} ranks, {precision}, {' '.join(shard)}: {found} bytes, {100 * (found / planned - 1):+.2f} % of {planned} planned")
        self.assertGreater(planned, 2 * self.nothing[ranks])
        self.assertLess(abs(found - planned), 0.03 * planned)
        return found

    def test_what_is_resident_is_what_was_planned(self):
        self.nothing = {}
        every = (*((f"parallel.shard={shard}",) for shard in ("none", "optimizer", "gradients", "parameters")),
                 ("parallel.shard=parameters", "parallel.reshard_after_forward=false"))
        for ranks, choices in ((1, every[:1]), (2, every), (3, every[3:4]), (4, every[2:4])):
            found = {}
            for shard in choices:
                with self.subTest(ranks=ranks, shard=shard):
                    found[shard] = self.resident(ranks, shard)
            if choices == every and len(found) == len(every):
                none, optimizer, gradients, parameters, kept = found.values()
                self.assertLess(optimizer, none)
                self.assertLess(gradients, optimizer)
                self.assertLess(parameters, min(gradients, kept))
        for ranks, precision, *words in ((2, "fp32", "parallel.shard=optimizer", "optimizer.moment_dtype=bf16"),
                                         (4, "fp32", "parallel.shard=parameters", "parallel.replicate=2"),
                                         (2, "bf16", "parallel.shard=optimizer", "parallel.gradient_dtype=bf16"),
                                         (2, "bf16", "parallel.shard=parameters", "parallel.gradient_dtype=bf16"),
                                         *((2, "fp32", *LOCAL, f"optimizer.outer.dtype={dtype}") for dtype in ("fp32", "bf16", "int8"))):
            with self.subTest(ranks=ranks, precision=precision, words=words):
                self.resident(ranks, words, precision)

    def test_shards_of_gradients_are_held_as_planned(self):
        for ranks, words in ((1, ()), (2, ("parallel.bucket_elements=1",)), (4, ()), (3, ("parallel.gradient_dtype=bf16",)),
                             (2, ("optimizer.kind=muon",))):
            plan, record = self.compared(ranks, "parallel.shard=gradients", *words)
            own = plan["shard_choices"]["gradients"]["fp32"]["held_bytes"]
            self.assertEqual(own, plan["per_rank"]["fp32"]["held_bytes"])

    def test_shards_of_parameters_are_held_as_planned(self):
        for ranks, words in ((1, ()), (2, ("parallel.bucket_elements=1",)), (4, ("parallel.prefetch=2",)), (3, ("model.layers=5",)),
                             *((ranks, ("parallel.reshard_after_forward=false",)) for ranks in (1, 2, 3, 4))):
            plan, _ = self.compared(ranks, "parallel.shard=parameters", *words)
            own = plan["shard_choices"]["parameters"]["fp32"]["held_bytes"]
            self.assertEqual(own, plan["per_rank"]["fp32"]["held_bytes"])
        self.compared(2, "parallel.shard=parameters", precision="bf16")

    def test_copies_are_held_as_planned(self):
        for shard, words in (("optimizer", ()), ("gradients", ("optimizer.kind=muon",)), ("parameters", ()),
                             ("optimizer", ("parallel.reduction=sum", "parallel.gradient_dtype=bf16"))):
            _, record = self.compared(4, "parallel.replicate=2", f"parallel.shard={shard}", "checkpoint.asynchronous=true", *words)
            self.assertGreater(record["snapshot"], 0)

    def test_compressed_gradients_are_held_as_planned(self):
        for ranks, shard, words in ((2, "none", ("checkpoint.asynchronous=true",)), (3, "optimizer", ("checkpoint.asynchronous=true",)),
                                    (2, "optimizer", ("parallel.error_feedback=false",)), (1, "none", ())):
            for word in ("gradient_dtype=int8", "gradient_rank=4"):
                self.compared(ranks, f"parallel.{word}", f"parallel.shard={shard}", *words)
        self.compared(3, "parallel.gradient_rank=4", "parallel.reduction=tree", "parallel.logical_shards=8", "batch.sequences=24")

    def test_bf16_adds_masters_to_half_the_parameters(self):
        plan, record = self.compared(2, precision="bf16")
        self.assertEqual(record["optimizer"] * 2, 12 * (plan["parameter_elements"] + plan["padding_elements"]))
        self.assertEqual(record["parameters"], 2 * (plan["parameter_elements"] + plan["padding_elements"]))

    def test_moments_in_bf16_are_held_as_planned(self):
        wide, _ = self.compared(2, "checkpoint.asynchronous=true")
        for ranks, words in ((2, ()), (3, ("parallel.shard=parameters",)), (2, ("optimizer.kind=muon",))):
            plan, record = self.compared(ranks, "optimizer.moment_dtype=bf16", "checkpoint.asynchronous=true", *words)
            if not words:
                ours, theirs = plan["per_rank"]["fp32"], wide["per_rank"]["fp32"]
                self.assertEqual(2 * ours["moment1_bytes"], theirs["moment1_bytes"])
                self.assertEqual(2 * ours["moment2_bytes"], theirs["moment2_bytes"])
                self.assertEqual(3 * ours["snapshot_bytes"], 2 * theirs["snapshot_bytes"])

    def test_an_optimizer_that_is_not_sharded_is_held_whole(self):
        plan, record = self.compared(2, "parallel.shard=none")
        self.assertEqual(record["optimizer"], 8 * (plan["parameter_elements"] + plan["padding_elements"]))

    def test_a_snapshot_is_held_where_the_run_does_not_wait(self):
        held = "checkpoint.every_steps=5"
        _, record = self.compared(2, held, "checkpoint.asynchronous=true")
        self.assertGreater(record["snapshot"], 0)
        _, record = self.compared(2, held, "checkpoint.asynchronous=false")
        self.assertEqual(record["snapshot"], 0)

    def test_the_record_has_the_buckets_of_every_start(self):
        self.train_well("run.steps=6", "evaluate.every_steps=0", ranks=2)
        self.train_well("run.steps=8", "evaluate.every_steps=0", ranks=3)
        with h5py.File(self.path("run/run.h5"), "r") as file:
            columns = {name: list(values.asstr()[:] if values.dtype == object else values[:])
                       for name, values in file["buckets"].items()}
        expected = [(first_step, bucket, row["parameters"][0], row["parameters"][-1], row["elements"], row["padding"],
                     row["shard_elements"])
                    for first_step, ranks in ((1, 2), (7, 3)) for bucket, row in enumerate(self.planned(ranks)["buckets"])]
        self.assertEqual(list(zip(*(columns[name] for name in ("first_step", "bucket", "first_parameter", "last_parameter",
                                                               "elements", "padding", "shard_elements")))), expected)


if __name__ == "__main__":
    unittest.main()
