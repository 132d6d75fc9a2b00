# SPDX-License-Identifier: Apache-2.0
"""Stops runs by signals in every phase, by `trireme stop` and `trireme save`, and by time limits. A reader of its output that pauses must
not prevent a run from stopping."""
import fcntl
import glob
import itertools
import os
import signal
import subprocess
import sys
import time
import unittest

import fail_call

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import TIMEOUT_S, TRIREME, TrainingTest, start  # noqa: E402

REQUEUE, STOPPED, USER, ENVIRONMENT = 75, 76, 2, 3
LONG = ("run.steps=1000000", "checkpoint.every_steps=0", "evaluate.every_steps=0", "optimizer.schedule={kind: constant}")
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGHUP": signal.SIGHUP, "SIGXCPU": signal.SIGXCPU, "SIGUSR2": signal.SIGUSR2}
SOON_S = 60  # for what takes five seconds, on a machine that stalls


def hear_signals():
    for ignored in (signal.SIGINT, signal.SIGHUP):  # background jobs of a shell ignore SIGINT, nohup ignores SIGHUP
        signal.signal(ignored, signal.SIG_DFL)


class Stop(TrainingTest):
    def alone(self, *overrides, name="run", environment=None, stdout=subprocess.PIPE):
        """Starts the executable without mpirun."""
        running = subprocess.Popen([TRIREME, *self.words(name, overrides)], stdin=subprocess.DEVNULL, stdout=stdout,
                                   stderr=subprocess.PIPE, text=True, errors="replace", env={**os.environ, **(environment or {})},
                                   preexec_fn=hear_signals)
        self.addCleanup(running.stderr.close)
        if running.stdout:
            self.addCleanup(running.stdout.close)
        self.addCleanup(running.kill)
        return running

    def make_large_text(self, lines):
        with open(os.path.join(self.text, "large.txt"), "w", encoding="ascii") as out:
            out.write("the quick brown fox jumps over the lazy dog\n" * lines)

    def log(self, name="run"):
        with open(self.path(f"{name}/log.txt"), encoding="utf-8") as file:
            return file.read()

    def newest(self, name="run"):
        return sorted(step for step in os.listdir(self.path(f"{name}/checkpoints")) if step.startswith("step-"))[-1]

    def test_signals_between_steps_save_and_name_themselves(self):
        for name, number in SIGNALS.items():
            running = self.alone(*LONG, name=name)
            self.wait_for_line(running, "step     10/")
            running.send_signal(number)
            out, err = running.communicate(timeout=TIMEOUT_S)
            self.assertEqual(running.returncode, REQUEUE, out + err)
            self.assertRegex(out, rf"stopped after step \d+ of 1000000: {name} was received\. A checkpoint was saved; run the same command again")
            self.assertTrue(self.newest(name))

    def test_a_signal_ends_the_preparation(self):
        library, gate = fail_call.compile_into(self.folder), self.path("gate")
        os.mkfifo(gate)
        for call in ("pread64", "read"):
            running = self.alone(*LONG, name=f"gate-{call}", environment={
                "LD_PRELOAD": library, "FAIL_UNDER": self.text, "FAIL_CALL": call, "FAIL_AT": "1", "FAIL_GATE": gate})
            try:
                writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                writer = None
            end = time.monotonic() + 20
            while writer is None and time.monotonic() < end and running.poll() is None:
                try:
                    writer = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)  # fails until the run waits in this call
                except OSError:
                    time.sleep(0.01)
            if writer is None:  # the run reads the text with the other call
                running.kill()
                running.communicate()
                continue
            running.send_signal(signal.SIGTERM)
            since = time.monotonic()
            out, err = running.communicate(timeout=TIMEOUT_S)
            os.close(writer)
            self.assertEqual(running.returncode, REQUEUE, out + err)
            self.assertLess(time.monotonic() - since, SOON_S)
            self.assertIn("Stopped before the first step: SIGTERM was received. There was nothing to save", err)
            return
        self.fail("the text was read by neither call")

    def test_a_signal_drops_an_evaluation(self):
        self.make_large_text(2_000_000)  # minutes of evaluation
        for name, words in {"validation": ("evaluate={every_steps: 1, batches: 100000000}", "data.validation_fraction=0.5"),
                            "sets": (f"evaluate={{every_steps: 0, sets: [{{name: large, every_steps: 1, text: [{self.text}]}}]}}",
                                     "data.tokenizer=bytes")}.items():
            running = self.alone(*LONG[:2], LONG[3], *words, name=name)
            self.wait_for_line(running, " epochs")
            running.send_signal(signal.SIGTERM)
            since = time.monotonic()
            out, err = running.communicate(timeout=TIMEOUT_S)
            self.assertEqual(running.returncode, REQUEUE, out + err)
            self.assertLess(time.monotonic() - since, SOON_S, name)
            self.assertIn("was dropped, because the run is about to stop", out)
            self.assertIn("stopped after step 0 of", out)

    def test_a_limit_that_ends_before_the_first_step_is_a_mistake(self):
        self.make_large_text(2_000_000)
        # With exit code 75, a job would return to the queue without end.
        running = self.alone("run.walltime=8", LONG[0], LONG[3], "evaluate={every_steps: 1, batches: 100000000}", "data.validation_fraction=0.5")
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, 2, out + err)
        self.assertIn("no step was made: run.walltime leaves no time", err)

    def test_dropped_evaluations_are_made_up(self):
        self.make_large_text(30_000)  # half a second of evaluation or more
        words = ("run.steps=10", "optimizer.schedule={kind: constant, warmup_steps: 0}", "data.validation_fraction=0.5", "data.tokenizer=bytes",
                 f"evaluate={{every_steps: 5, batches: 100000000, sets: [{{name: own, every_steps: 5, text: [{self.text}/a.txt]}}]}}")
        self.train_well(*words, name="whole")
        for step in (0, 5, 10):
            name = f"at-{step}"
            running = self.alone(*words, name=name)
            self.wait_for_line(running, f"step {step:6}/10" if step else " epochs")
            running.send_signal(signal.SIGTERM)
            out, err = running.communicate(timeout=TIMEOUT_S)
            self.assertEqual(running.returncode, REQUEUE, out + err)
            self.assertIn(f"stopped after step {step} of 10: SIGTERM was received", out)
            self.assertEqual(out.count("was dropped, because the run is about to stop"), 2, out)
            self.train_well(*words, name=name)
            for group, column in itertools.product(("validation", "evaluation/own", "steps"), ("step", "loss")):
                self.assertEqual(self.column(column, group, name), self.column(column, group, "whole"), f"{group} {step}")
            self.assertIn("is finished: step 10 of 10", self.train_well(*words, name=name).out)

    def test_a_stop_at_the_last_step_skips_the_measurement(self):
        self.make_large_text(30_000)
        running = self.alone("run.steps=1", "optimizer.schedule={kind: constant, warmup_steps: 0}", "evaluate={every_steps: 0}", "data.tokenizer=bytes",
                             "sample={every_steps: 1, tokens: 100000, prompt: the}")
        self.wait_for_line(running, "step      1/1 ")
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, 0, out + err)
        self.assertIn("the sample was dropped", out)
        self.assertIn("skipped measuring what matrix products reach on this machine: SIGTERM was received", out)

    def test_tune_and_find_rate_end_when_told(self):
        temporary = self.path("temporary")
        os.mkdir(temporary)
        for verb, words in {"tune": ("--seconds", "1000"), "find-rate": ("--steps", "100000", "--stop-above", "1e9")}.items():
            for number in (signal.SIGINT, signal.SIGTERM, None):
                limit = ["run.walltime=0.3"] if number is None else []  # searching takes longer than this limit
                running = subprocess.Popen([TRIREME, verb, *self.words("run", limit), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals, env={**os.environ, "TMPDIR": temporary})
                self.addCleanup(running.kill)
                if number is not None:
                    self.wait_for_line(running, "measuring" if verb == "tune" else "step     10/")
                    running.send_signal(number)
                since = time.monotonic()
                out, err = running.communicate(timeout=TIMEOUT_S)
                self.assertLess(time.monotonic() - since, SOON_S)
                self.assertEqual(running.returncode, USER if number is None else REQUEUE, out + err)
                self.assertIn("the time ended before trireme " + verb if number is None else f"Stopped trireme {verb}: {number.name} was received", err)
                self.assertFalse(os.path.exists(self.path("run")))
                self.assertEqual([name for name in os.listdir(temporary) if name.startswith("trireme-")], [])

    def test_other_verbs_leave_no_temporary_files(self):
        temporary = self.path("temporary")
        os.mkdir(temporary)
        for verb, words in {"verify": ("--steps", "1000"), "bench reduce": ("--fit", self.path("machine.yaml"), "--repetitions", "100000"),
                            "data": ("run.steps=1000000", "--step", "1-1000000")}.items():
            for number in (signal.SIGINT, signal.SIGTERM):
                running = subprocess.Popen([TRIREME, *verb.split(), *self.words("run", []), *words], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals,
                                           env={**os.environ, "TMPDIR": temporary})
                self.addCleanup(running.kill)
                end = time.monotonic() + 20
                while not glob.glob(os.path.join(temporary, "trireme-*", "*")) and time.monotonic() < end and running.poll() is None:
                    time.sleep(0.01)
                running.send_signal(number)
                out, err = running.communicate(timeout=TIMEOUT_S)
                self.assertEqual(running.returncode, REQUEUE, (verb, number, out + err))
                self.assertIn(f"Stopped trireme {verb}: {number.name} was received", err)
                self.assertEqual([name for name in os.listdir(temporary) if name.startswith("trireme-")], [])

    def test_requests_from_another_terminal(self):
        running = self.alone(*LONG)
        self.wait_for_line(running, "step     10/")
        done = start("save", self.path("run"))
        self.assertEqual(done.code, 0, done)
        self.wait_for_line(running, "  checkpoint ")
        done = start("stop", self.path("run"))
        self.assertEqual(done.code, 0, done)
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, STOPPED, out + err)
        self.assertIn("`trireme stop` requested it", out)
        self.assertFalse([name for name in os.listdir(self.path("run")) if name.endswith(".request")])
        for verb in ("stop", "save"):
            refused = start(verb, self.path("run"))
            self.assert_refused(refused, USER, "no run is using this directory")
            self.assert_refused(start(verb, self.text), USER, "not the directory of a run")

    def test_a_request_to_end_at_once(self):
        running = self.alone(*LONG)
        self.wait_for_line(running, "step     10/")
        self.assertEqual(start("stop", self.path("run"), "--now").code, 0)
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, STOPPED, out + err)
        self.assertIn("`trireme stop --now` ended the run", err)
        self.assertFalse(os.path.exists(self.path("run/checkpoints/latest")))

    def test_an_end_of_the_job_that_cannot_be_is_ignored_with_a_warning(self):
        for number, (text, part) in enumerate((("1000000000", "is in the past"), ("abc", "is not a number of seconds"))):
            running = self.alone(name=f"run-{number}", environment={"SLURM_JOB_END_TIME": text})
            out, err = running.communicate(timeout=TIMEOUT_S)
            self.assertEqual(running.returncode, 0, out + err)
            self.assertIn(f"SLURM_JOB_END_TIME is '{text}'", out)
            self.assertIn(part, out)

    def test_the_scheduler_is_asked_for_the_end_of_the_job(self):
        # As PBS Pro answers. tests/session/scheduler_test.cpp tests the other schedulers, and that all of them report the limit in time.
        os.mkdir(self.path("bin"))
        with open(self.path("bin/qstat"), "w", encoding="ascii") as out:
            out.write("#!/bin/sh\nLC_ALL=C; export LC_ALL; echo 'Job Id: 7.server'; echo '    Resource_List.walltime = 00:00:12'\n"
                      "date '+    stime = %a %b %d %T %Y'\n")
        os.chmod(out.name, 0o755)
        running = self.alone(*LONG, environment={"PBS_JOBID": "7.server", "PATH": f"{self.path('bin')}:{os.environ['PATH']}"})
        out, err = running.communicate(timeout=TIMEOUT_S)
        self.assertEqual(running.returncode, REQUEUE, out + err)
        self.assertRegex(out, r"stopped after step \d+ of 1000000: the time limit of PBS job 7.server \(qstat\) leaves no time for another step")

    def test_a_paused_reader_delays_no_step_and_no_signal(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        # Long lines, so that the pipe and the queue are full before the run ends.
        running = self.alone("run.steps=3000", "checkpoint.every_steps=0", "evaluate.every_steps=1", "evaluate.batches=1", stdout=writer)
        os.close(writer)
        end = time.monotonic() + TIMEOUT_S
        while not (os.path.exists(self.path("run/log.txt")) and "step    200/" in self.log()):
            self.assertLess(time.monotonic(), end, "the run stands still")
            self.assertIsNone(running.poll())
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(TIMEOUT_S), REQUEUE)
        self.assertIn("SIGTERM was received", self.log())

    def test_threads_that_the_user_may_not_have_are_named(self):
        if os.geteuid() != 0:
            self.skipTest("another user needs root")
        for folder, _, _ in os.walk(self.folder):
            os.chmod(folder, 0o777)
        done = subprocess.run(["setpriv", "--reuid", "54321", "--clear-groups", "prlimit", "--nproc=8", TRIREME,
                               *self.words("run", ("run.threads=64",))], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, ENVIRONMENT, done.stdout + done.stderr)
        self.assertIn("ulimit -u allows 8 threads", done.stderr)


