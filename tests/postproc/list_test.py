# SPDX-License-Identifier: Apache-2.0
"""The verb list, the states of runs, and Python without h5py."""
import csv
import io
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np

import made_up
from cli_test import run
from trireme_postproc.run_file import RunFile
from trireme_postproc.run_state import run_state

POSTPROC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc")


class RunsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name

    def write(self, name, process=None, host=None, log=None, rate="0.001", best=None, checkpoint=None, **options):
        """Writes a run directory. `process` is the process in its file lock."""
        directory = f"{self.directory}/{name}"
        os.makedirs(directory)
        path = made_up.write(directory + "/run.h5", **{"spans": False, **options})
        with h5py.File(path, "a") as file:
            file["deck"].attrs["optimizer.learning_rate"] = rate
            file["deck"].attrs["run.directory"] = directory
            if best is not None:
                file["validation/loss"][-1] = best
            if checkpoint is not None:
                file["checkpoints/step"], file["checkpoints/bytes"] = [checkpoint], [2**20]
        if process is not None:
            with open(directory + "/lock", "w", encoding="utf-8") as file:
                file.write(f"process {process} on {host or socket.gethostname()}\n")
        if log is not None:
            with open(directory + "/log.txt", "w", encoding="utf-8") as file:
                file.writelines(f"2026-08-01 17:04:05 {line}\n" for line in log)
        return path

    def ended_process(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        return child.pid


class StateTest(RunsTest):
    def test_states(self):
        gone = self.ended_process()
        cases = (
            ("running", {"process": os.getpid(), "steps": 5, "wanted": 9}, "running, after step 5 of 9"),
            ("finished", {"process": gone, "steps": 9}, "finished"),
            ("finished", {"steps": 9}, "finished"),
            ("stopped", {"process": gone, "steps": 5, "wanted": 9, "log": ["info step 5/9", "info stopped after step 5 of 9: checkpoint saved"]},
             "stopped after step 5 of 9; the same command resumes it"),
            ("stopped", {"process": gone, "steps": 9, "log": ["info stopped after step 9 of 9: an evaluation is missing"]},
             "stopped after step 9 of 9; the same command resumes it"),
            ("interrupted", {"process": gone, "steps": 5, "wanted": 9, "log": ["error old", "info step 5/9", "warning slow"]},
             "interrupted after step 5 of 9; the same command starts it again: it has no checkpoint"),
            ("interrupted", {"process": gone, "steps": 5, "wanted": 9, "checkpoint": 3},
             "interrupted after step 5 of 9; the same command resumes it from the newest checkpoint"),
            ("interrupted", {"process": gone, "steps": 0, "wanted": 9, "validation": False},
             "interrupted after step 0 of 9; the same command starts it again: it has no checkpoint"),
            ("failed", {"process": gone, "steps": 5, "wanted": 9, "log": ["info step 5/9", "error no space left", "error in run.h5"]},
             "failed after step 5 of 9: no space left"),
            ("unknown", {"process": 1, "host": "elsewhere", "steps": 5, "wanted": 9},
             "not finished, after step 5 of 9; process 1 on elsewhere may be running it"),
            ("unknown", {"steps": 5, "wanted": 9}, "not finished, after step 5 of 9; whether it is running is not known without the file lock"),
        )
        for number, (word, options, text) in enumerate(cases):
            with self.subTest(text):
                found = RunFile(self.write(str(number), **options))
                state = run_state(found)
                self.assertEqual((state.word, state.text), (word, text))
                code, out, _ = run("watch", found.path, "--once")
                self.assertEqual(code, 0)
                self.assertIn(text, out)
                self.assertRegex(run("summary", found.path)[1], rf"(?m)^state +{re.escape(text)}$")
                if word in ("finished", "stopped", "interrupted", "failed"):
                    self.assertRegex(out, "remaining +–")

    def test_a_run_on_another_host_that_writes_nothing_any_more(self):
        found = RunFile(self.write("a", process=1, host="elsewhere", steps=5, wanted=9))
        self.assertEqual(run_state(found, now=os.stat(found.path).st_mtime + 1000).word, "interrupted")

    def test_a_log_of_anything(self):
        found = RunFile(self.write("a", process=self.ended_process(), steps=5, wanted=9))
        for text, word in ((b"", "interrupted"), (b"\xff\0\n" * 100, "interrupted"), (b"2026-08-01 17:04:05 error \x1b[31m\n", "failed"),
                           (b"x" * 100000 + b"\n2026-08-01 17:04:05 error late\n", "failed")):
            with open(self.directory + "/a/log.txt", "wb") as file:
                file.write(text)
            state = run_state(found)
            self.assertEqual(state.word, word)
            self.assertNotIn("\x1b", state.text)


class ListTest(RunsTest):
    def setUp(self):
        super().setUp()
        self.write("b", steps=20, rate="0.01", best=0.5)
        self.write("sweep/a", steps=40, rate="0.002", best=0.75)
        self.write("c", steps=10, wanted=40, validation=False, process=self.ended_process(), rate="0.001")
        os.makedirs(self.directory + "/b/checkpoints/x")
        os.makedirs(self.directory + "/empty")

    def listed(self, *more):
        code, out, err = run("list", self.directory, *more)
        self.assertEqual((code, err), (0, ""))
        return out

    def names(self, *more):
        return [line.split()[0] for line in self.listed(*more).splitlines()[1:]]

    def test_table(self):
        rows = [re.split(r"  +", line.strip()) for line in self.listed().splitlines()]
        speed = {name: np.median(RunFile(f"{self.directory}/{name}").steps["tokens_per_s"].values) for name in ("b", "c", "sweep/a")}
        text = {name: f"{value:,.0f} tokens/s".replace(",", " ") for name, value in speed.items()}
        self.assertEqual(rows, [
            ["run", "state", "steps", "best validation", "speed", "optimizer.learning_rate", "run.steps"],
            ["b", "finished", "20 of 20", "0.5000 nat/token (step 20)", text["b"], "0.01", "20"],
            ["c", "interrupted", "10 of 40", "–", text["c"], "0.001", "40"],
            ["sweep/a", "finished", "40 of 40", "0.7500 nat/token (step 40)", text["sweep/a"], "0.002", "40"],
        ])

    def test_links_are_followed(self):
        with tempfile.TemporaryDirectory() as other:
            os.rename(self.directory + "/c", other + "/c")
            for target, name in ((other + "/c", "a-link"), (other, "all"), ("sweep", "again"), (self.directory, "sweep/loop")):
                os.symlink(target, f"{self.directory}/{name}")
            self.assertEqual(self.names(), ["a-link", "b", "sweep/a"])

    def test_sorting(self):
        for arguments, names in (
            ((), "b c sweep/a"), (("--reverse",), "sweep/a c b"), (("--sort", "validation"), "b sweep/a c"),
            (("--sort", "validation", "--reverse"), "sweep/a b c"), (("--sort", "steps"), "sweep/a b c"), (("--sort", "state"), "b sweep/a c"),
            (("--sort", "optimizer.learning_rate"), "c sweep/a b"),
        ):
            self.assertEqual(" ".join(self.names(*arguments)), names, arguments)
        code, out, err = run("list", self.directory, "--sort", "nothing")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("--sort nothing: is neither one of run, state, steps, validation, speed nor a key", err)

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(self.listed("--csv", "--sort", "validation"))))
        self.assertEqual([row["run"] for row in rows], ["b", "sweep/a", "c"])
        self.assertEqual(float(rows[0]["best_validation"]), 0.5)
        self.assertEqual(rows[2]["best_validation"], "")
        self.assertEqual([rows[2][key] for key in ("state", "step", "steps", "optimizer.learning_rate")], ["interrupted", "10", "40", "0.001"])
        speed = np.median(RunFile(self.directory + "/b").steps["tokens_per_s"].values)
        self.assertEqual(float(rows[0]["tokens_per_s"]), speed)
        self.assertNotIn("run.directory", rows[0])

    def test_a_run_that_cannot_be_read_does_not_hide_the_others(self):
        os.makedirs(self.directory + "/bad")
        with open(self.directory + "/bad/run.h5", "wb") as file:
            file.write(b"half of a file")
        text = self.listed()
        self.assertRegex(text, r"\nbad +unreadable +– +– +– +– +–\n")
        self.assertIn("bad: " + self.directory + "/bad/run.h5", text)
        self.assertEqual(self.names("--sort", "optimizer.learning_rate")[:4], ["c", "sweep/a", "b", "bad"])
        self.assertEqual(len(list(csv.DictReader(io.StringIO(self.listed("--csv"))))), 4)

    def test_a_run_with_odd_values_does_not_hide_the_others(self):
        with h5py.File(self.directory + "/c/run.h5", "a") as file:
            file["deck"].attrs["run.steps"] = [1, 2]
        with h5py.File(self.directory + "/b/run.h5", "a") as file:
            file["steps/tokens_per_s"].attrs["units"] = 7
        text = self.listed()
        self.assertRegex(text, r"\nc +unreadable +– +– +– +–")
        self.assertIn(f"\nc: {self.directory}/c/run.h5: the file does not hold what trireme writes (TypeError: ", text)
        self.assertEqual(self.names()[:3], ["b", "c", "sweep/a"])

    def test_a_run_that_has_its_log_alone(self):
        for name, line in (("d", made_up.log_line("step", step=1, loss=4.5)), ("exported", '{"step": 1, "loss": 4.5}\n')):
            os.makedirs(f"{self.directory}/{name}")
            with open(f"{self.directory}/{name}/steps.jsonl", "w", encoding="ascii") as file:
                file.write(line)
        text = self.listed()
        self.assertRegex(text, r"\nd +unreadable +–")
        self.assertIn(f"\nd: {self.directory}/d: holds no run.h5. `trireme record {self.directory}/d` writes it from steps.jsonl\n", text)
        self.assertNotIn("exported", text)
        os.rename(self.directory + "/d/steps.jsonl", self.directory + "/c/steps.jsonl")
        os.truncate(self.directory + "/c/run.h5", 3000)
        self.assertRegex(self.listed(), rf"\nc: .*cannot be read.*`trireme record {self.directory}/c` writes it from steps\.jsonl\n")

    def test_many_keys(self):
        with h5py.File(self.directory + "/b/run.h5", "a") as file:
            for key in range(9):
                file["deck"].attrs[f"data.x{key}"] = "1"
        self.assertIn("\n5 more keys of the decks differ: see --csv.\n", self.listed())
        self.assertIn("data.x8", self.listed("--csv"))

    def test_refuses(self):
        for name, text in (("empty", "has no run.h5"), ("none", "is not a directory")):
            code, out, err = run("list", f"{self.directory}/{name}")
            self.assertEqual((code, out), (2, ""))
            self.assertIn(text, err)


class RequirementsTest(unittest.TestCase):
    def test_a_python_without_a_package(self):
        """Simulated with a module that fails to import as a missing one does."""
        with tempfile.TemporaryDirectory() as directory:
            for package, words in (("h5py", ("-m", "trireme_postproc", "summary", "x")), ("h5py", ("-m", "trireme_postproc.cli", "--help")),
                                   ("matplotlib", ("-m", "trireme_postproc", "plot", directory + "/run.h5"))):
                made_up.write(directory + "/run.h5", steps=3)
                path = f"{directory}/without-{package}"
                os.makedirs(path, exist_ok=True)
                with open(f"{path}/{package}.py", "w", encoding="ascii") as file:
                    file.write(f"raise ModuleNotFoundError('No module named {package}', name='{package}')\n")
                done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False,
                                      env={**os.environ, "PYTHONPATH": path + os.pathsep + POSTPROC})
                self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(f"needs {package}, which {sys.executable} does not have", done.stderr)
                self.assertIn("-m pip install h5py numpy matplotlib", done.stderr)


if __name__ == "__main__":
    unittest.main()
