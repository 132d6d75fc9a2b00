# SPDX-License-Identifier: Apache-2.0
"""The files of a run for other programs: its log and run.h5, and the verbs `checkpoints` and `record`."""
import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import zlib

import h5py

from harness import DECK, STOP_SIGNAL, STOPPED, TIMEOUT_S, TRIREME, TrainingTest, is_rank, start

POSTPROC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc")
CALM = ("optimizer.schedule={kind: constant}", "checkpoint.keep=0", "evaluate.every_steps=7")
ENDLESS = ("run.steps=1000000", *CALM)


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


class RunLog(TrainingTest):
    def folder_of(self, name):
        return os.path.join(self.path("run"), name)

    def kill_after(self, line, every, *overrides):
        """A run whose rank 0 is killed with SIGKILL after it printed `line`."""
        running = self.popen(*ENDLESS, f"checkpoint.every_steps={every}", *overrides, ranks=2)
        self.wait_for_line(running, line)
        killed = 0
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    environment = file.read()
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    words = file.read()
            except OSError:
                continue
            if entry.isdigit() and self.path("run").encode() in words and is_rank(environment, 0):
                os.kill(int(entry), signal.SIGKILL)
                killed += 1
        self.assertEqual(killed, 1)
        running.communicate(timeout=TIMEOUT_S)

    def postproc(self, *words):
        return subprocess.Popen([sys.executable, "-m", "trireme_postproc.cli", *words], stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "PYTHONPATH": POSTPROC})

    def export(self, kind, *more):
        with self.postproc("export", self.path("run"), "--format", kind, *more) as running:
            self.assertEqual(running.wait(timeout=TIMEOUT_S), 0)

    def assert_state(self, word):
        """The state of the run according to `trireme-postproc list`."""
        with self.postproc("list", self.path("run"), "--csv") as running:
            rows = list(csv.DictReader(running.communicate(timeout=TIMEOUT_S)[0].splitlines()))
        self.assertEqual([(row["run"], row["state"]) for row in rows], [(".", word)])

    def lines(self):
        """The objects in the log, after checking their checksums."""
        found = []
        with open(self.folder_of("steps.jsonl"), "rb") as file:
            for line in file:
                summed, _, rest = line.rpartition(b', "crc32": "')
                if rest == b'%08x"}\n' % zlib.crc32(summed):
                    found.append(json.loads(line))
        return found

    def assert_agreement(self):
        """run.h5 contains the valid rows of the log, and `trireme record` creates the same file from it."""
        tables = {"step": [], "validation": []}
        for line in self.lines():
            if line["kind"] == "rewind":
                tables = {table: [row for row in rows if row["step"] <= line["step"]] for table, rows in tables.items()}
            elif line["kind"] in tables:
                tables[line["kind"]].append(line)
        with h5py.File(self.folder_of("run.h5"), "r") as file:
            for kind, group in (("step", "steps"), ("validation", "validation")):
                self.assertEqual([row["step"] for row in tables[kind]], file[group]["step"][:].tolist())
                for name, column in file[group].items():
                    for row, value in zip(tables[kind], column[:].tolist()):
                        self.assertTrue(same(float("nan") if row[name] is None else row[name], value), (group, name, row))
        with open(self.folder_of("run.h5"), "rb") as file:
            before = file.read()
        done = subprocess.run([TRIREME, "record", self.path("run")], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        with open(self.folder_of("run.h5"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_log_and_run_file_agree_after_kills_and_resumes(self):
        self.kill_after("checkpoints/step-00000040 ", 20)
        self.assert_state("interrupted")
        with open(self.folder_of("steps.jsonl"), "a", encoding="ascii") as file:
            file.write('{"kind": "step", "step": 1')  # as if killed in the middle of a line
        self.kill_after("checkpoints/step-00000100 ", 20)
        newest = max(int(name[5:]) for name in os.listdir(self.folder_of("checkpoints")) if re.fullmatch(r"step-\d+", name))
        run = self.train_well(*CALM, "checkpoint.every_steps=20", f"run.steps={newest + 9}", ranks=1)
        self.assertNotIn("damaged", run.out + run.err)
        self.assertEqual(self.column("step", "steps"), list(range(1, newest + 10)))
        self.assert_agreement()
        self.assert_state("finished")
        self.assertEqual([line["step"] for line in self.lines() if line["kind"] == "rewind"][-1], newest)

    def test_h5py_opens_the_run_file_at_any_moment_of_a_run(self):
        running = self.popen(ENDLESS[0], CALM[0], CALM[2], "checkpoint.every_steps=5", "checkpoint.keep=2", ranks=2)
        self.wait_for_line(running, "checkpoints/step-00000010 ")
        drain = threading.Thread(target=running.stdout.read)
        drain.start()
        opened, files, newest = 0, set(), 0
        end = time.monotonic() + TIMEOUT_S
        while opened < 1000 or newest == 0:
            self.assertLess(time.monotonic(), end, "the run never wrote it again")
            with h5py.File(self.folder_of("run.h5"), "r") as file:  # with HDF5's default locking
                steps = file["steps/step"][:]
                self.assertEqual(len(steps), len(file["steps/loss"][:]))
                self.assertEqual(steps.tolist(), list(range(1, len(steps) + 1)))
            self.assertGreaterEqual(len(steps), newest)
            newest = len(steps)
            files.add(os.stat(self.folder_of("run.h5")).st_ino)
            opened += 1
        self.assertGreater(newest, 0)
        running.send_signal(STOP_SIGNAL)
        running.wait(timeout=TIMEOUT_S)
        drain.join(TIMEOUT_S)
        self.assertIn(running.returncode, STOPPED)
        self.assert_agreement()

    def test_a_run_is_followed_as_csv_until_it_has_stopped(self):
        running = self.popen(*ENDLESS, "checkpoint.every_steps=20", ranks=2)
        self.wait_for_line(running, "checkpoints/step-00000040 ")
        with self.postproc("export", self.path("run"), "--format", "csv", "--follow", "--every", "0.05") as live:
            self.assertEqual(live.stdout.readline().strip(), self.folder_of("steps.csv"))
            self.wait_for_line(running, "checkpoints/step-00000100 ")
            self.assert_state("running")
            running.send_signal(STOP_SIGNAL)
            running.communicate(timeout=TIMEOUT_S)
            self.assertIn("the run is over: ", live.communicate(timeout=TIMEOUT_S)[0])
        self.assertEqual(live.returncode, 0)
        self.assert_state("stopped")
        self.export("csv", "-o", self.path("exported"))
        for table in ("steps", "validation"):
            with open(self.folder_of(f"{table}.csv"), "rb") as one, open(self.path(f"exported/{table}.csv"), "rb") as other:
                self.assertEqual(one.read(), other.read())

    def test_the_resolved_deck_is_never_seen_empty(self):
        self.train_well()
        with open(os.path.join(self.path("run"), "deck.resolved.yaml"), encoding="utf-8") as before:
            self.train_well("run.steps=18")
            self.assertRegex(before.read(), r"\n  steps: 12 ")  # a new file now has that name
        with open(before.name, encoding="utf-8") as after:
            self.assertRegex(after.read(), r"\n  steps: 18 ")

    def test_files_that_the_run_did_not_write_are_moved_aside(self):
        os.mkdir(self.path("run"))
        deck = self.path("run/deck.resolved.yaml")
        with open(DECK, encoding="utf-8") as file:
            mine = "# mine\n" + file.read()
        for path, text in ((deck, mine), (self.path("run/log.txt"), "notes\n")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        run = start(deck, *self.words("run", ())[1:])
        self.assertEqual(run.code, 0, run)
        for name, text in (("deck.resolved.yaml.changed-1", mine), ("log.txt.earlier-1", "notes\n")):
            self.assertIn(f"moved to {self.path('run')}/{name}", run.out)
            with open(self.path("run/" + name), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_closed_standard_streams_are_not_mistaken_for_files(self):
        self.train_well()
        lock = self.path("run/lock")
        before = os.stat(lock).st_size
        subprocess.run(["sh", "-c", '"$0" record "$1" <&- >&- 2>&-', TRIREME, self.path("run")], check=True, timeout=TIMEOUT_S)
        self.assertEqual(os.stat(lock).st_size, before)
        self.train_well("run.steps=14")

    def test_a_run_killed_before_its_first_checkpoint_leaves_its_record_aside(self):
        self.kill_after("step     20/", 1000000)  # more steps than the next start runs
        self.train_well()
        self.assert_agreement()
        names = os.listdir(self.path("run"))
        for name in ("run.h5", "steps.jsonl"):
            self.assertIn(f"{name}.attempt-1", names)

    def test_record_refuses_what_is_no_run_and_a_run_that_goes_on(self):
        def record(name):
            return subprocess.run([TRIREME, "record", self.path(name)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

        os.mkdir(self.path("empty"))
        for name in ("empty", "none"):
            done = record(name)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn("name the directory of a run", done.stderr)
        self.assertEqual(os.listdir(self.path("empty")), [])
        running = self.popen(*ENDLESS, "checkpoint.every_steps=1000")
        self.wait_for_line(running, "step     10/")
        done = record("run")
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("which writes run.h5 itself", done.stderr)
        running.send_signal(STOP_SIGNAL)
        running.communicate(timeout=TIMEOUT_S)


class Checkpoints(TrainingTest):
    def listing(self, *words, name="run"):
        return subprocess.run([TRIREME, "checkpoints", self.path(name), *words], capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)

    def test_lists_and_verifies(self):
        self.train_well("checkpoint.every_steps=3", "checkpoint.keep_every=6", "checkpoint.keep=0", ranks=2)
        done = self.listing("--json", "-", "--verify")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["checkpoints"]
        self.assertEqual([row["step"] for row in rows], [3, 6, 9, 12])
        self.assertEqual([row["loss"] for row in rows], self.losses()[2::3])
        self.assertEqual([row["milestone"] for row in rows], [False, True, False, True])
        self.assertEqual({row["state"] for row in rows}, {"verified"})
        self.assertEqual([row["bytes"] for row in rows], self.column("bytes", "checkpoints"))
        self.assertEqual({row["ranks"] for row in rows}, {2})
        path = os.path.join(rows[2]["directory"], "rank-00001.h5")
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        self.assertEqual(self.listing().returncode, 0)
        done = self.listing("--verify")
        self.assertEqual(done.returncode, 2)
        self.assertIn("step-00000009/rank-00001.h5: ", done.stderr)
        self.assertIn("does not match its checksum", done.stderr)
        self.assertEqual(done.stdout.count("verified"), 3)

    def test_reads_during_a_run(self):
        running = self.popen(*ENDLESS[:2], "checkpoint.every_steps=5", "checkpoint.keep=2", ranks=2)
        self.wait_for_line(running, "checkpoints/step-00000040 ")
        for _ in range(5):
            done = self.listing("--verify", "--json", "-")
            self.assertEqual(done.returncode, 0, done)
            json.loads(done.stdout)
        running.send_signal(STOP_SIGNAL)
        rest = running.communicate(timeout=TIMEOUT_S)
        self.assertIn(running.returncode, STOPPED, rest)

    def test_no_run_directory(self):
        done = self.listing(name="none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no run directory", done.stderr)
