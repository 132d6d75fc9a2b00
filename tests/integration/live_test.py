# SPDX-License-Identifier: Apache-2.0
"""Live reports on the machine: the log names a rank that becomes slow, with the reason, and reports its recovery. The energy of every step
is recorded."""
import contextlib
import math
import os
import signal
import threading
import unittest

from harness import TrainingTest, is_root, process_of_rank

FACTOR = r"its forward and backward passes take \d+\.\d\d times as long as those of the other ranks\. Likely reason on its host \S+: "


class Bursts:
    """Stops a process for half of the time."""

    def __init__(self, process):
        self.process = process
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set():
            for number in (signal.SIGSTOP, signal.SIGCONT):
                os.kill(self.process, number)
                self.over.wait(0.05)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        os.kill(self.process, signal.SIGCONT)


class Quota:
    """Limits a process to a twentieth of a CPU with a control group."""

    def __init__(self, process):
        self.process = process
        self.version_2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        self.folder = f"/sys/fs/cgroup{'' if self.version_2 else '/cpu'}/trireme-test-{os.getpid()}"

    def write(self, name, text, folder=None):
        with open(os.path.join(folder or self.folder, name), "w", encoding="ascii") as file:
            file.write(str(text))

    def __enter__(self):
        os.mkdir(self.folder)
        if self.version_2:
            self.write("cpu.max", "5000 100000")
        else:
            self.write("cpu.cfs_quota_us", 5000)
        self.write("cgroup.procs", self.process)

    def __exit__(self, *_):
        with contextlib.suppress(OSError):  # the process may have ended
            self.write("cgroup.procs", self.process, os.path.dirname(self.folder))
        os.rmdir(self.folder)


class Slowed(TrainingTest):
    def assert_named(self, slower, reason):
        running = self.popen("run.steps=100000000", "evaluate.every_steps=0", "checkpoint.every_steps=0", "record.spans=false",
                             "model.channels=128", "model.layers=4", "model.context=64", "batch.sequences=4", ranks=2)
        self.wait_for_line(running, "step      3/")
        with slower(process_of_rank(1, self.path("run"))):
            lines = iter(running.stdout)
            slow = next(line for line in lines if "rank 1 is slow" in line)
        self.assertRegex(slow, r"step +\d+/100000000  rank 1 is slow: " + FACTOR + ".*" + reason)
        ends = next(line for line in lines if "rank 1 is no longer slow" in line)
        self.assertRegex(ends, r"step +\d+/100000000  rank 1 is no longer slow, after \d+ steps")
        running.terminate()
        running.communicate()


class SlowRank(Slowed):
    def test_stopped_again_and_again(self):
        # On a busy machine, the reason may also be that it waits for a CPU.
        self.assert_named(Bursts, r"(it had work but did not run \d+ % of the time: stopped|one of its threads waited for a CPU \d+ % of the time)")


class SlowRankByQuota(Slowed):
    def test_quota_of_a_control_group(self):
        if not is_root():
            self.skipTest("control groups need root")
        self.assert_named(Quota, r"the CPU quota of its control group was used up in \d+ of \d+ periods")


class Energy(TrainingTest):
    def test_energy_of_the_host_is_counted_once(self):
        """Uses a simulated RAPL counter, which a thread advances."""
        self.need_own_mounts()
        zone = os.path.join(self.path("class"), "powercap", "intel-rapl:0")
        os.makedirs(zone)
        for name, text in (("name", "package-0"), ("max_energy_range_uj", "262143328850"), ("energy_uj", "100000000000")):
            with open(os.path.join(zone, name), "w", encoding="ascii") as file:
                file.write(text + "\n")
        over = threading.Event()
        microjoules = 100_000_000_000

        def drive():
            nonlocal microjoules
            with open(os.path.join(zone, "energy_uj"), "r+b", buffering=0) as file:
                while not over.is_set():
                    microjoules += 1_000_000
                    os.pwrite(file.fileno(), str(microjoules).encode(), 0)
        driver = threading.Thread(target=drive)
        driver.start()
        try:
            self.train_well(ranks=2, prefix=("unshare", "-m", "sh", "-c", f"mount --bind {self.path('class')} /sys/class && exec \"$@\"", "sh"))
        finally:
            over.set()
            driver.join()
        joules = self.column("cpu_joules", "steps")
        self.assertEqual([value for value in joules if not value >= 0], [])
        self.assertTrue(0 < sum(joules) < microjoules / 1e6 - 100_000, joules)
        self.assertTrue(all(math.isnan(value) for value in self.column("gpu_joules", "steps")))
        self.assertEqual(self.column("rank", "energy"), [0])
        self.assertAlmostEqual(sum(self.column("cpu_joules", "energy")), sum(joules), places=6)


class Metrics(TrainingTest):
    def test_a_run_leaves_its_last_step_in_the_metrics_file(self):
        path = self.path("tiny.prom")
        self.train_well(f"record.metrics_file={path}", ranks=2)
        with open(path, encoding="ascii") as file:
            self.assertRegex(file.read(), r'\ntrireme_step\{run="tiny",run_id="[^"]+"\} 12\n')
        with open(path, "w", encoding="ascii") as file:
            file.write("mine")
        self.assert_refused(self.train(f"record.metrics_file={path}", name="other"), 2, path, "trireme did not write")


if __name__ == "__main__":
    unittest.main()
