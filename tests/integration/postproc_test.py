# SPDX-License-Identifier: Apache-2.0
"""postproc on records of a trainer that was killed and not yet resumed, and of one that is still running."""
import os
import subprocess
import sys
import threading

from harness import TIMEOUT_S, TRIREME, TrainingTest

POSTPROC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc")
ENDLESS = ("run.steps=1000000", "optimizer.schedule={kind: constant}", "checkpoint.every_steps=20", "record.spans=true")


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Postproc(TrainingTest):
    def command(self, verb, *words):
        return [sys.executable, "-m", "trireme_postproc.cli", verb, *words]

    def call(self, verb, *words):
        """Output of the verb, which must succeed and print nothing to standard error."""
        done = subprocess.run(self.command(verb, *words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              env={**os.environ, "PYTHONPATH": POSTPROC})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def start_alone(self, *overrides):
        """Starts a run without a launcher, so that the test kills the trainer itself."""
        running = subprocess.Popen([TRIREME, *self.words("run", (*ENDLESS, *overrides))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace")
        for close in (running.stdout.close, running.stderr.close, running.wait, running.kill):  # called in reverse order
            self.addCleanup(close)
        return running

    def test_a_killed_run_before_its_resume(self):
        """run.h5 is intact but older than the log. Verbs that read both use the newest rows, from the log."""
        running = self.start_alone()
        self.wait_for_line(running, "checkpoints/step-00000200 ")
        running.kill()
        running.communicate(timeout=TIMEOUT_S)
        files = ("run.h5", "steps.jsonl")
        held = [read(self.path(f"run/{name}")) for name in files]
        told = self.call("summary", self.path("run"))
        self.assertIn(" of 1000000 (not finished)", told)
        self.assertIn("interrupted after step", self.call("watch", self.path("run"), "--once"))
        self.call("plot", self.path("run"), "-o", self.path("run.png"))
        self.call("report", self.path("run"), "-o", self.path("run.html"))
        self.assertGreater(min(os.path.getsize(self.path("run" + ending)) for ending in (".png", ".html")), 10000)
        self.assertEqual([read(self.path(f"run/{name}")) for name in files], held)

        done = subprocess.run([TRIREME, "record", self.path("run")], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done)
        steps = self.column("step", "steps")[-1]
        self.assertGreaterEqual(steps, 200)
        self.assertEqual(self.column("step", "steps"), list(range(1, steps + 1)))
        self.train_well(*ENDLESS[1:], f"run.steps={steps + 5}")
        self.assertEqual(self.column("step", "steps"), list(range(1, steps + 6)))

    def test_watch_during_a_run(self):
        running = self.start_alone()
        self.wait_for_line(running, "step     10/")
        drain = threading.Thread(target=running.stdout.read)
        drain.start()
        watch = subprocess.Popen(self.command("watch", self.path("run"), "--every", "0.01"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": POSTPROC})
        for close in (watch.stdout.close, watch.stderr.close, watch.wait, watch.kill):
            self.addCleanup(close)
        steps = []
        for line in watch.stdout:
            self.assertTrue(line.startswith("step "), line)
            steps.append(int(line.partition(" of ")[0][len("step "):].replace(" ", "")))
            if len(steps) == 4:
                break
        self.assertEqual(steps, sorted(set(steps)))
        running.kill()
        running.wait(timeout=TIMEOUT_S)
        drain.join(TIMEOUT_S)
        out, err = watch.communicate(timeout=TIMEOUT_S)
        self.assertEqual((watch.returncode, err), (0, ""), out)
        self.assertIn("the run is over: it ended before its last step; run the same command again", out.splitlines()[-1])
