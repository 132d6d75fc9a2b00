# SPDX-License-Identifier: Apache-2.0
"""Tests the generator of operations: its output compiles without warnings, fails until the reference is written, and overwrites nothing.

usage: new_op_test.py PROJECT COMPILER"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PROJECT, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]


class NewOperation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for part in ("src/compute/ops", "tests/ops"):
            shutil.copytree(PROJECT / part, self.root / part)

    def make(self, name):
        return subprocess.run([sys.executable, PROJECT / "dev/new_op.py", name, "--root", self.root], capture_output=True, text=True)

    def test_everything_that_it_makes_is_named_by_cmake_and_compiles(self):
        made = self.make("soft_floor")
        self.assertEqual(made.returncode, 0, made.stderr)
        for folder, names in (("src/compute/ops", ()), ("tests/ops", ("soft_floor_test.cpp",))):  # CMake finds the sources of a room
            words = (self.root / folder / "CMakeLists.txt").read_text().replace(")", " ").split()
            for name in names:
                self.assertEqual(words.count(name), 1, name)
            before = (PROJECT / folder / "CMakeLists.txt").read_text().replace(")", " ").split()
            self.assertEqual([word for word in words if word not in names], before)
        wings = [path for path in (PROJECT / "src").iterdir() if path.is_dir()]
        includes = [f"-I{folder}" for folder in (self.root / "src/compute", *wings, self.root / "tests", PROJECT / "tests")]
        for source in ("src/compute/ops/soft_floor.cpp", "src/compute/ops/cpu/soft_floor.cpp", "tests/ops/soft_floor_test.cpp"):
            compiled = subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-fopenmp", "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
                                       "-Werror", *includes, self.root / source], capture_output=True, text=True)
            self.assertEqual(compiled.returncode, 0, compiled.stderr)
        self.assertIn("ADD_FAILURE", (self.root / "tests/ops/soft_floor_test.cpp").read_text())

    def test_it_overwrites_nothing(self):
        before = {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        made = self.make("rotary")
        self.assertEqual(made.returncode, 1)
        self.assertIn("src/compute/ops/rotary.hpp", made.stderr)
        self.assertEqual({path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}, before)

    def test_it_refuses_names_that_are_none(self):
        for name in ("SoftCap", "2d", "a-b", "x_"):
            self.assertEqual(self.make(name).returncode, 1, name)


unittest.main(argv=[sys.argv[0], "-v"])
