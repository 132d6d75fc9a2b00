# SPDX-License-Identifier: Apache-2.0
"""Training from end to end: results must not depend on the number of ranks, restarts or switches."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

import h5py

from harness import STOP_SIGNAL, STOPPED, TIMEOUT_S, TRIREME, TrainingTest, start


PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class RankCounts(TrainingTest):
    def test_losses_of_50_steps_agree_on_1_to_4_ranks(self):
        reference = None
        for ranks in (1, 2, 3, 4):
            self.train_well("run.steps=50", "checkpoint.every_steps=0", "model.dropout=0.1", ranks=ranks, name=f"r{ranks}")
            losses = self.losses(f"r{ranks}")
            self.assertEqual(len(losses), 50)
            reference = reference or losses
            worst = max(abs(a - b) / b for a, b in zip(losses, reference))
            print(f"{ranks} ranks: largest relative difference of 50 losses to 1 rank {worst:.2e}")
            self.assertLess(worst, 1e-4)
        self.assertLess(reference[-1], 0.8 * reference[0])

    def test_more_ranks_than_cores(self):
        run = self.train_well("run.threads=4", ranks=6)
        self.assertEqual(len(self.losses()), 12)
        self.assertEqual((run.out + run.err).count("set run.threads"), 1, run)  # the warning applies to all ranks, and one prints it


class Bits(TrainingTest):
    known = {}

    def results(self, *words, ranks=2):
        """Losses and weights of a reference run, which several tests share."""
        if (words, ranks) not in self.known:
            name = f"known{len(self.known)}"
            self.train_well(*words, ranks=ranks, name=name)
            self.known[words, ranks] = self.losses(name), self.weights(12, name)
        return self.known[words, ranks]

    def test_a_resumed_run_equals_an_uninterrupted_one(self):
        for ranks in (1, 2):
            whole, parts = f"whole{ranks}", f"parts{ranks}"
            self.train_well(ranks=ranks, name=whole)
            shutil.copytree(self.path(whole), self.path(parts))
            shutil.rmtree(os.path.join(self.path(parts), "checkpoints", "step-00000012"))
            self.train_well(ranks=ranks, name=parts)
            self.assertEqual(self.weights(12, parts), self.weights(12, whole))
            self.assertEqual(self.losses(parts), self.losses(whole))
            self.assertEqual(self.column("step", "steps", parts), list(range(1, 13)))

    # `trireme verify` (verify_test.py) tests all combinations of switches in one process. Here whole runs change many switches at once.
    EVERY, WHOLE = "parallel.reduce_every=micro_step", "batch.micro_sequences=6"
    OFF = "parallel.overlap_gradients=false parallel.overlap_parameters=false parallel.cached_shards=false parallel.bucket_elements=1"

    def test_switches_do_not_change_the_numbers(self):
        _, reference = self.results()
        for switch in (f"{self.OFF} parallel.padding=none parallel.shard=none",
                       "parallel.bucket_elements=auto parallel.bucket_order=registration",
                       "parallel.bucket_elements=auto parallel.bucket_boundaries=[h.0.mlp.proj.bias]"):
            name = re.sub("[ =]", "-", switch)
            self.train_well(*switch.split(" "), ranks=2, name=name)
            self.assertEqual(self.weights(12, name), reference, switch)

    def test_one_reduction_per_micro_step_is_a_sum_in_another_order(self):
        """Same bits with all switches; those of one reduction per step if it has one micro-step, otherwise close to them."""
        (losses, weights), (each_losses, each_weights) = self.results(), self.results(self.EVERY)
        for ours, theirs in zip(each_losses, losses, strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)
        self.assertNotEqual(each_weights, weights)
        for switch in (f"{self.OFF} parallel.shard=none", "gpu.graphs=true"):
            name = re.sub("[ =]", "-", switch)
            self.train_well(self.EVERY, *switch.split(" "), ranks=2, name=name)
            self.assertEqual(self.weights(12, name), each_weights, switch)
        self.assertEqual(self.results(self.WHOLE, self.EVERY), self.results(self.WHOLE))

    def test_gradients_in_shards_have_the_bits_of_one_reduction_per_micro_step(self):
        _, each = self.results(self.EVERY)
        for switch in (self.OFF, "parallel.bucket_elements=auto gpu.graphs=true", "parallel.transport=mpi parallel.reduction=ordered"):
            name = re.sub("[ =]", "-", switch)
            self.train_well("parallel.shard=gradients", *switch.split(" "), ranks=2, name=name)
            self.assertEqual(self.weights(12, name), each, switch)
        self.assertEqual(self.results(self.WHOLE, "parallel.shard=gradients"), self.results(self.WHOLE))

    def test_parameters_in_shards_have_the_same_bits_and_say_the_same(self):
        """On 1 to 4 ranks, with uneven evaluation batches and with samples, for which all ranks work together."""
        more = ("evaluate.every_steps=4", "evaluate.batches=1", "evaluate.sets=[]", "sample.every_steps=12", "sample.tokens=20", "sample.prompt=the",
                "model.layers=4")

        def said(run):
            return run.out[run.out.index("sample after step 12:"):].split("\n\n")[0]

        for ranks in (1, 2, 3, 4):
            reference = f"gradients{ranks}"
            run = self.train_well(*more, "parallel.shard=gradients", ranks=ranks, name=reference)
            kept = "parallel.reshard_after_forward=false"
            switches = ("", f"{self.OFF} parallel.prefetch=0", "parallel.bucket_elements=1 parallel.prefetch=2 gpu.graphs=true",
                        "parallel.bucket_elements=auto parallel.transport=mpi", f"{kept} parallel.bucket_elements=1 gpu.graphs=true")
            for switch in {2: switches, 3: ("", kept)}.get(ranks, ("",)):
                name = f"{ranks}-{re.sub('[ =]', '-', switch)}"
                mine = self.train_well(*more, "parallel.shard=parameters", *switch.split(), ranks=ranks, name=name)
                self.assertEqual(self.weights(12, name), self.weights(12, reference), switch)
                self.assertEqual(self.losses(name), self.losses(reference), switch)
                self.assertEqual(self.column("loss", "validation", name), self.column("loss", "validation", reference), switch)
                self.assertEqual(said(mine), said(run), switch)

    def test_a_run_resumes_with_other_shards(self):
        """With one reduction per micro-step, the bits do not depend on what is sharded before or after a resume."""
        _, whole = self.results(self.EVERY)
        shards = ("none", "optimizer", "gradients", "parameters")
        for number, first in enumerate(shards):
            self.train_well(self.EVERY, f"parallel.shard={first}", "run.steps=6", "optimizer.schedule.steps=12", ranks=2, name=first)
            for second in (shards[number - 1], shards[number - 3]):  # every setting is resumed with two others
                name = f"{first}-{second}"
                shutil.copytree(self.path(first), self.path(name))
                self.train_well(self.EVERY, f"parallel.shard={second}", ranks=2, name=name)
                self.assertEqual(self.weights(12, name), whole, name)

    def test_shards_resume_on_another_number_of_ranks(self):
        """The bits equal those of unsharded runs that change the number of ranks at the same step, even if sharding, resharding after
        forward or the number of replicas changes too."""
        half = ("run.steps=6", "optimizer.schedule.steps=12")
        none, optimizer, gradients, parameters = (f"parallel.shard={word}" for word in ("none", "optimizer", "gradients", "parameters"))
        kept, copies = f"{parameters} parallel.reshard_after_forward=false", " parallel.replicate=2"
        changes = {(2, 3): ((parameters, parameters), (gradients, parameters)),
                   (4, 2): ((parameters, parameters), (optimizer, kept), (parameters + copies, gradients)),
                   (2, 4): ((gradients, parameters + copies),),
                   (3, 1): ((parameters, parameters),)}

        def changed(before, first, after, second):
            """Name of a run that trains with `before` on `first` ranks for half of its steps and then with `after` on `second`."""
            began = re.sub("[ =]", "-", f"{before} {first}")
            name = re.sub("[ =]", "-", f"{began} {after} {second}")
            if not os.path.exists(self.path(began)):
                self.train_well(self.EVERY, *before.split(), *half, ranks=first, name=began)
            shutil.copytree(self.path(began), self.path(name))
            self.train_well(self.EVERY, *after.split(), ranks=second, name=name)
            return name

        for (first, second), pairs in changes.items():
            reference = self.weights(12, changed(none, first, none, second))
            for before, after in pairs:
                name = changed(before, first, after, second)
                self.assertEqual(self.weights(12, name), reference, name)

    def test_copies_do_not_change_the_numbers(self):
        """Two replicas with sharding give the bits of a run without replicas, and of one that changes its replicas."""
        every = (self.EVERY, "evaluate.sets=[]")
        self.train_well(*every, ranks=4, name="whole")
        copies = "parallel.replicate=2"
        for shard in ("optimizer", "parameters"):
            run = self.train_well(*every, copies, f"parallel.shard={shard}", ranks=4, name=shard)
            self.assertIn("4 ranks with 2 copies over shared_memory", run.out)
            self.assertEqual(self.weights(12, shard), self.weights(12, "whole"), shard)
            self.assertEqual(self.losses(shard), self.losses("whole"), shard)
            self.assertEqual(self.column("grad_norm", "steps", shard), self.column("grad_norm", "steps", "whole"), shard)
        half = ("run.steps=6", "optimizer.schedule.steps=12")
        for name, first, second in (("gained", (), (copies, "parallel.shard=gradients")),
                                    ("lost", (copies, "parallel.shard=parameters"), ("parallel.shard=none",))):
            self.train_well(*every, *half, *first, ranks=4, name=name)
            shown = start("checkpoints", self.path(name), "--verify")
            self.assertEqual(shown.code, 0, shown)
            self.train_well(*every, *second, ranks=4, name=name)
            self.assertEqual(self.weights(12, name), self.weights(12, "whole"), name)

    def test_sums_across_copies_are_near_those_without(self):
        words = ("parallel.reduction=sum", "parallel.transport=mpi")
        self.train_well(*words, ranks=4, name="one")
        self.train_well(*words, "parallel.replicate=2", ranks=4, name="two")
        for ours, theirs in zip(self.losses("two"), self.losses("one"), strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5)

    def test_threads_do_not_change_the_numbers(self):
        for threads in (1, 3):
            self.train_well(f"run.threads={threads}", name=f"t{threads}")
            self.assertEqual(self.weights(12, f"t{threads}"), self.weights(12, "t1"))


class Muon(TrainingTest):
    """No dropout and a tree of leaves: the same bits on every number of ranks, and after every checkpoint."""
    MUON = ("optimizer.kind=muon", "batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4")

    def test_resumes_to_the_bit_on_another_number_of_ranks(self):
        self.train_well(*self.MUON, name="whole")
        for ranks in (2, 4):
            parts = f"parts{ranks}"
            shutil.copytree(self.path("whole"), self.path(parts))
            shutil.rmtree(os.path.join(self.path(parts), "checkpoints", "step-00000012"))
            self.train_well(*self.MUON, ranks=ranks, name=parts)
            self.assertEqual(self.weights(12, parts), self.weights(12, "whole"), ranks)
        self.train_well(*self.MUON, "run.precision=fp32", ranks=4, name="four")
        self.assertEqual(self.weights(12, "four"), self.weights(12, "whole"))
        self.assertLess(self.losses("whole")[-1], self.losses("whole")[0])

    def test_checkpoints_hold_no_second_moment_of_matrices(self):
        self.train_well(*self.MUON, ranks=2)
        held = self.weights(12)
        for name in ("h.1.attn.qkv.weight", "h.1.mlp.proj.weight"):
            self.assertIn(f"moment1/{name}", held)
            self.assertNotIn(f"moment2/{name}", held)
        for name in ("wte.weight", "h.1.attn.qkv.bias", "ln_f.weight"):
            self.assertIn(f"moment2/{name}", held)
        shown = start("checkpoints", self.path("run"), "--verify")
        self.assertEqual(shown.code, 0, shown)

    def test_is_another_run_than_adamws(self):
        self.train_well(ranks=2)
        refused = self.train("optimizer.kind=muon", "run.steps=14", ranks=2)
        self.assert_refused(refused, 2, "optimizer.kind: muon here", "was written with adamw, and a run cannot change it")

    def test_the_record_has_its_span_and_polar_express_trains(self):
        self.train_well("optimizer.kind=muon", "optimizer.muon.coefficients=polar_express", ranks=2)
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            names = [text.decode() for text in file["timings/names"][:]]
            self.assertIn(names.index("optim.matrices"), set(file["timings/ranks/name"][:]))
            samples = file["timings/samples"][:]
            samples = samples[samples["rank"] == 0]
            of = {name: samples[samples["name"] == names.index(name)] for name in ("optim.matrices", "matrices.travel", "matrices.wait")}
            steps, rounds = file["steps/step"].shape[0], len(set(of["matrices.wait"]["index"]))
            self.assertGreater(rounds, 1)
            self.assertEqual({name: len(rows) for name, rows in of.items()},
                             {"optim.matrices": steps * (1 + rounds), "matrices.travel": steps * 2 * rounds, "matrices.wait": steps * 2 * rounds})
            # Each wait is within a span of matrices and counts as exposed.
            spans = [(row["begin_s"] - 1e-6, row["begin_s"] + row["duration_s"] + 1e-6) for row in of["optim.matrices"]]
            for row in of["matrices.wait"]:
                begin, end = row["begin_s"], row["begin_s"] + row["duration_s"]
                self.assertTrue(any(first <= begin and end <= last for first, last in spans), row)
            self.assertGreaterEqual(sum(file["steps/exposed_s"][:]) + 1e-9, sum(of["matrices.wait"]["duration_s"]))
        self.assertLess(self.losses()[-1], self.losses()[0])


class Schedules(TrainingTest):
    """Learning rate, momentum, weight decay and batch that change during training."""
    EVERY = ("checkpoint.every_steps=3", "checkpoint.keep=9")
    ALL = ("optimizer.kind=muon", "optimizer.muon.momentum_warmup_steps=8", "optimizer.weight_decay_schedule=rate", "optimizer.schedule.kind=wsd",
           "optimizer.schedule.decay_fraction=0.5", "batch.sequences=16", "batch.schedule=[{step: 5, sequences: 32}, {step: 8, sequences: 48}]",
           "parallel.reduction=tree", "parallel.logical_shards=4", "evaluate.noise_scale.every_steps=1", *EVERY)

    def rows(self, run):
        with h5py.File(os.path.join(self.path(run), "run.h5"), "r") as file:
            steps = {name: file["steps"][name][:].tolist() for name in ("step", "loss", "grad_norm", "learning_rate", "tokens")}
            return steps, {name: file["noise_scale"][name][:].tolist() for name in ("sequences", "trace")}

    def cut(self, whole, parts, step):
        """Copies the run `whole` without its checkpoints after `step`."""
        shutil.copytree(self.path(whole), self.path(parts))
        for later in range(step + 3, 13, 3):
            shutil.rmtree(os.path.join(self.path(parts), "checkpoints", f"step-{later:08d}"))

    def test_a_run_interrupted_within_each_equals_an_uninterrupted_one(self):
        self.train_well(*self.ALL, name="whole")
        steps, _ = self.rows("whole")
        self.assertEqual(steps["tokens"], [16 * tokens for tokens in (16, 32, 48, 64, 96, 128, 160, 208, 256, 304, 352, 400)])
        for step, ranks in ((3, 1), (6, 4), (9, 2)):  # momentum rises, the batch grows, the rate falls
            parts = f"parts{step}"
            self.cut("whole", parts, step)
            self.train_well(*self.ALL, ranks=ranks, name=parts)
            self.assertEqual(self.weights(12, parts), self.weights(12, "whole"), step)
            self.assertEqual(repr(self.rows(parts)), repr(self.rows("whole")), step)  # compares as text, because NaN does not equal itself

    def test_a_batch_that_grows_is_that_of_a_run_with_another_batch(self):
        same = ("optimizer.schedule.kind=constant", "optimizer.schedule.warmup_steps=0", *self.EVERY)
        self.train_well(*same, "batch.schedule=[{step: 7, sequences: 24}]", ranks=2, name="grows")
        self.train_well(*same, ranks=2, name="by-hand")
        shutil.rmtree(os.path.join(self.path("by-hand"), "checkpoints", "step-00000012"))
        shutil.rmtree(os.path.join(self.path("by-hand"), "checkpoints", "step-00000009"))
        refused = self.train(*same, "batch.schedule=[{step: 7, sequences: 24}]", ranks=2, name="by-hand")
        self.assert_refused(refused, 2, "batch.schedule: [\"{step: 7, sequences: 24}\"] here", "was written with []", "allow it with run.allow_changes=[batch.schedule]")
        self.train_well(*same, "batch.sequences=24", "run.allow_changes=[batch]", ranks=2, name="by-hand")
        self.assertEqual(self.weights(12, "by-hand"), self.weights(12, "grows"))
        self.assertEqual(self.losses("by-hand"), self.losses("grows"))
        self.assertEqual(self.column("tokens", "steps", "by-hand"), self.column("tokens", "steps", "grows"))


class Record(TrainingTest):
    """The contents of run.h5 about all ranks."""

    def spans(self, file, name):
        """The rows of /timings/ranks of one span, as a dictionary of columns."""
        position = [text.decode() for text in file["timings/names"][:]].index(name)
        table = {column: file["timings/ranks"][column][:] for column in file["timings/ranks"]}
        return {column: values[table["name"] == position] for column, values in table.items()}

    def test_statistics_over_all_ranks_and_whole_spans_of_some(self):
        self.train_well("record.span_ranks=2", ranks=3)
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            steps = self.spans(file, "step")
            self.assertEqual(list(steps["first_step"]), [1])
            self.assertEqual(list(steps["last_step"]), [12])
            for name in ("step", "model.train", "reduce.bucket", "step.sums", "step.control", "check.replicas", "record.collect"):
                rows = self.spans(file, name)
                self.assertTrue(len(rows["min_s"]) and (rows["min_s"] <= rows["median_s"]).all() and (rows["median_s"] <= rows["max_s"]).all(), name)
                self.assertTrue((rows["max_rank"] < 3).all(), name)
            samples = file["timings/samples"][:]
            self.assertEqual(set(samples["rank"]), {0, 2})
            units = {}
            file.visititems(lambda name, item: units.update({name: item.attrs.get("units")}) if isinstance(item, h5py.Dataset) else None)
            for name in ("steps/seconds", "timings/samples", "timings/anchors/calendar_s", "validation/loss"):
                self.assertTrue(units[name], units)
            # xarray decodes units with the word "since" as calendar times, and rejects a group if it cannot.
            times = {name: unit for name, unit in units.items() if unit and " since " in unit}
            self.assertEqual(times, {"timings/anchors/calendar_s": "seconds since 1970-01-01 00:00:00"})
            # The network wait of rank 0 includes the waits for sums and for the agreement on stops.
            names = [text.decode() for text in file["timings/names"][:]]
            waits = [sum(samples["duration_s"][(samples["name"] == names.index(name)) & (samples["rank"] == 0)])
                     for name in ("step.sums", "step.control")]
            self.assertTrue(all(wait > 0 for wait in waits), waits)
            self.assertGreaterEqual(sum(file["steps/exposed_s"][:]) + 1e-9, sum(waits))
        for page in ("run-file.md", "checkpoint.md"):
            printed = subprocess.check_output([sys.executable, f"{PROJECT}/dev/reference_pages.py", page, self.path("run")], text=True)
            with open(os.path.join(PROJECT, "docs/reference", page), encoding="utf-8") as committed:
                self.assertEqual(printed, committed.read())

    def test_parts_of_a_step_lie_within_it(self):
        """Between steps, evaluations, checkpoints and the end of the run also wait for gathers."""
        self.train_well("parallel.bucket_elements=1", "evaluate.every_steps=2", ranks=2)
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            names = [text.decode() for text in file["timings/names"][:]]
            within = [text.startswith("Within step:") for text in file["timings/names"].attrs["help_of"]]
            samples = file["timings/samples"][:]
            for name in ("model.train", "reduce.bucket", "gather.wait"):
                for index, *found in zip(*(self.spans(file, name)[column] for column in ("index", "min_s", "median_s", "max_s", "max_rank"))):
                    of_name = samples[(samples["name"] == names.index(name)) & (samples["index"] == index)]
                    sums = [sum(of_name["duration_s"][of_name["rank"] == rank]) for rank in range(2)]
                    self.assertEqual(found, [min(sums), min(sums), max(sums), sums.index(max(sums))], (name, index))
        steps = {(int(row["rank"]), int(row["step"])): (row["begin_s"], row["begin_s"] + row["duration_s"])
                 for row in samples if names[row["name"]] == "step"}
        parts = [row for row in samples if within[row["name"]]]
        self.assertTrue({"data.next", "model.train", "reduce.exposed", "gather.wait", "optim.step", "step.sums", "step.control"} <=
                        {names[row["name"]] for row in parts})
        for row in parts:
            begin, end = steps[int(row["rank"]), int(row["step"])]
            self.assertTrue(begin - 1e-6 <= row["begin_s"] and row["begin_s"] + row["duration_s"] <= end + 1e-6,
                            f"{names[row['name']]} {row}: the step is from {begin} to {end}")

    def test_every_collective_of_a_step_has_its_spans(self):
        """Each micro-step reduces gradients and gathers layers. Waits must not overlap."""
        self.train_well("parallel.shard=parameters", "model.layers=4", "parallel.bucket_elements=1", "evaluate.every_steps=0", ranks=2)
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            names = [text.decode() for text in file["timings/names"][:]]
            samples = file["timings/samples"][:]
            samples = samples[(samples["rank"] == 0) & (samples["step"] == 8)]  # step 7 is affected by the checkpoint of step 6
            buckets = file["buckets/bucket"].shape[0]
        of = {name: samples[samples["name"] == names.index(name)] for name in ("reduce.bucket", "gather.bucket", "gather.wait", "reduce.exposed")}
        # 12 sequences on two ranks, one per micro-step
        self.assertEqual(sorted(zip(of["reduce.bucket"]["index"].tolist(), of["reduce.bucket"]["micro"].tolist())),
                         [(bucket, micro) for bucket in range(buckets) for micro in range(6)])
        self.assertGreater(len(of["gather.bucket"]), 6 * buckets)
        self.assertEqual(len(of["gather.wait"]), len(of["gather.bucket"]))
        waits = sorted((begin, begin + took) for name in ("gather.wait", "reduce.exposed") for begin, took in
                       zip(of[name]["begin_s"].tolist(), of[name]["duration_s"].tolist()))
        for (_, end), (begin, _) in zip(waits, waits[1:]):
            self.assertLessEqual(end, begin + 1e-6)


class FindRate(TrainingTest):
    """trireme find-rate: a sweep that does not touch a run directory."""
    TREE = ("batch.sequences=16", "parallel.reduction=tree", "parallel.logical_shards=4")

    def sweep(self, *words, ranks=1, name="sweep.json"):
        found = start("find-rate", *self.words("run", ()), *words, "--json", self.path(name), ranks=ranks)
        self.assertEqual(found.code, 0, found)
        with open(self.path(name), encoding="utf-8") as file:
            return found, json.load(file)

    def test_rates_grow_by_equal_factors_and_losses_are_those_of_a_run(self):
        found, sweep = self.sweep("--from", "1e-5", "--to", "1e-3", "--steps", "20")
        self.assertEqual(len(sweep["rate"]), 20)
        for step, rate in enumerate(sweep["rate"]):
            self.assertAlmostEqual(rate, 1e-5 * 100 ** (step / 19), delta=1e-12 * rate)
        self.assertIn("Suggested: optimizer.learning_rate=", found.out)
        self.assertLess(len(found.out.splitlines()), 50)
        self.assertFalse(os.path.exists(self.path("run")))
        self.assertEqual(sorted(os.listdir(self.folder)), ["sweep.json", "text"])
        # The first step of the sweep has the same parameters and batch as that of a run.
        self.train_well()
        self.assertEqual(self.losses()[0], sweep["loss"][0])

    def test_the_numbers_do_not_depend_on_ranks(self):
        sweeps = [self.sweep(*self.TREE, "--steps", "60", ranks=ranks, name=f"{ranks}.json")[1] for ranks in (1, 2, 4)]
        self.assertEqual(sweeps[0], sweeps[1])
        self.assertEqual(sweeps[0], sweeps[2])
        ordered = [self.sweep("--to", "1e-2", "--steps", "40", ranks=ranks, name=f"o{ranks}.json")[1] for ranks in (1, 2, 3)]
        for other in ordered[1:]:
            self.assertEqual(other["rate"], ordered[0]["rate"])
            for a, b in zip(other["loss"], ordered[0]["loss"], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_it_ends_where_the_loss_diverges(self):
        found, sweep = self.sweep("--from", "1e-3", "--to", "1", "--steps", "200")
        self.assertIn("The sweep ended early: ", found.out)
        self.assertLess(len(sweep["rate"]), 200)
        self.assertGreater(max(sweep["loss"]), 1.5 * min(sweep["smoothed"]))
        self.assertIsNotNone(sweep["diverges"])
        self.assertLessEqual(sweep["suggested"], sweep["diverges"] / 10)
        self.assertLessEqual(sweep["suggested"], sweep["steepest"])

    def test_nothing_is_overwritten(self):
        self.sweep("--steps", "10")
        again = start("find-rate", *self.words("run", ()), "--steps", "10", "--json", self.path("sweep.json"))
        self.assert_refused(again, 2, "this file exists already")


class RunDirectory(TrainingTest):
    def test_a_finished_run_is_left_alone(self):
        self.train_well()
        before = {path: os.stat(path).st_mtime_ns for path in glob.glob(self.path("run/**/*.h5"), recursive=True)}
        run = self.train_well()
        self.assertIn("is finished", run.out)
        after = {path: os.stat(path).st_mtime_ns for path in glob.glob(self.path("run/**/*.h5"), recursive=True)}
        self.assertEqual(before, after)

    def test_a_new_run_is_next_to_a_finished_one(self):
        for expected in ("run", "run-2", "run-3"):
            self.train_well("run.when_finished=new", name="run/")
            self.assertEqual(self.column("step", "steps", expected), list(range(1, 13)))
        self.assertEqual(self.weights(12, "run-3"), self.weights(12, "run"))

    def test_a_run_without_checkpoints_is_finished_by_its_record(self):
        none = "checkpoint.every_steps=0"
        self.train_well(none, ranks=2)
        before = os.stat(self.path("run/run.h5")).st_mtime_ns
        run = self.train_well(none, "run.when_finished=keep", ranks=2)
        self.assertIn("is finished", run.out)
        self.assertEqual(os.stat(self.path("run/run.h5")).st_mtime_ns, before)
        self.assertEqual(os.listdir(self.folder).count("run-2"), 0)
        self.train_well(none, "run.when_finished=new", ranks=2)
        self.assertEqual(os.stat(self.path("run/run.h5")).st_mtime_ns, before)
        self.assertEqual(self.losses("run-2"), self.losses("run"))

    def test_what_lies_in_the_directory_is_named_and_nothing_else(self):
        run = self.train_well("checkpoint.every_steps=0")
        self.assertIn("all files are in", run.out)
        self.assertNotIn("checkpoints/", run.out)
        run = self.train_well(name="saved")
        self.assertIn("deck.resolved.yaml, checkpoints/", run.out)

    def test_a_longer_deck_resumes(self):
        self.train_well()
        run = self.train_well("run.steps=18")
        self.assertIn("resumed from", run.out)
        self.assertEqual(self.column("step", "steps"), list(range(1, 19)))

    def test_a_run_resumes_on_another_rank_count(self):
        self.train_well(ranks=2)
        self.train_well("run.steps=14", ranks=3)
        self.assertEqual(self.column("step", "steps"), list(range(1, 15)))

    def test_sample_continues_the_prompt_the_same_way_each_time(self):
        self.train_well()
        say = [TRIREME, "sample", self.path("run"), "--prompt", "the quick", "--tokens", "20", "--temperature", "0"]
        first = subprocess.run(say, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        again = subprocess.run(say, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        self.assertTrue(first.startswith("the quick"), first)
        self.assertGreaterEqual(len(first), len("the quick") + 20)
        self.assertEqual(first, again)

    def test_signals_in_the_middle_of_kernels_save_and_change_nothing(self):
        often = ("optimizer.schedule={kind: constant}", "checkpoint.every_steps=0", "checkpoint.keep=0")
        self.train_well("run.steps=120", *often, ranks=2, name="calm")
        # Only the last signal may end it: mpirun forwards signals, and one that arrives after the ranks have ended would kill it.
        running = self.popen("run.steps=1000000", *often, ranks=2, name="shaken")
        self.wait_for_line(running, "step      1/")  # mpirun has installed its handlers
        long_enough = threading.Event()

        def read():
            for line in running.stdout:
                if "  checkpoint" in line and int(line.split("/")[0].split()[-1]) >= 120:
                    long_enough.set()
            long_enough.set()  # the run has ended

        reader = threading.Thread(target=read)
        reader.start()
        sent = 0
        while not long_enough.wait(0.02):  # the interval between signals
            running.send_signal(signal.SIGUSR1)
            sent += 1
        running.send_signal(STOP_SIGNAL)
        reader.join(TIMEOUT_S)
        self.assertIn(running.wait(TIMEOUT_S), STOPPED, running.stderr.read())
        saved = os.listdir(self.path("shaken/checkpoints"))
        print(f"{sent} signals, {len(saved) - 1} checkpoints")
        self.assertGreater(len(saved), 2)
        self.assertEqual(self.losses("shaken")[:120], self.losses("calm"))

    def test_a_stop_signal_ends_after_a_checkpoint_and_the_run_resumes(self):
        # The run has no end, so the signal always arrives in time. It saves no other checkpoint, so the signal triggers the snapshot.
        schedule = "optimizer.schedule={kind: constant}"
        running = self.popen("run.steps=1000000", "checkpoint.every_steps=0", schedule, ranks=2, name="stopped")
        self.wait_for_line(running, "step     10/")
        running.send_signal(STOP_SIGNAL)
        rest = running.communicate(timeout=TIMEOUT_S)
        self.assertIn(running.returncode, STOPPED, rest)
        steps = self.column("step", "steps", "stopped")[-1] + 20
        for name in ("stopped", "calm"):
            self.train_well(f"run.steps={steps}", schedule, ranks=2, name=name)
        self.assertEqual(self.column("step", "steps", "stopped"), list(range(1, steps + 1)))
        self.assertEqual(self.losses("stopped"), self.losses("calm"))
        self.assertEqual(self.weights(steps, "stopped"), self.weights(steps, "calm"))

    def test_checkpoints_hold_the_same_bytes_whether_or_not_the_run_waits(self):
        for name in ("true", "false"):
            self.train_well(f"checkpoint.asynchronous={name}", "checkpoint.every_steps=3", "checkpoint.keep=0", ranks=2, name=name)
        for step in (3, 6, 9, 12):
            for rank in range(2):
                path = f"checkpoints/step-{step:08d}/rank-{rank:05d}.h5"
                with open(self.path(f"true/{path}"), "rb") as one, open(self.path(f"false/{path}"), "rb") as other:
                    self.assertEqual(one.read(), other.read(), path)
        self.assertEqual(self.losses("true"), self.losses("false"))
        self.assertEqual(self.column("step", "checkpoints", "true"), [3, 6, 9, 12])
        for name in ("true", "false"):
            copies, stalls = self.column("copy_s", "checkpoints", name), self.column("stall_s", "checkpoints", name)
            self.assertTrue(all(copy < stall for copy, stall in zip(copies, stalls)), (copies, stalls))
            self.assertEqual([copy > 0 for copy in copies], [name == "true"] * 4)
            self.assertTrue(all(seconds > 0 for seconds in self.column("write_s", "checkpoints", name)))

    def test_a_checkpoint_that_is_old_enough_is_followed_by_the_next(self):
        # Every step takes longer than 1e-9 minutes, and the run takes less than 1000.
        for minutes, expected in (("1e-9", list(range(1, 13))), ("1000", [12])):
            self.train_well("checkpoint.every_steps=0", f"checkpoint.every_minutes={minutes}", "checkpoint.keep=0", ranks=2, name=minutes)
            self.assertEqual(self.column("step", "checkpoints", minutes), expected)
            saved = os.listdir(self.path(f"{minutes}/checkpoints"))
            self.assertEqual(sorted(int(name[5:]) for name in saved if name != "latest"), expected)

    def steps_on_disk(self):
        return sorted(int(name[5:]) for name in os.listdir(os.path.join(self.path("run"), "checkpoints")) if name.startswith("step-"))

    def test_milestones_are_never_removed_whatever_a_later_deck_says(self):
        often = ("checkpoint.every_steps=2", "checkpoint.keep=1")
        self.train_well(*often, "checkpoint.keep_every=4", "run.steps=10", ranks=2)
        self.assertEqual(self.steps_on_disk(), [4, 8, 10])
        run = self.train_well(*often, "checkpoint.keep_every=6", "run.steps=14")
        self.assertIn("checkpoint.keep_every", run.out)  # reported, but allowed without permission
        self.assertEqual(self.steps_on_disk(), [4, 8, 12, 14])
        self.train_well(*often, "run.steps=18")
        self.assertEqual(self.steps_on_disk(), [4, 8, 12, 18])

    def test_checkpoints_may_lie_elsewhere(self):
        elsewhere = f"checkpoint.directory={self.path('scratch-disk')}"
        self.train_well(elsewhere, ranks=2)
        self.assertTrue(os.path.exists(self.path("scratch-disk/step-00000012/manifest.h5")))
        run = self.train_well(elsewhere, "run.steps=14", ranks=2)
        self.assertIn("resumed from", run.out)
        self.assertEqual(self.column("step", "steps"), list(range(1, 15)))
        other = self.train(elsewhere, "run.steps=16", ranks=2, name="other")
        self.assert_refused(other, 2, "holds another run's checkpoints")

    def test_more_than_four_epochs_are_warned_of(self):
        with open(os.path.join(self.text, "a.txt"), "w", encoding="ascii") as out:
            out.write("the quick brown fox jumps over the lazy dog\n" * 50)
        many, few = (self.train_well(f"run.steps={steps}", "evaluate.every_steps=0", name=f"s{steps}") for steps in (60, 10))
        self.assertRegex(many.out, r"the run reads its training data \d\.\d+ times\. Beyond 4 epochs")
        self.assertNotIn("Beyond 4 epochs", few.out)

    def test_the_walltime_stops_after_a_checkpoint(self):
        run = self.train("run.steps=100000", "run.walltime=12", ranks=2)
        self.assertEqual(run.code, 75, run)
        self.assertIn("run.walltime leaves no time for another step and a checkpoint", run.out)
        steps = self.column("step", "steps")
        self.assertTrue(os.path.isdir(self.path(f"run/checkpoints/step-{steps[-1]:08d}")), run)

    def test_the_end_of_a_slurm_job_stops_it_too(self):
        # tests/session/stop_test.cpp tests that it stops in time, with a simulated clock.
        self.addCleanup(os.environ.pop, "SLURM_JOB_END_TIME")
        for name, left_s, steps, code in (("near", 9, 100000, 75), ("far", 3600, 12, 0)):
            os.environ["SLURM_JOB_END_TIME"] = str(int(time.time()) + left_s)
            run = self.train(f"run.steps={steps}", "run.walltime=1:00:00", name=name)
            self.assertEqual(run.code, code, run)


if __name__ == "__main__":
    unittest.main()
