# SPDX-License-Identifier: Apache-2.0
"""`trireme bench`, and the programs of tests/bench: checks the rows that they write, not their speed."""
import json
import os
import subprocess
import unittest

import h5py
from harness import DECK, TIMEOUT_S, TRIREME, TrainingTest, launch, start


class Bench(TrainingTest):
    def tool(self, name, *arguments, ranks=1):
        """The output of a program of tests/bench."""
        program = os.path.join(os.path.dirname(TRIREME), name)
        launcher = [] if name == "bench_parts" else launch(ranks)[:-1]
        return subprocess.run([*launcher, program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    def test_pool(self):
        found = json.loads(self.tool("bench_parts", "pool", "4194304").stdout)
        self.assertEqual([(r["operation"], r["touched"], r["bytes"]) for r in found["rows"]],
                         [(operation, touched, 4194304) for touched in (False, True) for operation in ("lease", "malloc", "allocate")])
        self.assertEqual([row["growths"] for row in json.loads(self.tool("bench_parts", "pool", "65536").stdout)["growth"]], [0, 0, 0])
        growth = {row["factor"]: row for row in found["growth"]}
        self.assertEqual(sorted(growth), [1.25, 1.5, 2])
        for slow, fast in ((1.25, 1.5), (1.5, 2)):
            self.assertGreater(growth[slow]["growths"], growth[fast]["growths"])
            self.assertLess(growth[slow]["mean_excess"], growth[fast]["mean_excess"])
        self.assertLess(growth[1.5]["worst_excess"], 0.52)  # half, rounded up to whole pages

    def test_shards(self):
        rows = json.loads(self.tool("bench_parts", "shards", "96", *self.words("run", ["batch.sequences=96"])).stdout)["rows"]
        self.assertEqual([(r["operation"], r["buckets"], r["ranks"]) for r in rows], [("searched", 4, 96), ("cached", 4, 96)])

    def compute(self, verb, ranks):
        path = self.path(f"{verb}{ranks}.json")
        run = start("bench", verb, DECK, "--repetitions", "2", "--json", path, ranks=ranks)
        self.assertEqual(run.code, 0, run)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        self.assertEqual((found["ranks"], found["threads"], found["precision"]), (ranks, 1, "fp32"))
        self.assertTrue(all(row["seconds"] > 0 for row in found["rows"]), found)
        return found

    def test_matmul(self):
        for ranks in (1, 2):
            found = self.compute("matmul", ranks)
            rows = found["rows"]
            self.assertEqual({(r["layer"], r["pass"]) for r in rows},
                             {(layer, way) for layer in ("qkv", "attention_projection", "fc", "mlp_projection", "head")
                              for way in ("forward", "input", "weight")})
            whole = {r["library"] for r in rows if r["how"] != "step"}  # only oneDNN, or none in a build without it
            self.assertEqual({r["how"] for r in rows}, {"step", "library", "packed"} if whole else {"step"})
            self.assertLessEqual(len(whole), 1)
            said = subprocess.run([TRIREME, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
            self.assertTrue(all(" ".join(line.split()) in whole for line in said.splitlines() if whole and "oneDNN" in line), said)
            self.assertIn(found["ceiling_library"], {r["library"] for r in rows if r["flops_per_s"] == found["ceiling_flops"]})
            self.assertEqual(found["ceiling_flops"], max(r["flops_per_s"] for r in rows))
            self.assertEqual(set(found["best_flops"]), {r["library"] for r in rows})
            self.assertAlmostEqual(max(found["best_flops"].values()) / found["ceiling_flops"], 1, places=6)
            self.assertGreater(found["block_flops"], 0)
            # 12 sequences of 16 tokens, 2 layers of 12 * 32^2 weights and a head of 256 * 32, three matrix products for each.
            self.assertEqual(found["product_flops"], 3 * 2 * (2 * 12 * 32 * 32 + 256 * 32) * 12 * 16 / ranks)
            self.assertLessEqual(found["floor_seconds"], found["step_seconds"])
            self.assertGreaterEqual(found["floor_seconds"] * found["ceiling_flops"], 0.999 * found["product_flops"])
        # Recomputing GELU in a block adds a matrix product of fc, of the same size.
        path = self.path("mixed.json")
        run = start("bench", "matmul", DECK, "model.recompute=[gelu, none]", "--repetitions", "2", "--json", path)
        self.assertEqual(run.code, 0, run)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        steps = [r for r in found["rows"] if r["how"] == "step"]
        self.assertEqual([r["count"] for r in steps if (r["layer"], r["pass"]) == ("fc", "forward")], [1, 1])
        self.assertAlmostEqual(sum(12 * r["count"] * r["seconds"] for r in steps) / found["step_seconds"], 1, places=6)
        again = start("bench", "matmul", DECK, "--json", self.path("matmul2.json"), ranks=2)
        self.assert_refused(again, 2, "exists already")

    def test_ops(self):
        for ranks in (1, 2):
            found = self.compute("ops", ranks)
            rows = {row["op"]: row for row in found["rows"]}
            self.assertGreater(found["block_flops"], 0)
            # The source and the destination of all ranks together exceed the last-level cache.
            cache = int(subprocess.run(["getconf", "LEVEL3_CACHE_SIZE"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout)
            self.assertGreaterEqual(2 * ranks * found["copied_bytes"], max(4 * cache, 2 * ranks << 28))
            self.assertEqual(rows["attention.forward"]["per_step"], 2 * 12 / ranks)
            self.assertEqual(rows["attention.forward"]["flops"], 4 * 32 * 16 * 17 / 2)
            self.assertEqual(rows["adamw"]["per_step"], 1)
            self.assertIn("dropout.backward", rows)
            self.assertEqual([rows[op]["per_step"] for op in ("fc.forward", "gelu.forward", "gelu.backward")], [2 * 12 / ranks] * 3)
            self.assertFalse([op for op in rows if " with " in op], "a CPU has nothing in its products but a bias")
            self.assertAlmostEqual(sum(r["per_step"] * r["seconds"] for r in rows.values()) / found["step_seconds"], 1, places=6)
            flops = sum(r["per_step"] * r["flops"] for r in rows.values())
            self.assertAlmostEqual(flops / found["step_seconds"] / found["matrix_ceiling_flops"] / found["step_share"], 1, places=6)

    def test_engine(self):
        """The results have the same bits as one all-reduce of the whole gradient with a full update on every rank."""
        for ranks, *words in ((1,), (2,), (2, "parallel.transport=mpi"), (2, "parallel.shard=none")):
            done = self.tool("bench_steps", "engine", *self.words("run", words), ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            engine, plain, ratio = done.stdout.splitlines()[-3:]
            # 256 + 16 embeddings of 32, 2 layers of 12 * 32^2 weights and 13 * 32 biases and gains, the last norm's 2 * 32.
            parameters = (256 + 16) * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
            self.assertEqual(engine.split()[:3], ["engine", str(parameters), "4"])
            self.assertEqual(plain.split()[:3], ["plain", str(parameters), "0"])
            self.assertIn(f"{ranks} rank", ratio)
            self.assertFalse(os.path.exists(self.path("run")), "bench writes no run directory")
        refused = self.tool("bench_steps", "engine", *self.words("run", ["parallel.transport=mpi", "parallel.reduction=sum"]), ranks=2)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("parallel.reduction=ordered", refused.stderr)

    def test_generate(self):
        done = self.tool("bench_steps", "generate", *self.words("run", []))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"a token is [0-9.]+ times as fast with a cache of keys and values")

    def test_speed_of_a_run(self):
        self.train_well("run.steps=4", "run.name=tiny")
        table = self.path("table.h5")
        words = ("speed", self.path("run"), "--goal", "tiny=1000", "--h5", table)
        said = subprocess.run([TRIREME, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        with h5py.File(table, "r") as file:
            row = {name: column[0] for name, column in file["speed"].items()}
            self.assertTrue(all("units" in column.attrs and "long_name" in column.attrs for column in file["speed"].values()))
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            rate = sorted(file["steps"]["tokens_per_s"][1:])[1]  # the first of four steps is warm-up
            ceiling = file["timings"].attrs["ceiling_flops_per_s"]
            flops = rate * file["timings"].attrs["flops_per_token"]
        self.assertEqual((row["run"], row["steps"], row["tokens_per_s"]), (b"tiny", 3, rate))
        self.assertEqual((row["share_of_goal"], row["share_of_ceiling"]), (rate / 1000, flops / ceiling))
        self.assertGreater(row["memory"], 2**20)
        self.assertIn(f"{100 * rate / 1000:.1f} %", said)
        self.assert_refused(start(*words), 2, "exists already")

    def test_reduce_on_two_ranks(self):
        path = self.path("reduce.json")
        run = start("bench", "reduce", "--bytes", "8,65536", "--repetitions", "2", "--json", path, ranks=2)
        self.assertEqual(run.code, 0, run)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual({r["transport"] for r in rows}, {"shared_memory", "mpi", "MPI", "none"})
        self.assertEqual({r["bytes"] for r in rows}, {8, 65536})
        self.assertIn("MPI_Allreduce", {r["operation"] for r in rows})
        self.assertEqual({r["wrong"] for r in rows}, {0})
        again = start("bench", "reduce", "--bytes", "64", "--repetitions", "1", "--json", path, ranks=2)
        self.assert_refused(again, 2, "exists already")


if __name__ == "__main__":
    unittest.main()
