# SPDX-License-Identifier: Apache-2.0
"""Records with a journal beside them, as src/records/h5/journal.cpp writes it: before, while and after it is applied."""

import os
import struct
import tempfile
import unittest
from unittest import mock

import made_up
from cli_test import run
from trireme_postproc import journal, run_file
from trireme_postproc.run_file import RunFile, RunFileError

PAGE, HEADER = 4096, 32


def pages_of(data):
    return [data[at : at + PAGE].ljust(PAGE, b"\0") for at in range(0, len(data), PAGE)]


def journal_from(old, new):
    """What replaces `old` by `new`: its bytes, and the numbers of the pages."""
    before = pages_of(old.ljust(len(new), b"\0"))
    changed = [number for number, page in enumerate(pages_of(new)) if page != before[number]]
    entries = b"".join(struct.pack("<q", number) + before[number] + pages_of(new)[number] for number in changed)
    header = b"TREJRNL1", len(changed), len(new)
    text = struct.pack("<8sqqQ", *header, 0)
    return struct.pack("<8sqqQ", *header, journal.hash_of(text, entries)) + entries, changed


class HashTest(unittest.TestCase):
    def test_published_values(self):
        """As in tests/base/hash_test.cpp."""
        for text, value in ((b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999),
                            (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1)):
            self.assertEqual(journal.xxh64(text), value)


class RecordTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = self.directory + "/run.h5"
        self.old, self.new, self.newest = (self.record(steps) for steps in (20, 30, 60))
        self.journal, self.changed = journal_from(self.old, self.new)
        self.assertGreater(len(self.changed), 4)

    def record(self, steps):
        with open(made_up.write(self.path, steps=steps, wanted=60), "rb") as file:
            return file.read()

    def write(self, record, journal_bytes=None):
        for path, data in ((self.path, record), (self.path + ".journal", journal_bytes)):
            if data is not None:
                with open(path, "wb") as file:
                    file.write(data)
            elif os.path.exists(path):
                os.remove(path)

    def torn(self, replaced):
        """The old record after the pages for which `replaced(position among the changed)` were replaced."""
        found = pages_of(self.old.ljust(len(self.new), b"\0"))
        for position, number in enumerate(self.changed):
            if replaced(position):
                found[number] = pages_of(self.new)[number]
        return b"".join(found)

    def columns(self, path=None):
        """Everything of a record that a half-replaced file may mix."""
        found = RunFile(path or self.path)
        return {name: column.values.tolist() for name, column in found.steps.items()}, found.samples.tobytes(), found.validation["loss"].values.tolist()

    def expected(self, record):
        path = self.directory + "/alone.h5"
        with open(path, "wb") as file:
            file.write(record)
        return self.columns(path)


