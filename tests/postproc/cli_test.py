# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py

import made_up
from trireme_postproc.cli import main


def run(*arguments):
    """Exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def png_size(path):
    with open(path, "rb") as file:
        start = file.read(24)
    assert start.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", start[16:24])


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = self.directory + "/run.h5"

    def refused(self, *arguments):
        """The one line of an error with exit code 2."""
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("error: "), err)
        return err

    def test_summary_of_a_directory_and_of_a_file(self):
        made_up.write(self.path)
        by_directory, by_file = run("summary", self.directory), run("summary", self.path)
        self.assertEqual(by_directory[0], 0)
        self.assertIn("made-up", by_directory[1])
        self.assertEqual(by_directory, by_file)

    def test_plot_lies_beside_the_run_file(self):
        made_up.write(self.path, steps=200)
        code, out, _ = run("plot", self.directory)
        self.assertEqual(code, 0)
        picture = self.directory + "/run.png"
        self.assertEqual(out, f"picture: {picture}\n")
        width, height = png_size(picture)
        self.assertGreater(width, 1200)
        self.assertGreater(height, 800)

    def test_plot_goes_where_it_is_told(self):
        made_up.write(self.path, steps=5)
        for name in ("a.png", "b.svg", "c.pdf"):
            self.assertEqual(run("plot", self.path, "-o", f"{self.directory}/{name}")[0], 0)
            self.assertGreater(os.path.getsize(f"{self.directory}/{name}"), 2000)
        self.assertFalse(os.path.exists(self.directory + "/run.png"))

    def test_the_picture_shows_names_and_units_of_the_file(self):
        made_up.write(self.path, steps=120, units={"loss": "bit/byte"})
        picture = self.directory + "/run.svg"
        import matplotlib

        with matplotlib.rc_context({"svg.fonttype": "none"}):
            self.assertEqual(run("plot", self.path, "-o", picture)[0], 0)
        with open(picture, encoding="utf-8") as file:
            text = file.read()
        for part in ("loss [bit/byte]", "speed [tokens/s]", "time, mean of ranks [ms]", "validation",
                     "model.backward  50.0 %", "rest  13.0 %", "made-up", "2 ranks"):
            self.assertIn(f">{part}", text.replace("&gt;", ">"), part)

    def test_plots_of_incomplete_runs(self):
        for options in (
            {"steps": 0, "validation": False, "spans": False},
            {"steps": 0},
            {"steps": 1},
            {"steps": 2, "validation": False},
            {"steps": 70, "spans": False},
        ):
            with self.subTest(options):
                made_up.write(self.path, wanted=100, **options)
                code, _, err = run("plot", self.path)
                self.assertEqual((code, err), (0, ""))

    def test_refuses_what_it_does_not_know(self):
        made_up.write(self.path, version=(2, 0))
        self.assertIn("format version 2.0, this program reads version 1.x", self.refused("summary", self.path))
        made_up.write(self.path, filetype="trireme-checkpoint")
        self.assertIn("filetype is 'trireme-checkpoint', expected 'trireme-run'", self.refused("plot", self.path))
        with h5py.File(self.path, "w"):
            pass
        self.assertIn("has no attribute 'filetype'", self.refused("summary", self.path))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("not HDF5")
        self.assertIn("cannot be read as an HDF5 file", self.refused("summary", self.path))

    def test_a_newer_minor_version_is_read(self):
        made_up.write(self.path, version=(1, 7))
        self.assertEqual(run("summary", self.path)[0], 0)

    def test_a_truncated_file(self):
        made_up.write(self.path)
        os.truncate(self.path, os.path.getsize(self.path) // 2)
        self.assertIn("cannot be read", self.refused("summary", self.path))

    def test_missing_runs(self):
        self.assertIn("holds no run.h5", self.refused("summary", self.directory))
        self.assertIn("does not exist", self.refused("summary", self.directory + "/nothing"))

    def test_pictures_that_cannot_be_written(self):
        made_up.write(self.path, steps=2)
        self.assertIn("must end in one of", self.refused("plot", self.path, "-o", "picture.xyz"))
        code, _, err = run("plot", self.path, "-o", self.directory + "/nowhere/run.png")
        self.assertEqual(code, 3)
        self.assertEqual(err.count("\n"), 1, err)

    def test_a_reader_that_leaves_early(self):
        made_up.write(self.path)
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "trireme_postproc.cli", "summary", self.path],
                stdout=writer,
                stderr=subprocess.PIPE,
                check=False,
            )
        finally:
            os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_file_that_is_being_written(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "a") as file:
            file.flush()
            done = subprocess.run(
                [sys.executable, "-m", "trireme_postproc.cli", "summary", self.path],
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("5 of 5", done.stdout)


if __name__ == "__main__":
    unittest.main()
