# SPDX-License-Identifier: Apache-2.0
"""Tests the table of kernels: differences are found, spilled registers are found with any compiler, and a tree without kernels is skipped.

usage: kernel_resources_test.py PROJECT"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(sys.argv[1])

SAID = """
Fatbin elf code:
================
arch = sm_80
 Function _ZN7trireme3ops4cuda9add_termsEv:
  REG:99 STACK:64 SHARED:0 LOCAL:0 CONSTANT[0]:392 TEXTURE:0 SURFACE:0 SAMPLER:0
Fatbin elf code:
================
arch = sm_90
Resource usage:
 Common:
  GLOBAL:0
 Function _ZN7trireme3ops4cuda9add_termsEv:
  REG:REGISTERS STACK:STACKED SHARED:1152 LOCAL:0 CONSTANT[0]:392 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _ZN7trireme3ops4cuda43_GLOBAL__N__88d9a7bf_8_adamw_cu_912820e4_196updateEv:
  REG:24 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:392 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


class KernelResources(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        objects = self.build / "src/compute/ops/CMakeFiles/trireme_ops.dir/cuda"
        objects.mkdir(parents=True)
        (objects / "adamw.cu.o").touch()
        self.table = self.build / "table.txt"
        self.compiled_by("13.0.88")

    def compiled_by(self, version):
        compiler = self.build / "CMakeFiles/3.25.1/CMakeCUDACompiler.cmake"
        compiler.parent.mkdir(parents=True, exist_ok=True)
        compiler.write_text(f'set(CMAKE_CUDA_COMPILER "/nowhere/nvcc")\nset(CMAKE_CUDA_COMPILER_VERSION "{version}")\n')

    def run_on(self, *options, registers=32, stack=0):
        tool = self.build / "cuobjdump"
        said = SAID.replace("REGISTERS", str(registers)).replace("STACKED", str(stack))
        tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\n")
        tool.chmod(0o755)
        return subprocess.run([sys.executable, PROJECT / "dev/kernel_resources.py", self.build, *options], capture_output=True, text=True,
                              env=os.environ | {"CUOBJDUMP": str(tool)})

    def compared(self, **used):
        return self.run_on("--table", self.table, **used)

    def test_rows_have_names_without_hashes(self):
        said = self.run_on().stdout.splitlines()
        self.assertEqual(said[0], "# nvcc 13.0.88, sm_90: registers shared stack local file kernel")
        self.assertEqual([line.split() for line in said[1:]], [["32", "1152", "0", "0", "ops/cuda/adamw.cu", "ops::cuda::add_terms"],
                                                               ["24", "0", "0", "0", "ops/cuda/adamw.cu", "ops::cuda::update"]])

    def test_what_differs_is_named(self):
        self.assertEqual(self.run_on("--table", self.table, "--write").returncode, 0)
        self.assertEqual(self.compared().returncode, 0)
        more = self.compared(registers=40)
        self.assertEqual(more.returncode, 1)
        self.assertIn("ops::cuda::add_terms: registers 32 -> 40", more.stdout)
        lines = self.table.read_text().splitlines(keepends=True)
        self.table.write_text("".join(lines[:2]))
        self.assertIn("ops::cuda::update: not in the table", self.compared().stdout)
        self.table.write_text("".join(lines + [lines[2].replace("update", "gone")]))
        self.assertIn("ops::cuda::gone: only in the table", self.compared().stdout)

    def test_stack_is_a_failure_under_any_compiler_and_registers_are_not(self):
        self.run_on("--table", self.table, "--write")
        self.compiled_by("13.1.0")
        self.assertEqual(self.compared(registers=40).returncode, 0)
        self.assertIn("are not compared", self.compared().stdout)
        spilled = self.compared(stack=16)
        self.assertEqual(spilled.returncode, 1)
        self.assertIn("ops::cuda::add_terms: 16 bytes of stack memory per thread", spilled.stdout)

    def test_a_tree_without_kernels_is_skipped(self):
        for path in self.build.glob("src/**/*.cu.o"):
            path.unlink()
        self.assertEqual(self.compared().returncode, 77)
        for path in self.build.glob("CMakeFiles/*/*"):
            path.unlink()
        self.assertEqual(self.compared().returncode, 77)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
