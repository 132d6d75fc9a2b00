# SPDX-License-Identifier: Apache-2.0
"""`export --follow`: what it writes while a run appends rows, is resumed, or ends."""
import math
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import warnings

import h5py

import made_up
from cli_test import run
from export_test import file_limit, records
from trireme_postproc.event_file import restart_event
from made_up import log_line
from trireme_postproc.export import csv_lines, rows_of
from trireme_postproc.follow import CsvFiles, EventFiles, copy_new_rows, follow
from trireme_postproc.run_file import RunFile, RunFileError
from trireme_postproc.run_log import Log


def fields(data):
    """(number, value) pairs of a Protocol Buffers message."""
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
    """Values by (tag, step), as TensorBoard reads them: files in order of their names, each start replacing its first step and later
    ones."""
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
                if 2 in parts:  # not a hyperparameter
                    found[parts[1].decode(), step] = struct.unpack("<f", parts[2])[0]
    return found


def line(step, loss, kind="step"):
    return log_line(kind, step=step, loss=loss)


def lines_of(columns, kind):
    """A line per row, with null for what JSON cannot express."""
    names, rows = rows_of(columns)
    for row in rows:
        yield log_line(kind, **{name: value if math.isfinite(value) else None for name, value in zip(names, row)})


class FollowTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.log = Log(self.directory)

    def at(self, name):
        return os.path.join(self.directory, name)

    def text(self, name):
        with open(self.at(name), encoding="ascii") as file:
            return file.read()

    def append(self, text):
        with open(self.at("steps.jsonl"), "a", encoding="ascii") as file:
            file.write(text)

    def resume(self, step):
        self.append(log_line("rewind", step=step))

    def csv(self):
        sink = CsvFiles(self.directory, {}, self.log.path)
        self.addCleanup(sink.close)
        return sink

    def steps_of_csv(self, name="steps.csv"):
        return [int(row.split(",")[0]) for row in self.text(name).splitlines()[1:]]

    def test_a_run_in_progress_is_followed(self):
        """The run writes something before every poll of follow()."""
        path = made_up.write(self.at("run.h5"), steps=20, validation=True)
        whole = RunFile(path)
        lines = {"steps": list(lines_of(whole.steps, "step")), "validation": list(lines_of(whole.validation, "validation"))}
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.addCleanup(child.communicate)
        with open(self.at("lock"), "w", encoding="ascii") as file:
            file.write(f"process {child.pid} on {socket.gethostname()}\n")
        self.append("".join(lines["steps"][:3]))
        seen, said = [], []

        def pause(_):
            seen.append(self.steps_of_csv()[-1])
            if len(seen) == 1:
                self.append(lines["steps"][3] + lines["steps"][4][:9])  # half a line
            elif len(seen) == 2:
                self.append(lines["steps"][4][9:] + "".join(lines["steps"][5:]))
                self.append("".join(lines["validation"]))
            else:
                child.communicate(b"\n")

        follow(self.directory, "csv", pause=pause, say=said.append)
        self.assertEqual(seen, [3, 4, 20])
        self.assertEqual(said, [self.at("steps.csv"), self.at("validation.csv"), "the run is over: finished"])
        for table in lines:  # the same bytes as the export of run.h5
            self.assertEqual(self.text(f"{table}.csv"), "".join(csv_lines(getattr(whole, table))))

    def test_the_same_scalars_as_the_export(self):
        path = made_up.write(self.at("run.h5"), steps=20)
        with h5py.File(path, "r+") as file:
            file["steps/loss"][4] = math.nan
            file["steps/grad_norm"][5] = 1e300  # exceeds the range of fp32
        whole = RunFile(path)
        self.append("".join(lines_of(whole.steps, "step")) + "".join(lines_of(whole.validation, "validation")))
        self.assertEqual(run("export", self.directory, "--format", "tensorboard", "-o", self.at("whole"))[0], 0)
        code, out, err = run("export", self.directory, "--format", "tensorboard", "--follow", "-o", self.at("live"), "--timeout", "0")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("the run is over: finished", out)
        expected, found = scalars(self.at("whole/tensorboard")), scalars(self.at("live/tensorboard"))
        self.assertEqual(found.keys(), expected.keys())
        for key, value in expected.items():
            self.assertTrue(found[key] == value or math.isnan(value) and math.isnan(found[key]), key)
        # A second start writes a new file, which replaces the contents of the first.
        os.remove(self.at("steps.jsonl"))
        self.append(line(1, 7.0))
        os.remove(path)
        with self.assertRaises(KeyboardInterrupt):
            follow(self.directory, "tensorboard", self.at("live"), say=lambda _: None, pause=self.interrupt)
        self.assertEqual(scalars(self.at("live/tensorboard")), {("steps/loss", 1): 7.0})

    def test_without_run_h5_nothing_is_said_about_the_last_step(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        with open(self.at("lock"), "w", encoding="ascii") as file:
            file.write(f"process {child.pid} on {socket.gethostname()}\n")
        self.append(line(1, 1.0))
        said = []
        follow(self.directory, "csv", pause=lambda _: None, say=said.append)
        self.assertEqual(said[-1], "the run is over: its process has ended")

    @staticmethod
    def interrupt(_):
        raise KeyboardInterrupt

    def test_a_partial_last_line_is_not_used(self):
        def steps():
            added, dropped = self.log.read()
            self.assertIsNone(dropped)
            return added["steps"]

        second = line(2, 2.0)
        self.append(line(1, 1.0) + second[:25])
        self.assertEqual(steps(), [{"step": 1, "loss": 1.0}])
        self.assertEqual(steps(), [])
        self.append(second[25:-1])  # a whole object, but not yet a whole line
        self.assertEqual(steps(), [])
        self.append("\n")
        self.assertEqual(steps(), [{"step": 2, "loss": 2.0}])
        self.assertEqual(list(self.log.tables["steps"].columns["loss"]), [1.0, 2.0])

    def test_a_rewind_is_handled(self):
        """Both tables are rewound, also if more was written before the next poll."""
        sink = self.csv()
        events, log_of_events = EventFiles(self.directory), Log(self.directory)
        self.addCleanup(events.close)
        self.append("".join(line(step, 1.0) for step in range(1, 10)))
        self.append("".join(line(step, 5.0, "validation") for step in (2, 4, 6, 8)))
        for log, output in ((self.log, sink), (log_of_events, events)):
            self.assertTrue(copy_new_rows(log, output))
        self.resume(4)
        self.append("".join(line(step, 2.0) for step in range(5, 7)) + line(6, 6.0, "validation"))
        for log, output in ((self.log, sink), (log_of_events, events)):
            self.assertTrue(copy_new_rows(log, output))
            self.assertFalse(copy_new_rows(log, output))
        self.assertEqual(self.text("steps.csv"), "step,loss\n" + "".join(f"{step},{1.0 if step < 5 else 2.0}\n" for step in range(1, 7)))
        self.assertEqual(self.text("validation.csv"), "step,loss\n2,5.0\n4,5.0\n6,6.0\n")
        expected = {("steps/loss", step): 1.0 if step < 5 else 2.0 for step in range(1, 7)}
        expected.update({("validation/loss", 2): 5.0, ("validation/loss", 4): 5.0, ("validation/loss", 6): 6.0})
        self.assertEqual(scalars(self.at("tensorboard")), expected)
        with open(events.paths[0], "rb") as file:
            self.assertIn(restart_event(0, 5)[21:-4], file.read())

    def test_any_sequence_of_writes_and_resumes_ends_with_the_rows_of_the_file(self):
        for seed in range(20):
            with self.subTest(seed=seed):
                dice = random.Random(seed)
                for name in ("steps.jsonl", "steps.csv", "validation.csv"):
                    if os.path.exists(self.at(name)):
                        os.remove(self.at(name))
                log = Log(self.directory)
                sink = CsvFiles(self.directory, {}, log.path)
                rows = []
                for _ in range(40):
                    kind = dice.choice(("append", "append", "append", "in two parts", "resume", "remove", "damage"))
                    if kind in ("append", "in two parts"):
                        rows.append((len(rows) + 1, dice.random()))
                        text, cut = line(*rows[-1]), dice.randint(1, 20) if kind == "in two parts" else 0
                        if cut:
                            self.append(text[:cut])
                            copy_new_rows(log, sink)
                        self.append(text[cut:])
                    elif kind == "resume":
                        rows = rows[:dice.randint(0, len(rows))]
                        self.resume(len(rows))
                    elif kind == "damage":
                        self.append(line(len(rows) + 1, 1.0).replace("loss", "lass"))
                    elif kind == "remove" and not rows and os.path.exists(self.at("steps.jsonl")):
                        os.remove(self.at("steps.jsonl"))
                    if dice.random() < 0.6:
                        copy_new_rows(log, sink)
                copy_new_rows(log, sink)
                sink.close()
                text = self.text("steps.csv").splitlines()[1:]
                self.assertEqual(text, [f"{step},{loss!r}" for step, loss in rows])

    def test_a_log_that_was_moved_away_and_begins_again(self):
        sink = self.csv()
        self.append("".join(line(step, 1.0) for step in range(1, 4)))
        copy_new_rows(self.log, sink)
        os.rename(self.at("steps.jsonl"), self.at("steps.jsonl.attempt-1"))
        self.append("".join(line(step, 8.5) for step in range(1, 6)))
        copy_new_rows(self.log, sink)
        self.assertEqual(self.text("steps.csv"), "step,loss\n" + "".join(f"{step},8.5\n" for step in range(1, 6)))

    def test_a_second_start_goes_on_with_its_own_files(self):
        self.append("".join(line(step, 1.0) for step in range(1, 6)) + line(4, 5.0, "validation"))
        copy_new_rows(self.log, self.csv())
        with open(self.at("steps.csv"), "a", encoding="ascii") as file:
            file.write("6,2")  # a row that a kill cut off
        self.resume(2)
        self.append("".join(line(step, 2.0) for step in range(3, 5)))
        copy_new_rows(Log(self.directory), self.csv())
        self.assertEqual(self.text("steps.csv"), "step,loss\n1,1.0\n2,1.0\n3,2.0\n4,2.0\n")
        self.assertEqual(self.text("validation.csv"), "")

    def test_files_of_another_run_and_links_are_kept(self):
        self.append(line(1, 1.0) + line(1, 5.0, "validation"))
        for name, text in (("steps.csv", "step,loss\n1,1.5\n"), ("validation.csv", "step,loss\n1,1.0\n"), ("validation.csv", "mine")):
            with open(self.at(name), "w", encoding="ascii") as file:
                file.write(text)
            with self.assertRaisesRegex(RunFileError, f"{name}: is here already; name another directory with -o"):
                self.csv()
            self.assertEqual(self.text(name), text)
            self.assertEqual(os.path.exists(self.at("steps.csv")), name == "steps.csv")
            os.rename(self.at(name), self.at("other"))
        for target in ("other", "nothing"):
            os.symlink(self.at(target), self.at("validation.csv"))
            with self.assertRaisesRegex(RunFileError, "validation.csv: is here already"):
                self.csv()
            os.remove(self.at("validation.csv"))
        self.assertEqual(self.text("other"), "mine")
        self.assertFalse(os.path.exists(self.at("nothing")) or os.path.exists(self.at("steps.csv")))

    def test_an_error_of_a_write_names_the_file(self):
        self.append("".join(line(step, 1.0) for step in range(1, 20)))
        warnings.simplefilter("ignore", ResourceWarning)  # the close() of such a file fails too
        for size, kind in ((60, "csv"), (0, "tensorboard"), (60, "tensorboard")):
            with file_limit(size), self.assertRaises(OSError) as caught:
                follow(self.directory, kind, say=lambda _: None, pause=self.interrupt)
            self.assertIn({"csv": "/steps.csv", "tensorboard": "/events.out"}[kind], caught.exception.filename)

    def test_refuses(self):
        made_up.write(self.at("run.h5"), steps=3)
        code, out, err = run("export", self.directory, "--format", "csv", "--follow")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("steps.jsonl does not exist: name the directory of a run", err)
        self.assertFalse(os.path.exists(self.at("steps.csv")))
        code, _, err = run("export", self.directory, "--format", "jsonl", "--follow")
        self.assertEqual(code, 2)
        self.assertIn("--follow writes csv or tensorboard", err)
        self.append(line(1, 1.0))
        for arguments in (("--every", "0"), ("--timeout", "-1")):
            self.assertEqual(run("export", self.directory, "--format", "csv", "--follow", *arguments)[0], 2)
        for text in ("my,own\n", "step,my own precious data\n1,2\n"):
            with open(self.at("steps.csv"), "w", encoding="ascii") as file:
                file.write(text)
            code, _, err = run("export", self.directory, "--format", "csv", "--follow")
            self.assertEqual(code, 2)
            self.assertIn("steps.csv: is here already; name another directory with -o", err)
            self.assertEqual(self.text("steps.csv"), text)

    def test_lines_that_are_not_ours(self):
        self.append("\n".join(("{}", "[1]", "\x7f", line(1, 1.0)[1:-1], '{"kind": "step", "step": 1, "crc32": "00000000"}', "")))
        added, dropped = self.log.read()
        self.assertEqual((sum(added.values(), []), dropped), ([], None))


if __name__ == "__main__":
    unittest.main()
