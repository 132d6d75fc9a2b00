# SPDX-License-Identifier: Apache-2.0
"""A build with CUDA, on a machine without a driver and on one with a GPU.

Tests that need a GPU are skipped with a message if there is none. TRIREME_REQUIRE_CUDA=1 makes that a failure.
"""
import ctypes
import os
import subprocess
import unittest

from harness import TIMEOUT_S, TRIREME, TrainingTest


def versions():
    said = subprocess.run([TRIREME, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    return dict(line.split(None, 1) for line in said.splitlines())


def has_driver():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


IN_BUILD = versions()["CUDA"] != "not in this build"


class CudaBuild(TrainingTest):
    """Runs on every machine: a build with CUDA also works on the CPU."""

    def test_the_version_names_the_libraries(self):
        told = versions()
        for library in ("CUDA", "cuDNN", "NCCL"):
            if IN_BUILD:
                self.assertRegex(told[library], r"^\d+\.\d+")
            else:
                self.assertEqual(told[library], "not in this build")

    def test_the_drivers_library_is_not_linked(self):
        dynamic = subprocess.run(["readelf", "-d", TRIREME], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
        self.assertTrue([name for name in needed if name.startswith("libmpi")], needed)  # libmpi of Open MPI, libmpich of MPICH
        self.assertFalse([name for name in needed if name.startswith("libcuda.")], needed)

    @unittest.skipIf(has_driver(), "this machine has a GPU")
    def test_asking_for_a_gpu_that_is_not_there(self):
        for ranks in (1, 2):
            run = self.train("run.device=cuda", ranks=ranks)
            if IN_BUILD:
                self.assert_refused(run, 3, "find a GPU on ", "CUDA")
            else:
                self.assert_refused(run, 2, "run.device", "this build has no CUDA")
        self.assertFalse(os.path.exists(os.path.join(self.path("run"), "run.h5")))

    @unittest.skipIf(has_driver(), "this machine has a GPU")
    def test_auto_takes_the_cpu_without_a_gpu(self):
        self.train_well("run.device=auto", "run.steps=6", name="automatic")
        self.train_well("run.device=cpu", "run.steps=6", name="chosen")
        self.assertEqual(self.losses("automatic"), self.losses("chosen"))


if __name__ == "__main__":
    unittest.main()
