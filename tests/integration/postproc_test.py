# SPDX-License-Identifier: Apache-2.0
"""postproc on the records of a trainer that was killed, before its resume, and of one that goes on."""
import os
import shutil
import struct
import subprocess
import sys
import threading

from harness import TIMEOUT_S, TRIREME, TrainingTest

POSTPROC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc")
ENDLESS = ("run.steps=1000000", "optimizer.schedule={kind: constant}", "checkpoint.every_steps=20", "record.spans=true")
PAGE, HEADER = 4096, struct.Struct("<8sqqQ")
sys.path.insert(0, POSTPROC)
from trireme_postproc.journal import hash_of  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Postproc(TrainingTest):
    def command(self, verb, *words):
        return [sys.executable, "-m", "trireme_postproc.cli", verb, *words]

    def call(self, verb, *words):
        """What the verb says; it must end well and say nothing on standard error."""
        done = subprocess.run(self.command(verb, *words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                              env={**os.environ, "PYTHONPATH": POSTPROC})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        return done.stdout

    def start_alone(self, *overrides):
        """A run without a launcher, so that the process that is killed is the trainer."""
        running = subprocess.Popen([TRIREME, *self.words("run", (*ENDLESS, *overrides))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace")
        for close in (running.stdout.close, running.stderr.close, running.wait, running.kill):  # the last one first
            self.addCleanup(close)
        return running

    def kill_with_a_journal(self):
        """Kills a run between two uses of its journal; the pages of that as (number, before, after)."""
        for checkpoint in (200, 400, 600, 800):  # a kill may come while the journal is written
            running = self.start_alone()
            self.wait_for_line(running, f"checkpoints/step-{checkpoint:08d} ")
            running.kill()
            running.communicate(timeout=TIMEOUT_S)
            data = read(self.path("run/run.h5.journal"))
            header, entries = data[:HEADER.size], data[HEADER.size:]
            magic, pages, _, checksum = HEADER.unpack(header)
            entries = entries[:pages * (8 + 2 * PAGE)]
            if magic == b"TREJRNL1" and checksum == hash_of(header, entries):
                return [(int.from_bytes(entry[:8], "little"), entry[8:8 + PAGE], entry[8 + PAGE:])
                        for entry in (entries[at:at + 8 + 2 * PAGE] for at in range(0, len(entries), 8 + 2 * PAGE))]
        self.fail("four kills came while the journal was written")

    def test_a_killed_run_before_its_resume(self):
        pages = self.kill_with_a_journal()
        self.assertGreater(len(pages), 2)
        # As if the kill had come when every other page was replaced.
        shutil.copytree(self.path("run"), self.path("torn"))
        with open(self.path("torn/run.h5"), "r+b") as file:
            for number, before, _ in pages[::2]:
                file.seek(number * PAGE)
                file.write(before)
        held = [read(self.path(f"{run}/{name}")) for run in ("run", "torn") for name in ("run.h5", "run.h5.journal")]
        self.assertNotEqual(held[0], held[2])

        told = [self.call("summary", self.path(run)) for run in ("run", "torn")]
        self.assertIn(" of 1000000 (not finished)", told[0])
        self.assertIn("model.train", told[0])
        self.assertEqual(told[0].replace(self.path("run"), self.path("torn")), told[1])
        for run in ("run", "torn"):
            self.call("plot", self.path(run), "-o", self.path(f"{run}.png"))
            self.call("report", self.path(run), "-o", self.path(f"{run}.html"))
            self.assertGreater(min(os.path.getsize(self.path(run + ending)) for ending in (".png", ".html")), 10000)
        self.assertIn("are those of tiny (run) to the bit, in all", self.call("compare", self.path("run"), self.path("torn")))
        self.assertEqual([read(self.path(f"{run}/{name}")) for run in ("run", "torn") for name in ("run.h5", "run.h5.journal")], held)

        steps = int(told[1].partition("steps")[2].split()[0])
        self.train_well(*ENDLESS[1:], f"run.steps={steps + 5}", name="torn")
        self.assertEqual(self.column("step", "steps", "torn"), list(range(1, steps + 6)))

    def test_watch_beside_a_run(self):
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
