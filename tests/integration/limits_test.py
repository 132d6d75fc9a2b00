# SPDX-License-Identifier: Apache-2.0
"""Runs under resource limits: real control groups, which require root, and `ulimit`."""
import errno
import os
import select
import subprocess
import time
import unittest

from harness import DECK, TIMEOUT_S, TRIREME, Run, TrainingTest, launch

ENVIRONMENT = 3
FEW = ("run.steps=1", "optimizer.schedule.warmup_steps=0", "evaluate.every_steps=0")
LARGE = ("model.channels=512", "model.layers=8", "batch.sequences=2")  # about 300 MB per rank


class Group:
    """A control group that processes join when they start."""

    def __init__(self, controller, limits):
        self.version_2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self.folder = f"/sys/fs/cgroup{'' if self.version_2 else '/' + controller}/trireme-limits-{os.getpid()}"
        self.limits = limits[1 if self.version_2 else 0]

    def __enter__(self):
        try:
            os.mkdir(self.folder)
        except OSError as problem:
            raise unittest.SkipTest(f"no control group may be made here: {problem}")
        for name, value in self.limits.items():
            try:
                with open(f"{self.folder}/{name}", "w", encoding="ascii") as file:
                    file.write(str(value))
            except OSError as problem:
                os.rmdir(self.folder)
                raise unittest.SkipTest(f"{name} cannot be set here: {problem}")
        return self

    def __exit__(self, *_):
        # mpiexec may end before its last rank. A group cannot be removed while it contains a process.
        deadline = time.monotonic() + 30
        while True:
            try:
                return os.rmdir(self.folder)
            except OSError as problem:
                if problem.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            self.await_members(deadline)

    def await_members(self, deadline):
        with open(f"{self.folder}/cgroup.procs", encoding="ascii") as file:
            members = [int(line) for line in file]
        for member in members:
            try:
                descriptor = os.pidfd_open(member)
            except ProcessLookupError:
                continue
            try:
                select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
            finally:
                os.close(descriptor)

    def join(self):
        with open(f"{self.folder}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))


class Limits(TrainingTest):
    def under(self, group, *words):
        return Run(subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
                                  check=False, preexec_fn=group.join))

    def memory(self, mebibytes):
        return Group("memory", ({"memory.limit_in_bytes": mebibytes << 20}, {"memory.max": mebibytes << 20}))

    def test_ranks_of_a_host_count_together_in_a_control_group(self):
        with self.memory(900) as group:
            one = self.under(group, *launch(1), *self.words("one", (*FEW, *LARGE)))
            self.assertEqual(one.code, 0, one)
            run = self.under(group, *launch(4), *self.words("four", (*FEW, "run.threads=1", "parallel.shard=none", "batch.sequences=8", *LARGE[:2])))
            self.assert_refused(run, ENVIRONMENT, "4 ranks need ", " each), but the limit of the control group allows ", "model.recompute: block")
            self.assertFalse(os.path.exists(self.path("four/run.h5")))

    def test_check_finds_too_little_memory(self):
        with self.memory(256) as group:
            words = self.words("none", (*FEW, *LARGE))
            check = self.under(group, TRIREME, "check", *words)
            self.assert_refused(check, 2, ": error: model: on this host 1 rank needs ",
                                "but the limit of the control group allows ")
            plan = self.under(group, TRIREME, "plan", *words)
            self.assertEqual(plan.code, 0, plan)
            self.assertIn("Warning: on this host ", plan.out)

    def test_threads_follow_the_quota(self):
        quota = ({"cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000}, {"cpu.max": "50000 100000"})
        with Group("cpu", quota) as group:
            run = self.under(group, TRIREME, *self.words("auto", (*FEW, "run.threads=auto")))
            self.assertEqual(run.code, 0, run)
            if len(os.sched_getaffinity(0)) > 1:
                self.assertIn("run.threads: auto is 1: the control group limits the rank of ", run.out)
            run = self.under(group, TRIREME, *self.words("two", (*FEW, "run.threads=2")))
            self.assertEqual(run.code, 0, run)
            self.assertIn("run.threads is 2: the control group limits the rank of ", run.out)
            self.assertIn("to 0.5 of ", run.out)

    def test_threads_of_all_ranks_count_together(self):
        # A limit of 100 threads is enough for one rank with run.threads=60, but not for two.
        with Group("pids", ({"pids.max": 100},) * 2) as group:
            words = (*FEW, "run.threads=60")
            one = self.under(group, *launch(1), *self.words("one", words))
            self.assertEqual(one.code, 0, one)
            two = self.under(group, *launch(2), *self.words("two", words))
            self.assert_refused(two, ENVIRONMENT, "start the thread 'compute'", "pids.max allows 100 threads to the control group")

    def test_few_open_files_are_warned_of_and_enough_for_many_shards(self):
        import numpy
        for shard in range(100):
            header = numpy.zeros(256, dtype="<i4")
            header[:3] = 20240520, 1, 200
            with open(self.path(f"train_{shard:03}.bin"), "wb") as out:
                out.write(header.tobytes() + numpy.full(200, shard, dtype="<u2").tobytes())
        deck = self.path("shards.yaml")
        with open(DECK, encoding="utf-8") as file, open(deck, "w", encoding="utf-8") as out:
            out.write(file.read().replace("text: [unset]", f"tokens: ['{self.path('train_*.bin')}']").replace("validation_fraction: 0.1", "validation_fraction: 0")
                      .replace("context: 16", "context: 16, vocabulary: 256"))
        run = Run(subprocess.run(["prlimit", "--nofile=80", TRIREME, deck, f"run.directory={self.path('run')}", "run.steps=100", "evaluate.every_steps=0"],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False))
        self.assertEqual(run.code, 0, run)
        self.assertIn("ulimit -n allows a process to open 80 files on ", run.out)


if __name__ == "__main__":
    unittest.main()
