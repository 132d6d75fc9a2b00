# SPDX-License-Identifier: Apache-2.0
"""`trireme doctor`: facts and measurements of the machine that the tests run on."""
import json
import os
import subprocess
import unittest

from harness import FLAGS, HYDRA, MPIRUN, TIMEOUT_S, TRIREME, Run, TrainingTest, start


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
                self.assertEqual("PMIx" in launch["pmix"], not HYDRA, launch)  # Open MPI's ranks find each other with PMIx
                self.assertIn(f"started by {launch['launcher']}: {ranks} process", run.out)
                self.assertFalse([warning for warning in report["warnings"] if "MPI connects" in warning["text"]])
                self.assertEqual((report["gpus"], report["gpu_pairs"]), ([], []))
                for key in ("memory_bytes_per_s", "fp32_flops", "bf16_flops"):
                    self.assertEqual(len(report[key]), ranks, key)
                    self.assertGreater(min(report[key]), 1e8, key)
                self.assertEqual([row["wrong"] for row in report["collectives"]], [0] * len(report["collectives"]))
                self.assertEqual(bool(report["collectives"]), ranks > 1)
                self.assertEqual([pair["ranks"] for pair in report["pairs"]], [[0, 1]] if ranks > 1 else [])
                for pair in report["pairs"]:
                    self.assertGreater(pair["latency_s"], 0)
                    self.assertGreater(pair["bytes_per_s"], 1e6)
                self.assertGreater(report["file_systems"][0]["write_bytes_per_s"], 0)
                for warning in report["warnings"]:
                    self.assertIn("warning: " + warning["text"], run.out)
        self.assertEqual(sorted(os.listdir(self.folder)), ["1.json", "2.json", "text"])

    def test_what_fails_late_does_not_take_the_rest_with_it(self):
        """Files are limited to 48 MiB: this affects the test file in --directory and a bucket in shared memory."""
        limited = "trap '' XFSZ && ulimit -f 49152 && exec \"$@\""  # set in each rank, because launchers reset signals
        file = self.path("report.json")
        for ranks, failed in ((1, ["files"]), (2, ["files", "collectives"])):
            with self.subTest(ranks=ranks):
                words = [MPIRUN, *FLAGS, str(ranks), "bash", "-c", limited, "bash", TRIREME, "doctor", "--directory", self.folder, "--json", file]
                run = Run(subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False))
                self.assertEqual(run.code, 3, run)
                with open(file, encoding="utf-8") as text:
                    report = json.load(text)
                os.remove(file)
                self.assertEqual([problem["part"] for problem in report["problems"]], failed)
                for problem in report["problems"]:
                    self.assertIn("File too large", problem["reason"])
                    self.assertIn(f"error: {problem['part']}: not measured", run.out)
                    self.assertIn(f"error: {problem['part']}: not measured", run.err)
                for key in ("memory_bytes_per_s", "fp32_flops", "bf16_flops"):
                    self.assertEqual(len(report[key]), ranks, key)
                self.assertEqual((report["file_systems"], report["collectives"]), ([], []))

    def test_a_directory_that_cannot_be_written_is_found_before_anything_is_measured(self):
        run = start("doctor", "--directory", self.path("none"), ranks=2)
        self.assert_refused(run, 2, "No such file or directory")
        self.assertEqual(run.out, "")

    def test_mistakes_are_the_users(self):
        self.assert_refused(start("doctor", "--directory", self.path("none")), 2, "No such file or directory")
        open(self.path("there.json"), "w").close()
        self.assert_refused(start("doctor", "--json", self.path("there.json")), 2, "there.json")


if __name__ == "__main__":
    unittest.main()
