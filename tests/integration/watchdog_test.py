# SPDX-License-Identifier: Apache-2.0
"""A rank that stops answering ends the run within the deadline, with its name, whatever it was stopped in."""
import glob
import os
import random
import re
import signal
import time
import unittest

from harness import TIMEOUT_S, TRIREME, TrainingTest

DEADLINE_S = 3  # a busy machine may keep a rank that is well from its cores for a second
# The roll waits two seconds for answers, the launcher one before it kills; the rest is for busy machines.
MOST_S = DEADLINE_S + 2 + 1 + 10


def process_of_rank(rank, directory):
    """The process that runs the executable as this rank on this run directory."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                told = file.read().split(b"\0")
            with open(path[: -len("environ")] + "cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # it ended meanwhile, or is a kernel thread
            continue
        if (f"OMPI_COMM_WORLD_RANK={rank}".encode() in told and words[0] == TRIREME.encode()
                and f"run.directory={directory}".encode() in words):
            return int(path.split("/")[2])
    raise AssertionError(f"no process of rank {rank}")


class Watchdog(TrainingTest):
    def stop(self, rank, ranks, after_s, *overrides, name):
        """Stops a rank of a long run `after_s` seconds after its third step; the lines of error and the seconds until the end."""
        running = self.popen("run.steps=1000000", "evaluate.every_steps=0", f"parallel.deadline={DEADLINE_S}", *overrides,
                             ranks=ranks, name=name)
        self.wait_for_line(running, "step      3/")
        time.sleep(after_s)  # chooses the moment; nothing waits for it
        victim = process_of_rank(rank, self.path(name))
        os.kill(victim, signal.SIGSTOP)
        since = time.monotonic()
        out, err = running.communicate(timeout=TIMEOUT_S)
        took = time.monotonic() - since
        self.assertEqual(running.returncode, 3, err)
        self.assertLess(took, MOST_S, err)
        errors = [line for line in err.splitlines() if "error: " in line]
        self.assertTrue(errors, err)
        print(f"{ranks} ranks, rank {rank} stopped: {took:.1f} s; {errors[0]}")
        return errors, out

    def assert_named(self, errors, rank):
        for line in errors:
            self.assertRegex(line, rf"failed: nothing moved for \d+\.\d s; rank {rank} on \S+ does not answer")

    def test_a_stopped_rank_is_named_at_any_moment(self):
        moments = random.Random(20)
        for number, (ranks, transport) in enumerate(((2, "shared_memory"), (3, "mpi"), (4, "mpi"))):
            rank = moments.randrange(ranks)
            with self.subTest(ranks=ranks, transport=transport, rank=rank):
                errors, _ = self.stop(rank, ranks, moments.uniform(0, 0.5), "checkpoint.every_steps=0",
                                      f"parallel.transport={transport}", name=f"run{number}")
                self.assert_named(errors, rank)

    def test_a_rank_stopped_in_the_middle_of_files_is_named_too(self):
        # A checkpoint behind every step: most of the time goes there, where ranks wait for each other's files.
        errors, out = self.stop(0, 2, 0.2, "checkpoint.every_steps=1", name="saving")
        self.assertTrue(re.search(r"checkpoint", out), out)
        self.assert_named(errors, 0)


if __name__ == "__main__":
    unittest.main()
