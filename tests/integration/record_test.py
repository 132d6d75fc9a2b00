# SPDX-License-Identifier: Apache-2.0
"""What a run leaves for other programs: copies of its rows (record.also), and the verb checkpoints."""
import csv
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys

import h5py

from harness import STOP_SIGNAL, STOPPED, TIMEOUT_S, TRIREME, TrainingTest, is_rank

POSTPROC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc")
CALM = ("optimizer.schedule={kind: constant}", "checkpoint.keep=0", "evaluate.every_steps=7")
ENDLESS = ("run.steps=1000000", *CALM)
ALL = "record.also=[jsonl, csv, tensorboard]"


def same(one, other):
    return one == other or (math.isnan(one) and math.isnan(other))


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class EventReader:
    """Scalars as TensorBoard has them: files in the order of their names; a start takes back its step and later ones."""

    def __init__(self, directory):
        self.scalars = {}  # (tag, step): value
        self.starts = []
        for name in sorted(os.listdir(directory)):
            with open(os.path.join(directory, name), "rb") as file:
                data = file.read()
            while data:
                (size,) = struct.unpack("<Q", data[:8])
                self.event(data[12:12 + size])
                data = data[16 + size:]

    @staticmethod
    def fields(data):
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        while at < len(data):
            key = varint()
            if key & 7 == 0:
                value = varint()
            else:
                size = {1: 8, 5: 4}[key & 7] if key & 7 != 2 else varint()
                value = data[at:at + size]
                at += size
            yield key >> 3, value

    def event(self, data):
        fields = dict(self.fields(data))
        step = fields.get(2, 0)
        if 7 in fields:
            self.starts.append(step)
            self.scalars = {key: value for key, value in self.scalars.items() if key[1] < step}
        for _, value in self.fields(fields.get(5, b"")):
            parts = dict(self.fields(value))
            self.scalars[parts[1].decode(), step] = struct.unpack("<f", parts[2])[0]


class Also(TrainingTest):
    def folder_of(self, name):
        return os.path.join(self.path("run"), name)

    def kill_after(self, line, every, *overrides):
        """A run whose rank 0 dies by SIGKILL once it has said `line`."""
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

    def assert_copies(self):
        """Every copy holds the rows of run.h5, and postproc makes the same files of it."""
        events = EventReader(self.folder_of("tensorboard"))
        seen = 0
        with h5py.File(self.folder_of("run.h5"), "r") as file:
            tables = {table: {name: column[:].tolist() for name, column in file[table].items()} for table in ("steps", "validation")}
        for table, columns in tables.items():
            rows = len(columns["step"])
            with open(self.folder_of(f"{table}.jsonl"), encoding="ascii") as file:
                lines = [json.loads(line) for line in file]
            with open(self.folder_of(f"{table}.csv"), encoding="ascii", newline="") as file:
                fields = list(csv.DictReader(file))
            self.assertEqual([line["step"] for line in lines], columns["step"])
            self.assertEqual(len(fields), rows)
            for row in range(rows):
                for name, values in columns.items():
                    told = lines[row][name]
                    self.assertTrue(same(float("nan") if told is None else told, values[row]), (table, name, row))
                    self.assertTrue(same(float(fields[row][name]), values[row]), (table, name, row))
                    if name != "step":
                        self.assertTrue(same(events.scalars[f"{table}/{name}", columns["step"][row]], float32(values[row])))
                        seen += 1
        self.assertEqual(len(events.scalars), seen)  # and no row that run.h5 does not hold
        for kind in ("jsonl", "csv"):
            subprocess.run([sys.executable, "-m", "trireme_postproc.cli", "export", self.path("run"), "--format", kind,
                            "-o", self.path("exported")], check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL,
                           env={**os.environ, "PYTHONPATH": POSTPROC})
            for table in tables:
                with open(self.folder_of(f"{table}.{kind}"), "rb") as one, open(self.path(f"exported/{table}.{kind}"), "rb") as other:
                    self.assertEqual(one.read(), other.read())
        return events

    def test_copies_hold_the_rows_of_the_record_after_kills_and_resumes(self):
        self.kill_after("checkpoints/step-00000040 ", 20, ALL)
        self.kill_after("checkpoints/step-00000100 ", 20, ALL)
        for name in ("steps.jsonl", "validation.csv"):
            with open(self.folder_of(name), "a", encoding="ascii") as file:
                file.write('{"step": 1')  # a kill in the middle of a line
        with open(self.folder_of("steps.csv"), "r+", encoding="ascii") as file:
            file.truncate(1000)
        newest = max(int(name[5:]) for name in os.listdir(self.folder_of("checkpoints")) if re.fullmatch(r"step-\d+", name))
        self.train_well(*CALM, ALL, "checkpoint.every_steps=20", f"run.steps={newest + 9}", ranks=1)
        self.assertEqual(self.column("step", "steps"), list(range(1, newest + 10)))
        events = self.assert_copies()
        self.assertEqual(len(events.starts), 2)
        self.assertEqual(events.starts[-1], newest + 1)

    def test_a_run_killed_before_its_first_checkpoint_leaves_its_copies_aside(self):
        self.kill_after("step     10/", 1000000, ALL)
        self.train_well(ALL)
        self.assert_copies()
        names = os.listdir(self.path("run"))
        for name in ("run.h5", "steps.jsonl", "validation.csv", "tensorboard"):
            self.assertIn(f"{name}.attempt-1", names)

    def test_a_full_disk_of_a_copy_ends_the_run_and_costs_the_record_nothing(self):
        self.need_own_mounts()
        os.makedirs(self.folder_of("tensorboard"))
        small = ("unshare", "-m", "sh", "-c",
                 f'mount -t tmpfs -o size=64k none "{self.folder_of("tensorboard")}" && exec "$@"', "sh")
        run = self.train(*ENDLESS, "checkpoint.every_steps=0", "record.also=[tensorboard, jsonl]", prefix=small, ranks=2)
        self.assert_refused(run, 3, "tensorboard/events.out.tfevents", "No space left on device")
        steps = self.column("step", "steps")
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        with open(self.folder_of("steps.jsonl"), encoding="ascii") as file:
            told = [json.loads(line)["step"] for line in file]
        self.assertEqual(told, steps[:len(told)])
        self.assertGreater(len(told), 100)


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
        self.assertIn("no run directory is here", done.stderr)