class Ports(TrainingTest):
    def listening(self, part):
        """TCP ports on which processes listen whose command line contains `part`."""
        ports = {}
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/cmdline", "rb") as file:
                    if os.fsencode(part) not in file.read() or os.readlink(f"/proc/{process}/exe") != os.path.realpath(TRIREME):
                        continue
                own = {os.readlink(f"/proc/{process}/fd/{fd}") for fd in os.listdir(f"/proc/{process}/fd")}
                ports[process] = []
                for table in ("tcp", "tcp6"):
                    with open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
                        for row in map(str.split, list(file)[1:]):
                            if row[3] == "0A" and f"socket:[{row[9]}]" in own:
                                ports[process].append(row[1])
            except OSError:  # the process has ended
                pass
        return ports

    def test_ranks_of_one_host_listen_on_none(self):
        for ranks, start_of in ((1, lambda: subprocess.Popen([TRIREME, *self.words("alone", LONG)], stdout=subprocess.PIPE,
                                                             stderr=subprocess.PIPE, text=True)),
                                (2, lambda: self.popen(*LONG, ranks=2, name="two"))):
            running = start_of()
            self.addCleanup(running.kill)
            self.wait_for_line(running, "step     10/")
            found = self.listening(self.path("alone" if ranks == 1 else "two"))
            running.kill()
            running.communicate()
            self.assertEqual(len(found), ranks)
            self.assertEqual([port for ports in found.values() for port in ports], [], found)


if __name__ == "__main__":
    unittest.main()
