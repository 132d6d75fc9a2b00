# SPDX-License-Identifier: Apache-2.0
"""Events around a run while it trains: its reader ends, its directory is moved or removed, pipes are given instead of files."""
import errno
import os
import shutil
import subprocess
import sys
import threading
import unittest
import unittest.mock

import fail_call

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import DECK, TIMEOUT_S, TRIREME, Run, TrainingTest, start  # noqa: E402

USER, ENVIRONMENT = 2, 3
LONG = ("run.steps=100000", "checkpoint.every_steps=0", "evaluate.every_steps=0")


class Surroundings(TrainingTest):
    def alone(self, *overrides, name="run", environment=None):
        """Starts the executable without mpirun."""
        return subprocess.Popen([TRIREME, *self.words(name, overrides)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, **(environment or {})})

    def log(self, name="run"):
        with open(self.path(f"{name}/log.txt"), encoding="utf-8") as file:
            return file.read()

    def test_a_reader_that_goes_away_ends_nothing(self):
        running = self.alone("run.steps=200")
        running.stdout.readline()
        running.stdout.close()
        err = running.stderr.read()
        running.stderr.close()
        self.assertEqual(running.wait(TIMEOUT_S), 0, err)
        self.assertEqual(self.column("step", "steps"), list(range(1, 201)))
        self.assertIn("step    200/200", self.log())

    @unittest.skipUnless("Open MPI v4." in subprocess.run([TRIREME, "--version"], capture_output=True, text=True, check=False).stdout,
                         "the MPI is not Open MPI 4")
    def test_a_process_without_a_launcher_needs_no_temporary_directory(self):
        """In Open MPI 4 all such processes share a session directory, so one could remove it while another creates it."""
        running = self.alone("run.steps=6", environment={"TMPDIR": os.devnull})
        _, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, 0, err)

    def test_a_directory_that_cannot_be_locked_is_warned_of(self):
        library = fail_call.compile_into(self.folder)
        without_locks = {
            "LD_PRELOAD": library, "FAIL_UNDER": self.path("run"), "FAIL_CALL": "flock", "FAIL_AT": "1", "FAIL_FOR": "0", "FAIL_ERRNO": str(errno.ENOLCK)}
        running = self.alone("run.steps=6", environment=without_locks)
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, 0, err)
        self.assertIn(f"{self.path('run')} cannot be locked on this file system", out + err)
        done = subprocess.run([TRIREME, "record", self.path("run")], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              env={**os.environ, **without_locks})
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"warning: {self.path('run')} cannot be locked on this file system: if process {running.pid} on ", done.stderr)
        self.assertEqual(self.column("step", "steps"), list(range(1, 7)))

    def test_a_lock_that_cannot_be_read_is_reported_with_the_reason(self):
        library = fail_call.compile_into(self.folder)
        running = self.alone("run.steps=6", environment={
            "LD_PRELOAD": library, "FAIL_UNDER": self.path("run/lock"), "FAIL_CALL": "open", "FAIL_AT": "2", "FAIL_FOR": "0", "FAIL_ERRNO": str(errno.EIO)})
        _, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, ENVIRONMENT, err)
        self.assertIn(f"open {self.path('run/lock')} failed: Input/output error", err)

    def test_a_record_whose_disk_stalls_delays_no_step(self):
        library, gate, calls = fail_call.compile_into(self.folder), self.path("gate"), self.path("calls")
        os.mkfifo(gate)
        few = ("checkpoint.every_steps=0", "evaluate.every_steps=10", "sample.every_steps=0")

        def begin(steps, name, **settings):
            return self.alone(f"run.steps={steps}", *few, name=name, environment={
                "LD_PRELOAD": library, "FAIL_UNDER": self.path(f"{name}/steps.jsonl"), "FAIL_CALL": "write", **settings})
        short = begin(5, "short", FAIL_REPORT=calls)
        self.assertEqual(short.communicate(timeout=TIMEOUT_S)[1], "")
        with open(calls, encoding="utf-8") as file:
            writes = dict(line.split() for line in file)["write"]
        running = begin(120, "run", FAIL_GATE=gate, FAIL_AT=str(int(writes) + 1))
        with open(gate, "w", encoding="utf-8"):  # returns when the run waits in a write of rows
            self.wait_for_line(running, "120/120  validation")
        err = running.communicate(timeout=TIMEOUT_S)[1]
        self.assertEqual(running.returncode, 0, err)
        self.assertEqual(self.column("step", "steps"), list(range(1, 121)))

    def test_a_disk_that_stalls_beyond_the_deadline_ends_no_run(self):
        library, gate, deadline_s = fail_call.compile_into(self.folder), self.path("gate"), 6
        os.mkfifo(gate)
        for what, rank, call, at in (("log.txt", 0, "fflush", 20), ("tokens", 1, "pread64", 200)):
            with unittest.mock.patch.dict(os.environ, LD_PRELOAD=library, FAIL_UNDER=self.path(f"{what}/{what}"), FAIL_CALL=call, FAIL_AT=str(at),
                                          FAIL_RANK=str(rank), FAIL_GATE=gate):
                running = self.popen("run.steps=100", "checkpoint.every_steps=0", "evaluate.every_steps=0", f"parallel.deadline={deadline_s}",
                                     ranks=2, name=what)
            with open(gate, "w", encoding="utf-8"):  # returns when the run waits in the call
                with self.assertRaises(subprocess.TimeoutExpired, msg=what):
                    running.wait(2 * deadline_s)
            err = running.communicate(timeout=TIMEOUT_S)[1]
            self.assertEqual(running.returncode, 0, err)
            self.assertIn("step    100/100", self.log(what))

    def gone(self, change, ranks, *parts):
        running = self.popen(*LONG, ranks=ranks)
        self.wait_for_line(running, "loss")
        change()
        drain = threading.Thread(target=running.stdout.read)
        drain.start()
        err = running.stderr.read()
        drain.join()
        code = running.wait(TIMEOUT_S)
        self.assertEqual(code, ENVIRONMENT, err)
        errors = [line for line in err.splitlines() if "error: " in line]
        self.assertEqual(len(errors), 1, err)
        for part in parts:
            self.assertIn(part, errors[0])

    def test_a_run_directory_that_is_moved_is_reported(self):
        self.gone(lambda: os.rename(self.path("run"), self.path("away")), 2, self.path("run"), "moved away")
        self.assertIn("moved away", self.log("away"))  # the error that ended the run

    def test_a_run_directory_that_is_removed_is_reported(self):
        def change():
            while os.path.exists(self.path("run")):  # the run may write while its files are removed
                shutil.rmtree(self.path("run"), ignore_errors=True)
        self.gone(change, 1, self.path("run"), "removed")

    def test_a_pipe_is_a_deck_when_somebody_writes_into_it(self):
        with open(DECK, encoding="utf-8") as file:
            deck = file.read()
        pipe = self.path("deck.yaml")
        os.mkfifo(pipe)

        def write():
            with open(pipe, "w", encoding="utf-8") as out:
                out.write(deck)
        writer = threading.Thread(target=write)
        writer.start()
        run = Run(subprocess.run([TRIREME, "check", pipe, f"data.train.text=[{self.text}]"], capture_output=True, text=True, timeout=TIMEOUT_S,
                                 check=False))
        writer.join()
        self.assertEqual(run.code, 0, run)
        run = Run(subprocess.run([TRIREME, "check", pipe], capture_output=True, text=True, timeout=TIMEOUT_S, check=False))
        self.assert_refused(run, USER, "deck.yaml", "no process writes into this pipe")

    def test_a_deep_deck_is_refused_by_a_message(self):
        path = self.path("deep.yaml")
        with open(path, "w", encoding="ascii") as out:
            out.write("run: " + "[" * 5000)
        self.assert_refused(start(path), USER, "nested hundreds of levels deep")

    def test_pipes_and_folders_where_the_run_writes(self):
        for name in ("log.txt", "deck.resolved.yaml", "run.id"):
            for make in (os.mkfifo, os.mkdir):
                with self.subTest(name=name, make=make.__name__):
                    run = f"{make.__name__}-{name}"
                    os.mkdir(self.path(run))
                    make(self.path(f"{run}/{name}"))
                    done = self.train(name=run)
                    self.assertEqual(done.code, ENVIRONMENT, done)
                    self.assertEqual(len(done.errors), 1, done)
                    self.assertIn(name, done.errors[0])


if __name__ == "__main__":
    unittest.main()
