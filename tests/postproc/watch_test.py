# SPDX-License-Identifier: Apache-2.0
import io
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import h5py
import numpy as np

import made_up
from cli_test import run
from trireme_postproc import run_file
from trireme_postproc.run_file import RunFile, UnreadableError, read_while_written
from trireme_postproc.watch import duration_text, printable, remaining_s, state_of, watch


class WatchTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = self.directory + "/run.h5"

    def lock(self, process, host=None):
        with open(self.directory + "/lock", "w", encoding="utf-8") as file:
            file.write(f"process {process} on {host or socket.gethostname()}\n")

    def ended_process(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        return child.pid

    def test_once(self):
        made_up.write(self.path, steps=30, wanted=40, noise=0, sets={"code": {"step": [0, 20], "loss": [4.0, 3.0]}})
        with h5py.File(self.path, "a") as file:
            file["checkpoints/step"], file["checkpoints/bytes"] = [10, 20], [2**20, 3 * 2**20]
            file["checkpoints/bytes"].attrs["units"] = "byte"
        self.lock(os.getpid())
        code, out, err = run("watch", self.directory, "--once")
        self.assertEqual((code, err), (0, ""))
        loss = RunFile(self.path).steps["loss"].values
        for part in ("made-up", "running", "30 of 40  [######################........]  75 %",
                     f"{loss[-1]:.3f} nat/token, median of the last 20: {np.median(loss[10:]):.3f}",
                     "40 960 tokens/s, median of the last 20: 40 960 tokens/s", "remaining   1.00 s, without", "set code    3.000 nat/token (step 20)",
                     "checkpoint  step 20, 3.00 MiB"):
            self.assertIn(part, out)
        self.assertAlmostEqual(remaining_s(RunFile(self.path)), 1.0)  # ten steps of 100 ms

    def test_a_validation_that_is_not_finite_is_shown(self):
        unknown = [float("nan")] * 2
        made_up.write(self.path, steps=30, sets={"code": {"step": [0, 20], "loss": [4.0, float("nan")], "accuracy": unknown}})
        with h5py.File(self.path, "a") as file:
            file["validation/loss"][-1] = np.nan
        code, out, err = run("watch", self.directory, "--once")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"validation  nan nat/token \(step 30\)\nset code    nan nat/token \(step 20\)\n")
        for words in (("plot", self.path), ("summary", self.path), ("report", self.path, "-o", self.directory + "/a.html")):
            self.assertEqual(run(*words)[0::2], (0, ""), words)

    def test_several_runs_until_the_last_has_ended(self):
        names, out, looks = ("a", "b"), io.StringIO(), []
        paths = [f"{self.directory}/{name}" for name in names]
        for path, steps in zip(paths, (40, 30)):
            os.mkdir(path)
            made_up.write(path + "/run.h5", steps=steps, wanted=40)
            with h5py.File(path + "/run.h5", "a") as file:
                file["deck"].attrs["run.name"] = os.path.basename(path)
            with open(path + "/lock", "w", encoding="utf-8") as file:
                file.write(f"process {os.getpid() if steps == 30 else self.ended_process()} on {socket.gethostname()}\n")

        def pause(_):
            looks.append(out.getvalue())
            with open(paths[1] + "/lock", "w", encoding="utf-8") as file:
                file.write(f"process {self.ended_process()} on {socket.gethostname()}\n")

        watch(paths, out=out, pause=pause)
        self.assertRegex(looks[0], r"(?s)^a: finished, step 40 of 40.*\nb: step 30 of 40, loss .* left\n$")
        self.assertRegex(out.getvalue(), r"b: it ended before its last step, step 30 of 40.*\nall runs are over\n$")
        self.assertEqual(out.getvalue().count("a: "), 1)
        code, shown, err = run("watch", *paths, "--once")
        self.assertEqual((code, err, shown.count("checkpoint  ")), (0, "", 2))
        self.assertIn("is named twice", run("watch", paths[0], paths[0] + "/run.h5", "--once")[2])

    def test_several_runs_on_a_small_terminal_one_of_which_disappears(self):
        paths = [f"{self.directory}/{name}" for name in "abcdef"]
        for path in paths:
            os.mkdir(path)
            made_up.write(path + "/run.h5", steps=30, wanted=40)
            with open(path + "/lock", "w", encoding="utf-8") as file:
                file.write(f"process {os.getpid()} on {socket.gethostname()}\n")

        def pause(_):
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)

        with unittest.mock.patch("os.get_terminal_size", return_value=os.terminal_size((60, 5))):
            out = io.StringIO()
            out.isatty, out.fileno = lambda: True, lambda: 1
            watch(paths, out=out, pause=pause)
        looks = out.getvalue().split("\x1b[4F\x1b[J")
        self.assertEqual(len(looks), 2)
        self.assertEqual([line.split(":")[0] for line in looks[0].splitlines()], ["made-up (a)", "made-up (b)", "made-up (c)", "… and 3 more"])
        self.assertIn("made-up (a): its record is gone, step 30 of 40", looks[1])
        self.assertTrue(all(len(line) < 60 for line in looks[0].splitlines()))

    def test_who_holds_the_run(self):
        found = RunFile(made_up.write(self.path, steps=3))
        self.assertEqual(state_of(found.path), "unknown")
        for process, host, word in ((os.getpid(), None, "running"), (self.ended_process(), None, "ended"), (os.getpid(), "elsewhere", "unknown"),
                                    (10**30, None, "ended")):
            self.lock(process, host)
            self.assertEqual(state_of(found.path), word)
        self.lock(os.getpid())
        os.utime(self.directory + "/lock", (1e9, 1e9))  # before this process started, so another process had its number
        self.assertEqual(state_of(found.path), "ended")

    def test_a_process_that_nobody_has_waited_for_has_ended(self):
        found = RunFile(made_up.write(self.path, steps=3))
        with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
            self.lock(child.pid)
            self.assertEqual(state_of(found.path), "running")
            child.stdin.close()
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            self.assertEqual(state_of(found.path), "ended")

    def test_a_run_that_grows_until_its_process_ends(self):
        made_up.write(self.path, steps=2, wanted=6)
        self.lock(os.getpid())
        looks = []

        def pause(_):
            looks.append(0)
            made_up.write(self.path, steps=2 * (1 + len(looks)), wanted=6)
            if len(looks) == 2:
                self.lock(self.ended_process())

        out = io.StringIO()
        watch([self.directory], out=out, pause=pause)
        lines = out.getvalue().splitlines()
        self.assertEqual([line.split(",")[0] for line in lines], ["step 2 of 6", "step 4 of 6", "step 6 of 6", "the run is over: finished"])
        self.assertTrue(lines[0].endswith(" left"), lines[0])

    def test_rows_that_are_in_the_log_alone(self):
        made_up.write(self.path, steps=2, wanted=6)
        with open(os.path.join(os.path.dirname(self.path), "steps.jsonl"), "w", encoding="ascii") as file:
            for step in (1, 2, 3, 4, 5):
                file.write(made_up.log_line("step", step=step, loss=4.5, tokens_per_s=None if step == 1 else 100.0))
            file.write(made_up.log_line("rewind", step=3) + made_up.log_line("validation", step=3, loss=4.25))
        found = read_while_written(self.path, samples=False)
        self.assertEqual(found.steps["step"].values.tolist(), [1, 2, 3])
        self.assertEqual(found.steps["tokens_per_s"].unit, "tokens/s")
        self.assertTrue(np.isnan(found.steps["tokens_per_s"].values[0]))
        self.assertEqual(found.validation["loss"].values.tolist(), [4.25])

    def test_all_verbs_read_rows_that_are_in_the_log_alone(self):
        made_up.write(self.path, steps=2, wanted=6)
        log = os.path.join(self.directory, "steps.jsonl")

        def append(*lines):
            with open(log, "a", encoding="utf-8") as file:
                file.write("".join(lines))

        append(*(made_up.log_line("step", step=step, loss=4.5, tokens_per_s=100.0) for step in (1, 2)))
        append(made_up.log_line("run_file", bytes=os.path.getsize(self.path), crc32_of_file="00000000"))
        self.assertEqual(RunFile(self.path).steps["loss"].unit, "nat/token")
        self.assertNotEqual(RunFile(self.path).steps["loss"].values[0], 4.5)  # nothing is newer, so the log is not read
        append(*(made_up.log_line("step", step=step, loss=4.5, tokens_per_s=100.0, new=7.0) for step in (3, 4, 5)),
               *(made_up.log_line("skipped", step=step, found=f"wte on rank {step}") for step in (4, 5)),
               *(made_up.log_line("rank_spans", first_step=step, last_step=step, name=2, median_s=1.0, max_s=2.0, max_rank=1) for step in (4, 5)),
               made_up.log_line("rewind", step=4))
        found = RunFile(self.path)
        self.assertEqual(found.steps["step"].values.tolist(), [1, 2, 3, 4])
        self.assertEqual(np.isnan(found.steps["new"].values).tolist(), [True, True, False, False])
        self.assertEqual(found.skipped["found"].values.tolist(), ["wte on rank 4"])
        self.assertEqual(found.rank_spans["last_step"].values.tolist(), [4])
        self.assertIn("4 of 6 (not finished)", run("summary", self.directory)[1])
        self.assertIn("4 of 6", run("list", self.directory)[1])
        self.assertEqual(run("export", self.directory, "--format", "csv")[0], 0)
        with open(os.path.join(self.directory, "steps.csv"), encoding="ascii") as file:
            self.assertEqual(len(file.readlines()), 5)
        aside = self.path + ".earlier-1"  # this log belongs to another file
        os.rename(self.path, aside)
        self.assertEqual(RunFile(aside).steps["step"].values.tolist(), [1, 2])

    def test_a_run_that_was_killed(self):
        made_up.write(self.path, steps=2, wanted=6)
        self.lock(self.ended_process())
        out = io.StringIO()
        watch([self.directory], out=out, pause=lambda _: None)
        self.assertTrue(out.getvalue().endswith("run the same command again to continue it\n"), out.getvalue())

    def test_a_run_on_another_host(self):
        made_up.write(self.path, steps=2, wanted=6)
        self.lock(1, "elsewhere")
        now = [0.0]

        def pause(seconds):
            now[0] += seconds

        out = io.StringIO()
        watch([self.directory], out=out, every_s=100.0, clock=lambda: now[0], pause=pause)
        self.assertEqual(now[0], 1000.0)  # the first poll after 900 s
        self.assertIn("nothing new for 16 min 40 s", out.getvalue())

    def test_on_a_terminal(self):
        made_up.write(self.path, steps=6)
        self.lock(self.ended_process())
        try:
            reader, writer = pty.openpty()
        except OSError as error:
            print(f"skipped: watch on a terminal: {error}")
            self.skipTest(str(error))
        with os.fdopen(writer, "w") as out:
            watch([self.directory], out=out, pause=lambda _: None)
            text = os.read(reader, 65536).decode()
        os.close(reader)
        self.assertIn("made-up", text)
        self.assertIn("6 of 6", text)

    def test_a_file_that_cannot_be_read_for_a_moment(self):
        with open(self.path, "wb") as file:
            file.write(b"half of a file")
        with mock.patch.object(run_file.time, "sleep", side_effect=lambda _: made_up.write(self.path, steps=5)):
            self.assertEqual(len(read_while_written(self.path, samples=False).steps["step"]), 5)
        with open(self.path, "wb") as file:
            file.write(b"half of a file")
        with mock.patch.object(run_file.time, "sleep") as slept, self.assertRaises(UnreadableError):
            read_while_written(self.path, tries=3)
        self.assertEqual(slept.call_count, 2)
        made_up.write(self.path, version=(2, 0))
        with mock.patch.object(run_file.time, "sleep") as slept:  # errors that do not pass with time are reported at once
            self.assertEqual(run("watch", self.path)[0], 2)
        self.assertEqual(slept.call_count, 0)

    def test_incomplete_runs_and_odd_texts(self):
        made_up.write(self.path, steps=0, validation=False, spans=False, wanted=9)
        with h5py.File(self.path, "a") as file:
            file["deck"].attrs["run.name"] = "red\x1b[31m"
        code, out, _ = run("watch", self.path, "--once")
        self.assertEqual(code, 0)
        for part in ("red?[31m", "0 of 9", "remaining   –", "validation  –", "none yet"):
            self.assertIn(part, out)
        self.assertEqual(printable("a\nb\x07ä"), "a?b?ä")
        for arguments in (("--every", "0"), ("--timeout", "-1")):
            self.assertEqual(run("watch", self.path, *arguments)[0], 2)

    def test_durations(self):
        for seconds, text in ((0, "0 s"), (3.14159, "3.14 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90061, "1 d 1 h"), (-5, "0 s")):
            self.assertEqual(duration_text(seconds), text)


if __name__ == "__main__":
    unittest.main()