class JournalTest(RecordTest):
    def test_every_state_of_a_kill_while_pages_are_replaced(self):
        wanted = self.expected(self.new)
        half = self.torn(lambda position: position < 2)
        middle = self.changed[2] * PAGE + 1234  # inside a page
        held = {"none": self.old, "all": self.new, "even": self.torn(lambda position: position % 2 == 0),
                "odd": self.torn(lambda position: position % 2 == 1), "half of a page": self.torn(lambda position: position < 3)[:middle] + half[middle:]}
        held.update({f"the first {count}": self.torn(lambda position, count=count: position < count) for count in range(1, len(self.changed))})
        for name, record in held.items():
            with self.subTest(name):
                self.write(record, self.journal)
                self.assertEqual(self.columns(), wanted)
                for path, data in ((self.path, record), (self.path + ".journal", self.journal)):  # nothing was written
                    with open(path, "rb") as file:
                        self.assertEqual(file.read(), data)

    def test_the_command_line_reads_a_torn_record(self):
        self.write(self.torn(lambda position: position % 2 == 0), self.journal)
        code, out, err = run("summary", self.directory)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("30 of 60", out)
        link = self.directory + "/link.h5"
        os.symlink(self.path, link)
        self.assertEqual(self.columns(link), self.expected(self.new))

    def test_a_journal_that_is_not_whole_means_nothing(self):
        wrong_hash = bytearray(self.journal)
        wrong_hash[24] ^= 1
        wrong_entry = bytearray(self.journal)
        wrong_entry[-1] ^= 1
        for name, data in (("empty", b""), ("header only", self.journal[:HEADER]), ("without its last byte", self.journal[:-1]),
                           ("no header yet", bytes(HEADER) + self.journal[HEADER:]), ("wrong hash", bytes(wrong_hash)), ("wrong entry", bytes(wrong_entry)),
                           ("half a header", self.journal[:HEADER // 2])):
            with self.subTest(name):
                self.write(self.old, data)
                self.assertEqual(self.columns(), self.expected(self.old))

    def test_a_journal_of_another_file_means_nothing(self):
        self.write(self.newest, self.journal)
        self.assertEqual(self.columns(), self.expected(self.newest))

    def test_a_journal_that_was_longer_before(self):
        self.write(self.torn(lambda position: position == 1), self.journal + bytes(5000))
        self.assertEqual(self.columns(), self.expected(self.new))

    def test_a_file_that_shrinks(self):
        self.write(self.new, journal_from(self.new, self.old)[0])
        self.assertEqual(self.columns(), self.expected(self.old))

    def test_no_regular_file_as_a_journal(self):
        self.write(self.new)
        os.mkfifo(self.path + ".journal")  # which would wait for a writer
        code, _, err = run("summary", self.path)
        self.assertEqual((code, err.count("\n")), (2, 1))
        self.assertIn("run.h5.journal: is no regular file", err)


class WrittenMeanwhileTest(RecordTest):
    """A run replaces pages while its record is read."""

    def reading(self, *meanwhile):
        """The columns, when each of `meanwhile` is called once in the middle of a reading; and how often there was a pause."""
        calls = list(meanwhile)
        read_timings = RunFile._read_timings

        def in_the_middle(this, group):
            if calls:
                calls.pop(0)()
            read_timings(this, group)

        with mock.patch.object(RunFile, "_read_timings", in_the_middle), mock.patch.object(run_file.time, "sleep") as slept:
            return self.columns(), slept.call_count

    def replace_old(self):
        self.write_in_place(".journal", self.journal)
        self.write_in_place("", self.torn(lambda position: position % 2 == 0))

    def write_in_place(self, ending, data):
        """As the run does: the file stays the same file."""
        with open(self.path + ending, "r+b") as file:
            file.write(data)

    def earlier(self):
        """The journal of the replacement before, all of which was done."""
        return journal_from(self.record(10).ljust(len(self.old), b"\0")[: len(self.old)], self.old)[0]

    def test_pages_are_replaced(self):
        self.write(self.old, self.earlier())
        self.assertEqual(self.reading(self.replace_old), (self.expected(self.new), 1))

    def test_the_first_journal(self):
        self.write(self.old)

        def replace():
            with open(self.path + ".journal", "wb"):
                pass
            self.replace_old()

        self.assertEqual(self.reading(replace), (self.expected(self.new), 1))

    def test_pages_of_a_journal_that_is_known_disturb_nothing(self):
        self.write(self.torn(lambda position: position < 2), self.journal)
        self.assertEqual(self.reading(lambda: self.write_in_place("", self.new)), (self.expected(self.new), 0))

    def test_what_lies_after_the_end_disturbs_nothing(self):
        self.write(self.new, self.journal)
        self.assertEqual(self.reading(lambda: self.write_in_place("", self.new + bytes(9000))), (self.expected(self.new), 0))

    def test_the_file_is_replaced_by_another(self):
        for data in (None, self.journal):
            self.write(self.new, data)

            def replace():
                with open(self.directory + "/other.h5", "wb") as file:
                    file.write(self.newest)
                os.replace(self.directory + "/other.h5", self.path)

            self.assertEqual(self.reading(replace), (self.expected(self.newest), 1))

    def test_a_writer_without_a_journal(self):
        self.write(self.old)
        self.assertEqual(self.reading(lambda: self.write_in_place("", self.newest)), (self.expected(self.newest), 1))

    def test_the_whole_file_is_taken_at_once_when_it_changes_often(self):
        self.write(self.old, self.earlier())
        again = journal_from(self.new, self.newest)[0]

        def replace_new():
            self.write_in_place(".journal", again)
            self.write_in_place("", self.newest)

        found, pauses = self.reading(self.replace_old, replace_new)
        self.assertEqual((found, pauses), (self.expected(self.new), 1))  # as it was when the second reading began

    def test_a_file_that_never_rests(self):
        self.write(self.old)
        read_all = journal.read_all

        def changing(descriptor, count, offset):
            os.utime(self.path, ns=(0, os.stat(self.path).st_mtime_ns + 1))
            return read_all(descriptor, count, offset)

        with mock.patch.object(journal, "read_all", changing), mock.patch.object(run_file.time, "sleep") as slept:
            with self.assertRaisesRegex(RunFileError, "written during each of 10 readings: read it again later, or once its run has ended"):
                RunFile(self.path)
        self.assertEqual(slept.call_count, 9)


if __name__ == "__main__":
    unittest.main()
