# SPDX-License-Identifier: Apache-2.0
"""`trireme bench`: the rows that it writes, not how fast they are."""
import json
import subprocess
import unittest

from harness import DECK, TRIREME, TrainingTest, start


class Bench(TrainingTest):
    def rows(self, *arguments):
        path = self.path("rows.json")
        done = subprocess.run([TRIREME, "bench", *arguments, "--repetitions", "2", "--json", path], capture_output=True,
                              text=True, timeout=60, check=True)
        with open(path, encoding="utf-8") as file:
            found = json.load(file)["rows"]
        self.assertTrue(all(row["seconds"] > 0 for row in found), found)
        self.assertEqual(len(done.stdout.splitlines()), len(found) + 1, done.stdout)
        return found

    def test_pool(self):
        rows = self.rows("pool", "--bytes", "4096,65536")
        self.assertEqual([(r["operation"], r["touched"], r["bytes"]) for r in rows],
                         [(operation, touched, size) for size in (4096, 65536) for touched in (False, True)
                          for operation in ("lease", "malloc", "allocate")])

    def test_shards(self):
        rows = self.rows("shards", DECK, "batch.sequences=96", "--ranks", "96")
        self.assertEqual([(r["operation"], r["buckets"], r["ranks"]) for r in rows], [("searched", 4, 96), ("cached", 4, 96)])

    def test_reduce_on_two_ranks(self):
        path = self.path("reduce.json")
        run = start("bench", "reduce", "--bytes", "65536", "--transport", "shared_memory,mpi", "--repetitions", "2", "--json",
                    path, ranks=2)
        self.assertEqual(run.code, 0, run)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual({r["transport"] for r in rows}, {"shared_memory", "mpi", "MPI", "none"})
        self.assertIn("MPI_Allreduce", {r["operation"] for r in rows})
        again = start("bench", "reduce", "--bytes", "64", "--repetitions", "1", "--json", path, ranks=2)
        self.assert_refused(again, 2, "exists already")


if __name__ == "__main__":
    unittest.main()
