# SPDX-License-Identifier: Apache-2.0
"""`trireme doctor`: facts and measurements of the machine that the tests run on."""
import json
import os
import unittest

from harness import HYDRA, TrainingTest, start


class Doctor(TrainingTest):
    def test_it_measures_what_the_ranks_reach(self):
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                file = self.path(f"{ranks}.json")
                run = start("doctor", "--directory", self.folder, "--json", file, ranks=ranks)
                self.assertEqual(run.code, 0, run)
                with open(file) as text:
                    report = json.load(text)
                self.assertEqual(len(report["hosts"]), 1)
                self.assertEqual(len(report["ranks"]), ranks)
                self.assertEqual(report["hosts"][0]["cpus"], os.cpu_count())
                launch = report["launch"]
                self.assertEqual((launch["launcher"], launch["processes"]), ("mpiexec with Hydra" if HYDRA else "mpirun of Open MPI", ranks))
                self.assertTrue(launch["interface"].startswith("PMI-1" if HYDRA else "PMIx "), launch)
                self.assertEqual("PMIx" in launch["pmix"], not HYDRA, launch)  # Open MPI finds its peers with it
                self.assertIn(f"started by {launch['launcher']}: {ranks} process", run.out)
                self.assertFalse([warning for warning in report["warnings"] if "MPI connects" in warning["text"]])
                self.assertEqual((report["gpus"], report["gpu_pairs"]), ([], []))
                for key in ("memory_bytes_per_s", "fp32_flops", "bf16_flops"):
                    self.assertEqual(len(report[key]), ranks, key)
                    self.assertGreater(min(report[key]), 1e8, key)
                self.assertEqual([row["wrong"] for row in report["collectives"]], [0] * len(report["collectives"]))
                self.assertEqual(bool(report["collectives"]), ranks > 1)
                self.assertGreater(report["file_systems"][0]["write_bytes_per_s"], 0)
                for warning in report["warnings"]:
                    self.assertIn("warning: " + warning["text"], run.out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["1.json", "2.json", "text"])

    def test_mistakes_are_the_users(self):
        self.assert_refused(start("doctor", "--directory", self.path("none")), 2, "No such file or directory")
        open(self.path("there.json"), "w").close()
        self.assert_refused(start("doctor", "--json", self.path("there.json")), 2, "there.json")


if __name__ == "__main__":
    unittest.main()
