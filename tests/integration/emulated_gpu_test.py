# SPDX-License-Identifier: Apache-2.0
"""Whole runs and benches on emulated GPUs (tests/emulated_gpu), one per rank, with the emulated NCCL: the losses of the CPU, the same bits
with any sharding, and an error message when a collective fails or never ends."""
import json
import os
import re
import unittest

import h5py
from harness import TrainingTest, start

SMALL = ("model.layers=1", "model.channels=16", "model.context=8", "batch.sequences=4", "run.steps=3", "optimizer.schedule.warmup_steps=1",
         "parallel.reduction=sum", "evaluate.every_steps=0", "checkpoint.every_steps=3")


class EmulatedGpu(TrainingTest):
    def assert_losses_near(self, name, other, largest):
        mine, theirs = self.losses(name), self.losses(other)
        self.assertEqual(len(mine), 3)
        for a, b in zip(mine, theirs):
            self.assertLess(abs(a - b), largest * b, f"{name}: {mine}, {other}: {theirs}")

    def test_losses_and_bits(self):
        self.train_well(*SMALL, "run.device=cpu", ranks=1, name="cpu")
        self.train_well(*SMALL, "run.device=cuda", ranks=2, name="sharded")
        plain = ("parallel.shard=none", "parallel.overlap_gradients=false", "parallel.overlap_parameters=false",
                 "parallel.cached_shards=false", "parallel.register_buffers=false", "gpu.graphs=false", "parallel.bucket_elements=2000")
        self.train_well(*SMALL, "run.device=cuda", *plain, ranks=2, name="whole")
        self.assert_losses_near("sharded", "cpu", 1e-6)
        self.assertEqual(self.losses("sharded"), self.losses("whole"))
        self.assertEqual(self.weights(3, "sharded"), self.weights(3, "whole"))

    def test_a_model_larger_than_the_gpu_is_refused_before_anything_is_allocated(self):
        run = self.train("model.layers=64", "model.heads=32", "model.channels=4096", "run.device=cuda", ranks=2, name="large")
        self.assertEqual(run.code, 3, run)
        self.assertRegex(run.err, r"a rank needs [0-9.]+ GiB, but the GPU allows it (16|15\.\d+) GiB\. .*a rank")

    def test_gradients_and_parameters_in_shards_have_the_bits_of_one_reduction_per_micro_step(self):
        small = (*SMALL, "run.device=cuda", "parallel.bucket_elements=2000")
        self.train_well(*small, "parallel.reduce_every=micro_step", ranks=2, name="micro_step")
        for shard in ("gradients", "parameters", "parameters parallel.reshard_after_forward=false"):
            for graphs in ("true", "false"):
                name = f"{shard}-{graphs}"
                self.train_well(*small, *f"parallel.shard={shard}".split(), f"gpu.graphs={graphs}", ranks=2, name=name)
                self.assertEqual(self.losses(name), self.losses("micro_step"), name)
                self.assertEqual(self.weights(3, name), self.weights(3, "micro_step"), name)

    def test_copies_have_the_losses_of_the_cpu_and_the_same_bits_in_shards(self):
        """Two replicas of two ranks, each rank with its own GPU: gradients are summed within a replica, then across."""
        small = (*SMALL, "parallel.bucket_elements=2000", "parallel.reduce_every=micro_step")
        copies = ("run.device=cuda", "parallel.replicate=2")
        four = ("env", "TRIREME_EMULATED_GPUS=4")
        self.train_well(*small, "run.device=cpu", name="cpu")
        for shard in ("optimizer", "gradients", "parameters", "parameters parallel.reshard_after_forward=false"):
            for graphs in ("true", "false"):
                name = f"{shard}-{graphs}"
                run = self.train_well(*small, *copies, *f"parallel.shard={shard}".split(), f"gpu.graphs={graphs}", ranks=4, name=name, prefix=four)
                self.assertIn("4 ranks with 2 copies over nccl", run.out)
                self.assert_losses_near(name, "cpu", 1e-6)
                self.assertEqual(self.losses(name), self.losses("optimizer-true"), name)
                self.assertEqual(self.weights(3, name), self.weights(3, "optimizer-true"), name)

    def test_local_steps_of_different_replicas_have_the_losses_of_the_cpu(self):
        """Replicas of two ranks and of one: what ranks of both replicas own is sent between GPUs."""
        local = (*SMALL, "parallel.replicate=2", "optimizer.outer.local_steps=2", "parallel.bucket_elements=2000", "batch.sequences=12")
        for dtype, *more in (("fp32",), ("int8", "parallel.shard=parameters"), ("bf16", "optimizer.kind=muon")):
            words = [word for word in (*local, f"optimizer.outer.dtype={dtype}", *more) if word != "batch.sequences=4"]
            self.train_well(*words, "run.device=cpu", ranks=3, name=f"cpu-{dtype}")
            run = self.train_well(*words, "run.device=cuda", ranks=3, name=dtype, prefix=("env", "TRIREME_EMULATED_GPUS=3"))
            self.assertIn("3 ranks with 2 copies over nccl", run.out)
            self.assert_losses_near(dtype, f"cpu-{dtype}", 1e-3 if dtype == "int8" else 1e-5)

    def test_muon_has_the_losses_of_the_cpu_and_the_same_bits_in_shards(self):
        muon = (*SMALL, "optimizer.kind=muon", "parallel.bucket_elements=2000")
        self.train_well(*muon, "run.device=cpu", ranks=1, name="cpu")
        for products in ("fp32", "bf16"):
            for shard in ("none", "optimizer", "parameters"):
                self.train_well(*muon, "run.device=cuda", f"optimizer.muon.product_dtype={products}", f"parallel.shard={shard}",
                                *(("parallel.reduce_every=micro_step",) if shard != "parameters" else ()), ranks=2, name=f"{products}-{shard}")
                self.assertEqual(self.losses(f"{products}-{shard}"), self.losses(f"{products}-none"), shard)
                self.assertEqual(self.weights(3, f"{products}-{shard}"), self.weights(3, f"{products}-none"), shard)
            self.assert_losses_near(f"{products}-none", "cpu", {"fp32": 1e-5, "bf16": 1e-2}[products])

    def test_bf16_is_near_and_its_speed_is_reported(self):
        self.train_well(*SMALL, "run.device=cpu", "model.dropout=0", ranks=1, name="cpu")
        self.train_well(*SMALL, "run.device=cuda", "model.dropout=0", "run.precision=bf16", ranks=1, name="bf16")
        self.assert_losses_near("bf16", "cpu", 1e-2)
        told = start("speed", self.path("bf16"), "--h5", self.path("table.h5"))
        self.assertEqual(told.code, 0, told)
        with h5py.File(self.path("table.h5"), "r") as table, h5py.File(self.path("bf16/run.h5"), "r") as record:
            self.assertEqual(table["speed"]["memory"][0], record["memory"].attrs["peak_device"])
            self.assertIn("GPU", table["speed"]["device"].asstr()[0])

    def test_old_cudnn_goes_without_graphs_and_reports_it(self):
        small = (*SMALL, "run.device=cuda", "model.dropout=0", "run.precision=bf16")
        old = ("env", "TRIREME_EMULATED_CUDNN=91501")
        self.assertIn("gpu.graphs: off: cuDNN 9.15.1 with a context of 8", self.train_well(*small, ranks=2, name="old", prefix=old).out)
        self.assertNotIn("gpu.graphs", self.train_well(*small, ranks=2, name="new").out)
        self.assertEqual(self.losses("old"), self.losses("new"))
        self.assert_refused(self.train(*small, "gpu.graphs=true", name="refused", prefix=old), 3, "gpu.graphs: true", "cuDNN 9.15.1")

    def test_the_doctor_lists_links_and_what_is_expected_of_nccl(self):
        path = self.path("doctor.json")
        told = start("doctor", "--directory", self.folder, "--json", path, ranks=2, prefix=("env", "NCCL_P2P_DISABLE=0"))
        self.assertEqual(told.code, 0, told)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertRegex(report["nccl"], r"^2\.\d+\.\d+$")
        self.assertEqual([(pair["ranks"], pair["link"], pair["expected"]) for pair in report["gpu_pairs"]],
                         [([0, 1], "peer access with atomics, performance rank 0", "P2P")])
        self.assertIn("NCCL_P2P_DISABLE=0", report["nccl_settings"])
        self.assertIn("peer access with atomics, performance rank 0 between ranks 0-1", told.out)

    def test_a_fit_of_cpus_is_refused_where_a_run_would_take_gpus(self):
        machine = self.path("machine.yaml")
        for overrides in (["run.device=auto"], ["run.device=cuda"]):
            told = start("bench", "reduce", *self.words("fit", [*SMALL, *overrides]), "--fit", machine, ranks=2)
            self.assert_refused(told, 2, "give run.device=cpu")
            self.assertFalse(os.path.exists(machine))

    def test_switches_of_products_and_loss(self):
        """On two ranks in bf16, sharded and with graphs. The emulated cuBLASLt adds up a row in the same order for any number of rows, so
        loss_rows does not change the bits. Bias gradients are added in another order, and a separate gradient of GELU rounds once more."""
        small = ("model.layers=1", "model.channels=16", "model.context=64", "batch.sequences=4", "run.steps=3", "batch.micro_sequences=2",
                 "optimizer.schedule.warmup_steps=1", "parallel.reduction=sum", "evaluate.every_steps=0", "checkpoint.every_steps=3",
                 "run.device=cuda", "model.dropout=0", "run.precision=bf16", "parallel.bucket_elements=2000")
        self.train_well(*small, ranks=2, name="usual")
        self.train_well(*small, "model.loss_rows=48", ranks=2, name="loss-rows")
        self.assertEqual(self.losses("loss-rows"), self.losses("usual"))
        self.assertTrue(self.have_the_same_weights("loss-rows", "usual"))
        every = ("gpu.fused_bias_gradients=true", "gpu.fused_gelu_backward=false", "gpu.fused_gelu=false", "model.loss_rows=48")
        for name, largest, switches in (("bias", 1e-4, every[:1]), ("gelu", 1e-2, every[1:2]), ("every", 1e-2, every)):
            self.train_well(*small, *switches, ranks=2, name=name)
            self.assert_losses_near(name, "usual", largest)
            self.assertFalse(self.have_the_same_weights(name, "usual"), f"{name} changed nothing")
        self.train_well(*small, *every, "parallel.shard=none", "gpu.graphs=false", ranks=2, name="whole")
        self.assertEqual(self.losses("whole"), self.losses("every"))
        self.assertTrue(self.have_the_same_weights("whole", "every"))

    def have_the_same_weights(self, name, other):
        return self.weights(3, name) == self.weights(3, other)

    def test_switches_of_bf16_leave_fp32_alone(self):
        small = (*SMALL, "run.device=cuda")
        self.train_well(*small, name="usual")
        self.train_well(*small, "gpu.fused_bias_gradients=true", "gpu.fused_gelu_backward=false", "gpu.fused_gelu=false", name="turned")
        self.assertEqual(self.losses("turned"), self.losses("usual"))
        self.assertTrue(self.have_the_same_weights("turned", "usual"))

    def rows(self, *words, ranks=1):
        path = self.path(f"rows{len(os.listdir(self.folder))}.json")
        run = start(*words, "--repetitions", "1", "--json", path, ranks=ranks)
        self.assertEqual(run.code, 0, run)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertTrue(rows and all(row["seconds"] > 0 for row in rows), rows)
        return rows

    def test_benches_measure_the_gpu(self):
        deck = self.words("none", [*SMALL, "run.device=cuda", "run.precision=bf16", "model.dropout=0"])
        ways = {(row["layer"], row["pass"], row["how"]) for row in self.rows("bench", "matmul", *deck)}
        self.assertEqual({way[:2] for way in ways if way[2] == "plain"}, {("fc", "forward"), ("mlp_projection", "input")})
        self.assertEqual({way[2] for way in ways}, {"step", "plain"})
        shares = {row["op"]: row["share"] for row in self.rows("bench", "ops", *deck)}
        self.assertLessEqual({"fc.forward", "attention.forward", "attention.backward", "layer_norm.forward", "layer_norm.backward", "adamw"},
                             set(shares))
        self.assertGreater(min(shares.values()), 0)
        self.assertEqual({row["operation"] for row in self.rows("bench", "pool", "--device", "cuda", "--bytes", "4096")},
                         {"lease", "cudaMalloc", "cudaMallocAsync", "allocate"})
        sent = self.rows("bench", "reduce", "--transport", "nccl", "--bytes", "4096", ranks=2)
        self.assertEqual([(row["operation"], row["transport"]) for row in sent],
                         [("reduce_scatter", "nccl"), ("all_gather", "nccl"), ("all_reduce", "nccl"), ("memcpy", "none")])

    def test_benches_show_what_switches_choose_between(self):
        """Rows for the alternative position of a switch are present too, with 0 times per step."""
        deck = self.words("none", ["model.layers=1", "model.channels=16", "model.context=512", "batch.sequences=1", "parallel.reduction=sum",
                                   "run.device=cuda", "run.precision=bf16", "model.dropout=0"])
        pairs = {"gpu.fused_gelu": (("fc.forward with gelu",), ("fc.forward", "gelu.forward")),
                 "gpu.fused_gelu_backward": (("mlp_projection.input_gradient with gelu",), ("mlp_projection.input_gradient", "gelu.backward")),
                 "gpu.fused_bias_gradients": (("qkv.weight_gradient with bias", "fc.weight_gradient with bias"),
                                              ("qkv.weight_gradient", "qkv.bias_gradient", "fc.weight_gradient", "fc.bias_gradient")),
                 "model.loss_rows": (("head.forward, cross_entropy by 256 rows",), ("head.forward", "cross_entropy"))}
        for position, value in (("true", "256"), ("false", "0")):
            words = [f"{switch}={position if switch.startswith('gpu.') else value}" for switch in pairs]
            counts = {row["op"]: row["per_step"] for row in self.rows("bench", "ops", *deck, *words)}
            for switch, (fused, apart) in pairs.items():
                chosen, other = (fused, apart) if position == "true" else (apart, fused)
                self.assertEqual({op: counts[op] for op in chosen}, {op: 1 for op in chosen}, switch)
                self.assertEqual({op: counts[op] for op in other}, {op: 0 for op in other}, switch)
        hows = {(row["layer"], row["pass"], row["how"]) for row in self.rows("bench", "matmul", *deck, "gpu.fused_bias_gradients=true")}
        for layer in ("qkv", "fc"):
            self.assertLessEqual({(layer, "weight", "step"), (layer, "weight", "plain")}, hows)
        self.assertNotIn(("attention_projection", "weight", "plain"), hows)  # a layer norm sums the gradient of that bias

    def assert_ends(self, fault, pattern):
        """With a fault in the third operation of rank 1, the run ends with an error message. The messages of other ranks may be incomplete,
        because the launcher ends them. The deadline is that of watchdog_test, for machines that stall."""
        run = self.train(*SMALL, "run.device=cuda", "parallel.deadline=8", ranks=2, prefix=("env", f"TRIREME_EMULATED_NCCL_FAULT={fault}:1:2"))
        self.assertEqual(run.code, 3, run)
        wanted = re.compile(r"^\[rank [01] \S+\] error: NCCL: (reduce_scatter|all_gather|all_reduce) of .+ " + pattern)
        self.assertTrue(any(wanted.search(line) for line in run.errors), run)

    def test_a_broken_connection_ends_the_run(self):
        self.assert_ends("fail", r"failed: (unhandled system error|remote process exited).*; last: \S+")

    def test_a_rank_that_never_comes_ends_the_run(self):
        self.assert_ends("stall", r"has not ended for \d+ s; all ranks have enqueued it, but no data arrives; last: |"
                                  r"failed: remote process exited")


if __name__ == "__main__":
    unittest.main()
