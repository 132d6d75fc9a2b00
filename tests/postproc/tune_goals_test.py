# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import tempfile
import unittest

import h5py

import made_up
from trireme_postproc.run_file import RunFileError
from trireme_postproc.tune_goals import main


class TuneGoalsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def link(self, name, rounds, chosen=2):
        """Writes a link's folder. `rounds` are (own, tuned) seconds per step; the second run of each round is a tenth slower."""
        folder = f"{self.directory}/{name}"
        os.mkdir(folder)
        values = [{"batch.micro_sequences": "4", "parallel.bucket_elements": "auto"}, {}, {"batch.micro_sequences": "12", "parallel.bucket_elements": "auto"}]
        with open(folder + "/tune.json", "w", encoding="utf-8") as file:
            json.dump({"runs": [{"values": one} for one in values], "chosen": chosen, "repeated": {"run": 2, "ratio": 0.9}}, file)
        for number, pair in enumerate(rounds, 1):
            for side, seconds in zip(("own", "tuned"), pair):
                for turn in (1, 2):
                    run = f"{folder}/{number}-{side}-{turn}"
                    os.mkdir(run)
                    with h5py.File(made_up.write(run + "/run.h5", steps=5, noise=0, spans=False), "a") as file:
                        file["steps/seconds"][:] = [9, 9, 9, seconds * (1 + 0.1 * (turn - 1)), seconds * (1 + 0.1 * (turn - 1))]

    def judged(self):
        """Exit code, lines of the table, and links in the file by name."""
        output, out = self.directory + "/goals.json", io.StringIO()
        with contextlib.redirect_stdout(out):
            code = main(self.directory, output, {"deck": "made_up.yaml"})
        with open(output, encoding="utf-8") as file:
            return code, out.getvalue().splitlines(), {link["link"]: link for link in json.load(file)["links"]}

    def test_both_goals_hold(self):
        self.link("shared", [(0.1, 0.101), (0.1, 0.1), (0.1, 0.2)])
        self.link("300mbit", [(0.2, 0.19), (0.2, 0.1), (0.2, 0.3)])
        code, lines, links = self.judged()
        self.assertEqual(code, 0)
        self.assertEqual([round(ratio, 6) for ratio in links["300mbit"]["ratios"]], [0.95, 0.5, 1.5])
        self.assertEqual(lines[0], "deck: made_up.yaml")
        self.assertEqual(lines[4:], [
            "| shared | `batch.micro_sequences: 12` | 0.900 | 105.0 ms | 110.6 ms | 1.010 | 1.000 … 2.000 | ≤ 1.01 holds |",
            "| 300mbit | `batch.micro_sequences: 12` | 0.900 | 210.0 ms | 199.5 ms | 0.950 | 0.500 … 1.500 | ≤ 1.01 holds, ≤ 0.95 holds |"])

    def test_a_goal_fails(self):
        for name, ratio, goals in (("shared", 1.02, {"not_worse": False}), ("300mbit", 0.96, {"not_worse": True, "better": False}),
                                   ("1gbit", 1.02, {"not_worse": False, "better": False})):
            with self.subTest(name):
                self.setUp()
                self.link(name, [(0.1, 0.1 * ratio)])
                code, lines, links = self.judged()
                self.assertEqual((code, links[name]["goals"]), (1, goals))
                self.assertIn("FAILS", lines[-1])

    def test_nothing_chosen(self):
        self.link("shared", [], chosen=0)
        code, lines, links = self.judged()
        self.assertEqual((code, links["shared"]["ratio"], links["shared"]["chosen"]), (0, 1.0, {}))
        self.assertEqual(lines[-1], "| shared | nothing | – | – | – | 1.000 | not run | ≤ 1.01 holds |")
        self.link("300mbit", [], chosen=0)
        self.assertEqual(self.judged()[0], 1)

    def test_what_is_missing_is_no_result(self):
        with self.assertRaisesRegex(RunFileError, "nothing that was tuned"):
            self.judged()
        self.link("shared", [])
        with self.assertRaisesRegex(RunFileError, "no runs are there"):
            self.judged()


if __name__ == "__main__":
    unittest.main()
