# SPDX-License-Identifier: Apache-2.0
"""`export --follow`: what it writes while a run appends rows, is resumed, or ends."""
import json
import math
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py

import made_up
from cli_test import run
from export_test import records
from trireme_postproc.event_file import restart_event
from trireme_postproc.export import csv_lines, json_lines
from trireme_postproc.follow import CsvFiles, EventFiles, RowReader, copy_new_rows, follow
from trireme_postproc.run_file import RunFile, RunFileError


def fields(data):
    """Pairs (number, value) of a message of Protocol Buffers."""
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
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}[key & 7] if key & 7 != 2 else varint()
            at += size
            yield key >> 3, data[at - size:at]


def scalars(directory):
    """Values by (tag, step) as TensorBoard has them: files in the order of their names; a start takes back its step and later ones."""
    found = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            events = records(file.read())
        for event in map(dict, map(fields, events)):
            step = event.get(2, 0)
            if 7 in event:
                found = {key: value for key, value in found.items() if key[1] < step}
            for _, value in fields(event.get(5, b"")):
                parts = dict(fields(value))
                found[parts[1].decode(), step] = struct.unpack("<f", parts[2])[0]
    return found


def line(step, loss):
    return json.dumps({"step": step, "loss": loss}) + "\n"


class FollowTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.readers = {table: RowReader(self.at(f"{table}.jsonl")) for table in ("steps", "validation")}

    def at(self, name):
        return os.path.join(self.directory, name)

    def text(self, name):
        with open(self.at(name), encoding="ascii") as file:
            return file.read()

    def append(self, text, table="steps"):
        with open(self.at(f"{table}.jsonl"), "a", encoding="ascii") as file:
            file.write(text)

    def replace(self, text, table="steps"):
        """As trireme does at a resume."""
        with open(self.at(f"{table}.jsonl.tmp"), "w", encoding="ascii") as file:
            file.write(text)
        os.replace(self.at(f"{table}.jsonl.tmp"), self.at(f"{table}.jsonl"))

    def csv(self, columns=None):
        sink = CsvFiles(self.directory, columns or {})
        self.addCleanup(sink.close)
        return sink

    def steps_of_csv(self, name="steps.csv"):
        return [int(row.split(",")[0]) for row in self.text(name).splitlines()[1:]]

    def test_a_run_in_progress_is_followed(self):
        """Every look of follow() comes after the run has written something else."""
        path = made_up.write(self.at("run.h5"), steps=20, validation=True)
        whole = RunFile(path)
        lines = {table: list(json_lines(getattr(whole, table))) for table in self.readers}
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(child.communicate)
        with open(self.at("lock"), "w", encoding="ascii") as file:
            file.write(f"process {child.pid} on {socket.gethostname()}\n")
        self.append("".join(lines["steps"][:3]))
        seen, said = [], []

        def pause(_):
            seen.append(self.steps_of_csv()[-1])
            if len(seen) == 1:
                self.append(lines["steps"][3] + lines["steps"][4][:9])  # half of a line
            elif len(seen) == 2:
                self.append(lines["steps"][4][9:] + "".join(lines["steps"][5:]))
                self.append("".join(lines["validation"]), "validation")
            else:
                child.communicate(b"\n")

        follow(self.directory, "csv", pause=pause, say=said.append)
        self.assertEqual(seen, [3, 4, 20])
        self.assertEqual(said, [self.at("steps.csv"), self.at("validation.csv"), "the run is over: finished"])
        for table in self.readers:  # the bytes of the export of run.h5
            self.assertEqual(self.text(f"{table}.csv"), "".join(csv_lines(getattr(whole, table))))

    def test_the_same_scalars_as_the_export(self):
        path = made_up.write(self.at("run.h5"), steps=20)
        with h5py.File(path, "r+") as file:
            file["steps/loss"][4] = math.nan
            file["steps/grad_norm"][5] = 1e300  # beyond what 32 bits hold
        whole = RunFile(path)
        for table in self.readers:
            self.replace("".join(json_lines(getattr(whole, table))), table)
        self.assertEqual(run("export", self.directory, "--format", "tensorboard", "-o", self.at("whole"))[0], 0)
        code, out, err = run("export", self.directory, "--format", "tensorboard", "--follow", "-o", self.at("live"), "--patience", "0")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("the run is over: finished", out)
        expected, found = scalars(self.at("whole/tensorboard")), scalars(self.at("live/tensorboard"))
        self.assertEqual(found.keys(), expected.keys())
        for key, value in expected.items():
            self.assertTrue(found[key] == value or math.isnan(value) and math.isnan(found[key]), key)
        # A second start writes a new file, which replaces what the first holds.
        self.replace(line(1, 7.0))
        self.replace("", "validation")
        os.remove(path)
        with self.assertRaises(KeyboardInterrupt):
            follow(self.directory, "tensorboard", self.at("live"), say=lambda _: None, pause=self.interrupt)
        self.assertEqual(scalars(self.at("live/tensorboard")), {("steps/loss", 1): 7.0})

    @staticmethod
    def interrupt(_):
        raise KeyboardInterrupt

    def test_a_partial_last_line_is_not_used(self):
        reader = self.readers["steps"]
        self.append(line(1, 1.0) + '{"step": 2, "lo')
        self.assertEqual(reader.read(), ([{"step": 1, "loss": 1.0}], None))
        self.assertEqual(reader.read(), ([], None))
        self.append('ss": 2.0}')  # a whole object, but not yet a whole line
        self.assertEqual(reader.read(), ([], None))
        self.append("\n")
        self.assertEqual(reader.read(), ([{"step": 2, "loss": 2.0}], None))

    def test_a_rewind_is_handled(self):
        """A resume renames a file with fewer rows into place, and has written more by the time of the next look."""
        sink = self.csv()
        events = EventFiles(self.directory)
        self.addCleanup(events.close)
        event_readers = {table: RowReader(self.at(f"{table}.jsonl")) for table in self.readers}
        first = "".join(line(step, 1.0) for step in range(1, 10))
        self.append(first)
        self.append("".join(line(step, 5.0) for step in (2, 4, 6, 8)), "validation")
        for readers, output in ((self.readers, sink), (event_readers, events)):
            self.assertTrue(copy_new_rows(readers, output))
        self.replace("".join(line(step, 1.0) for step in range(1, 5)))
        self.append("".join(line(step, 2.0) for step in range(5, 7)))
        self.replace(line(2, 5.0) + line(4, 5.0) + line(6, 6.0), "validation")
        for readers, output in ((self.readers, sink), (event_readers, events)):
            self.assertTrue(copy_new_rows(readers, output))
            self.assertFalse(copy_new_rows(readers, output))
        self.assertEqual(self.text("steps.csv"), "step,loss\n" + "".join(f"{step},{1.0 if step < 5 else 2.0}\n" for step in range(1, 7)))
        self.assertEqual(self.text("validation.csv"), "step,loss\n2,5.0\n4,5.0\n6,6.0\n")
        expected = {("steps/loss", step): 1.0 if step < 5 else 2.0 for step in range(1, 7)}
        expected.update({("validation/loss", 2): 5.0, ("validation/loss", 4): 5.0, ("validation/loss", 6): 6.0})
        self.assertEqual(scalars(self.at("tensorboard")), expected)
        with open(events.paths[0], "rb") as file:
            self.assertIn(restart_event(0, 5)[21:-4], file.read())

    def test_a_rewind_of_one_table_keeps_rows_of_the_other(self):
        """An event file forgets all tags from a step on: those of the table that did not change are written again."""
        events = EventFiles(self.directory)
        self.addCleanup(events.close)
        self.append("".join(line(step, 1.0) for step in range(1, 7)))
        self.append(line(2, 5.0) + line(6, 5.0), "validation")
        copy_new_rows(self.readers, events)
        self.replace("".join(line(step, 1.0) for step in range(1, 5)))
        self.append(line(8, 5.0), "validation")
        copy_new_rows(self.readers, events)
        found = scalars(self.at("tensorboard"))
        self.assertEqual(sorted(step for tag, step in found if tag == "steps/loss"), [1, 2, 3, 4])
        self.assertEqual(sorted(step for tag, step in found if tag == "validation/loss"), [2, 6, 8])

    def test_any_sequence_of_writes_and_resumes_ends_with_the_rows_of_the_file(self):
        for seed in range(20):
            with self.subTest(seed=seed):
                dice = random.Random(seed)
                for name in ("steps.jsonl", "validation.jsonl", "steps.csv", "validation.csv"):
                    if os.path.exists(self.at(name)):
                        os.remove(self.at(name))
                readers = {table: RowReader(self.at(f"{table}.jsonl")) for table in self.readers}
                sink = CsvFiles(self.directory, {})
                rows = []
                for _ in range(40):
                    kind = dice.choice(("append", "append", "append", "in two parts", "resume", "remove", "repeat"))
                    if kind in ("append", "in two parts"):
                        rows.append((len(rows) + 1, dice.random()))
                        text, cut = line(*rows[-1]), dice.randint(1, 20) if kind == "in two parts" else 0
                        if cut:
                            self.append(text[:cut])
                            copy_new_rows(readers, sink)
                        self.append(text[cut:])
                    elif kind == "resume":
                        rows = rows[:dice.randint(0, len(rows))]
                        self.replace("".join(line(*row) for row in rows))
                    elif kind == "repeat" and rows:  # a log that is only appended to
                        rows = rows[:dice.randint(0, len(rows) - 1)]
                        rows.append((len(rows) + 1, dice.random()))
                        self.append(line(*rows[-1]))
                    elif kind == "remove" and not rows and os.path.exists(self.at("steps.jsonl")):
                        os.remove(self.at("steps.jsonl"))
                    if dice.random() < 0.6:
                        copy_new_rows(readers, sink)
                copy_new_rows(readers, sink)
                sink.close()
                text = self.text("steps.csv").splitlines()[1:]
                self.assertEqual(text, [f"{step},{loss!r}" for step, loss in rows])

    def test_a_file_that_was_made_anew_in_place(self):
        sink = self.csv()
        self.append("".join(line(step, 1.0) for step in range(1, 4)))
        copy_new_rows(self.readers, sink)
        with open(self.at("steps.jsonl"), "w", encoding="ascii") as file:
            file.write("".join(line(step, 8.5) for step in range(1, 6)))
        copy_new_rows(self.readers, sink)
        self.assertEqual(self.text("steps.csv"), "step,loss\n" + "".join(f"{step},8.5\n" for step in range(1, 6)))

    def test_refuses(self):
        made_up.write(self.at("run.h5"), steps=3)
        code, out, err = run("export", self.directory, "--format", "csv", "--follow")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("steps.jsonl does not exist. Start the run with record.also=[jsonl]", err)
        self.assertFalse(os.path.exists(self.at("steps.csv")))
        code, _, err = run("export", self.directory, "--format", "jsonl", "--follow")
        self.assertEqual(code, 2)
        self.assertIn("--follow writes csv or tensorboard", err)
        self.append(line(1, 1.0))
        for arguments in (("--every", "0"), ("--patience", "-1")):
            self.assertEqual(run("export", self.directory, "--format", "csv", "--follow", *arguments)[0], 2)
        with open(self.at("steps.csv"), "w", encoding="ascii") as file:
            file.write("my,own\n")
        code, _, err = run("export", self.directory, "--format", "csv", "--follow")
        self.assertEqual(code, 2)
        self.assertIn("steps.csv: is not a file of this verb", err)
        self.assertEqual(self.text("steps.csv"), "my,own\n")

    def test_lines_that_are_not_rows(self):
        for text in (b"{}\n", b"[1]\n", b"\xff\n", b'{"step": -1}\n', b'{"step": 1.5}\n', b'{"step": 1, "loss": "a"}\n', b"step,loss\n",
                     b'{"step": true}\n', b'{"step": 99999999999999999999}\n'):
            with self.subTest(text):
                with open(self.at("steps.jsonl"), "wb") as file:
                    file.write(text)
                with self.assertRaises(RunFileError):
                    RowReader(self.at("steps.jsonl")).read()


if __name__ == "__main__":
    unittest.main()
