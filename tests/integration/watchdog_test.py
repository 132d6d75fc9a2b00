# SPDX-License-Identifier: Apache-2.0
"""A rank that stops responding ends the run within the deadline, and the error names it, whatever it was doing."""
import concurrent.futures
import os
import random
import re
import signal
import time
import unittest
import unittest.mock

from harness import TIMEOUT_S, TrainingTest, process_of_rank

DEADLINE_S = 8  # on a machine that stalls, a healthy rank may get no core for seconds
# The watchdog waits five seconds for answers, and the launcher waits one second before it kills. The rest is for machines that stall. Any
# other reason to end would take minutes, so this still shows that the deadline ended the run.
MOST_S = DEADLINE_S + 5 + 1 + 30


class StoppedRank(TrainingTest):
    def stop(self, rank, ranks, after_s, *overrides, name, line="step      3/"):
        """Stops a rank of a long run `after_s` seconds after the run printed `line`. Returns a function that waits for the end of the run
        and returns its code, its standard error and the seconds it took."""
        running = self.popen("run.steps=1000000", "evaluate.every_steps=0", f"parallel.deadline={DEADLINE_S}", *overrides,
                             ranks=ranks, name=name)
        self.wait_for_line(running, line)
        time.sleep(after_s)  # the random moment of the stop
        os.kill(process_of_rank(rank, self.path(name)), signal.SIGSTOP)
        since = time.monotonic()

        def end():
            _, err = running.communicate(timeout=TIMEOUT_S)
            return running.returncode, err, time.monotonic() - since
        return end

    def assert_named(self, rank, code, err, took):
        self.assertEqual(code, 3, err)
        errors = [line for line in err.splitlines() if "error: " in line]
        self.assertTrue(errors, err)
        print(f"rank {rank} stopped: {took:.1f} s; {errors[0]}")
        # The first rank that detects it ends the run. Ranks that check later may miss that rank instead, or hear the stopped one, which the
        # launcher continues before killing it. So one correct line is enough.
        found = re.search(rf"failed: no progress for (\d+\.\d) s; rank {rank} on \S+ does not answer", err)
        self.assertTrue(found, err)
        self.assertGreaterEqual(float(found.group(1)), DEADLINE_S, err)
        self.assertLess(took, MOST_S, err)


class Watchdog(StoppedRank):
    def test_a_stopped_rank_is_named_at_any_moment(self):
        moments = random.Random(20)
        with concurrent.futures.ThreadPoolExecutor() as waiters:
            ends = {}
            # The ranks are stopped one run after another, and then all runs are awaited in parallel.
            for ranks, *words in ((2, "parallel.transport=shared_memory"), (4, "parallel.transport=mpi"),
                                  (2, "parallel.shard=gradients"), (3, "parallel.shard=parameters"), (4, "parallel.shard=parameters", "parallel.replicate=2"),
                                  (3, "parallel.shard=parameters", "parallel.replicate=2", "optimizer.outer.local_steps=2", "parallel.reduction=sum")):
                rank, name = moments.randrange(ranks), "-".join((str(ranks), *words)).replace("=", "-")
                end = self.stop(rank, ranks, moments.uniform(0, 0.5), "checkpoint.every_steps=0", *words, name=name)
                ends[name] = rank, waiters.submit(end)
            # With a checkpoint after every step, most time is spent where ranks wait for each other's files.
            end = self.stop(0, 2, moments.uniform(0, 0.2), "checkpoint.every_steps=1", name="saving", line="  checkpoint ")
            ends["saving"] = 0, waiters.submit(end)
        for name, (rank, end) in ends.items():
            with self.subTest(name):
                self.assert_named(rank, *end.result())


class NcclWatchdog(StoppedRank):
    """With emulated GPUs, where the host waits for its GPU and the watchdog of NCCL asks the ranks."""

    def test_a_stopped_rank_is_named(self):
        gpus = unittest.mock.patch.dict(os.environ, TRIREME_EMULATED_GPUS="4")
        with gpus, concurrent.futures.ThreadPoolExecutor() as waiters:
            ends = {}
            for rank, ranks, *words in ((1, 2, "parallel.shard=optimizer"), (1, 2, "parallel.shard=gradients"), (1, 2, "parallel.shard=parameters"),
                                        (3, 4, "parallel.shard=gradients", "parallel.replicate=2")):
                name = "-".join(words).replace("=", "-")
                end = self.stop(rank, ranks, 0, "run.device=cuda", "parallel.reduction=sum", "checkpoint.every_steps=0", *words, name=name)
                ends[name] = rank, waiters.submit(end)
        for name, (rank, end) in ends.items():
            with self.subTest(name):
                self.assert_named(rank, *end.result())


if __name__ == "__main__":
    unittest.main()
