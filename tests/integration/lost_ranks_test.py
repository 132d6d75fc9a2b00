# SPDX-License-Identifier: Apache-2.0
"""Kills ranks at random moments: with parallel.on_lost_rank: shrink the run continues and ends with the bits of an undisturbed run.

LostRanks needs an MPI whose other ranks can continue (Open MPI 5). Restarts needs only jobs/mpirun.sh. TRIREME_KILLED_RUNS is the number
of runs, and TRIREME_KILL_SEED the random seed for the moments.
"""
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time
import unittest

from harness import HERE, MPIRUN, STOPPED, TIMEOUT_S, TRIREME, TrainingTest, has_ulfm, processes

SEED = int(os.environ.get("TRIREME_KILL_SEED", "1"))
STEPS = 300
STARTED = "tiny: "  # every start prints a line that begins so before its first step
# With these keys, the order of additions does not depend on the number of ranks.
SAME_BITS = ("parallel.reduction=tree", "parallel.logical_shards=4", "checkpoint.every_steps=10", "checkpoint.keep=2",
             "evaluate.every_steps=25")
SETTINGS = (("parallel.transport=shared_memory",), ("parallel.transport=mpi",), ("parallel.shard=optimizer",),
            ("parallel.shard=optimizer", "parallel.transport=mpi"), ("parallel.transport=hierarchical",), ("parallel.overlap_gradients=false",))


# Copies in memory after every step, and no checkpoint except the last.
IN_MEMORY = ("checkpoint.memory_every_steps=1", f"checkpoint.every_steps={STEPS}")


def merged(*overrides):
    """If a key occurs twice, the later value is used."""
    return [f"{key}={value}" for key, value in dict(one.split("=", 1) for one in overrides).items()]


# Without ULFM every loss restarts the run, which then resumes from a checkpoint as usual, so fewer runs are enough.
RUNS = int(os.environ.get("TRIREME_KILLED_RUNS", "6" if has_ulfm() else "3"))


class WithoutUlfm(TrainingTest):
    def test_no_copies_are_made_in_memory_and_the_log_says_why(self):
        run = self.train_well(*merged(*SAME_BITS, *IN_MEMORY, "run.steps=10", "checkpoint.every_steps=0", "parallel.on_lost_rank=shrink"), ranks=2)
        self.assertRegex(run.out + run.err, "checkpoint.memory_every_steps has no effect: .*"
                         + ("start the run with mpirun --with-ft ulfm" if has_ulfm() else "build with Open MPI 5"))
        names = self.column("names", "timings")
        self.assertNotIn(b"checkpoint.stall", {names[sample["name"]] for sample in self.column("samples", "timings")})


class KilledRanks(TrainingTest):
    def start_run(self, name, ranks, *overrides, steps=STEPS, restarts=100):
        """Starts a run with jobs/mpirun.sh. Returns the process, its lines with times, and the thread that reads them."""
        environment = {**os.environ, "TRIREME_MPIRUN": MPIRUN, "TRIREME_RESTARTS": str(restarts)}
        running = subprocess.Popen(["bash", os.path.join(HERE, "../../jobs/mpirun.sh"), "-n", str(ranks), TRIREME,
                                    *self.words(name, merged(*SAME_BITS, f"run.steps={steps}", "parallel.on_lost_rank=shrink", *overrides))],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env=environment)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.terminate)  # killing the script would not end the run
        lines = []
        reader = threading.Thread(target=lambda: lines.extend((time.monotonic(), line) for line in running.stdout))
        reader.start()
        self.addCleanup(reader.join, TIMEOUT_S)
        return running, lines, reader

    def await_step(self, running, lines, start=1, what=r"step +\d+/\d+ +(loss|checkpoint)"):
        """The time of the first line about a step after start number `start`, or None if the run ended before."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            ended, begun = running.poll() is not None, 0
            for at, line in lines[:]:
                begun += STARTED in line
                if begun >= start and re.match(what, line):
                    return at
            if ended:
                return None
            time.sleep(0.005)
        self.fail(f"no step: {lines}")
        return None

    def kill_at_random(self, number, moments, more=()):
        """One run with one or two kills. Returns the seconds from each kill to the next step."""
        name, ranks, overrides = f"killed-{number}", moments.choice((2, 3, 4)), (*SETTINGS[number % len(SETTINGS)], *more)
        running, lines, reader = self.start_run(name, ranks, *overrides)
        taken, kills, seen = [], 0, 0
        self.assertIsNotNone(self.await_step(running, lines), lines)
        for _ in range(moments.choice((1, 1, 2))):
            time.sleep(moments.random() * 1.5)  # the random moment of the kill
            alive = processes(self.path(name))
            if running.poll() is not None or len(alive) < 2:
                break
            starts, at = sum(STARTED in line for _, line in lines), time.monotonic()
            seen = max(int(step) for step in re.findall(r"^step +(\d+)/", "".join(line for _, line in lines), re.MULTILINE))
            try:
                os.kill(moments.choice(alive), signal.SIGKILL)
            except ProcessLookupError:
                break
            kills += 1
            if moments.random() < 0.4:  # then the next kill occurs during the recovery
                continue
            step = self.await_step(running, lines, starts + 1)
            if step is not None:
                taken.append(step - at)
        running.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)
        said = "".join(line for _, line in lines)
        self.assertEqual(running.returncode, 0, said)
        # If continuing in place fails, jobs/mpirun.sh restarts the run. This must be an exception.
        self.again += "starts again" in said
        self.continued += ("was lost: the run continues on" if has_ulfm() else "it starts again") in said
        self.assertEqual(self.weights(STEPS, name), self.undisturbed, f"{overrides} on {ranks} ranks: {said}")
        self.assertEqual(self.column("step", "steps", name), list(range(1, STEPS + 1)), said)
        resumed = re.search(r"resumed from \S+: step (\d+)", said)
        if "checkpoint.memory_every_steps=1" in overrides and kills == 1 and resumed and "starts again" not in said:
            self.assertGreaterEqual(int(resumed[1]), seen - 1, said)  # the copies of the step before the last reported one are complete
            if int(resumed[1]) < STEPS:
                self.from_memory += 1
                self.assertRegex(said, r"wrote \S+ from the copies in memory")
        return taken

    def check_random_moments(self, more=()):
        self.train_well(*SAME_BITS, f"run.steps={STEPS}", ranks=2, name="undisturbed")
        self.undisturbed = self.weights(STEPS, "undisturbed")
        moments, taken = random.Random(SEED), []
        self.continued = self.again = self.from_memory = 0
        for number in range(RUNS):
            taken += self.kill_at_random(number, moments, more)
        self.assertGreater(self.continued, 0)
        if taken:
            print(f"{RUNS} runs, {self.again} of them started again, {len(taken)} losses timed: {statistics.median(taken):.2f} s to the next step, "
                  f"at most {max(taken):.2f} s")


class ScriptSignals(KilledRanks):
    def test_a_signal_to_the_script_saves_a_checkpoint(self):
        """Also if the step and the checkpoint take longer than the launcher waits for ranks after a signal."""
        for what, number in (("stop", signal.SIGTERM), ("shrink", signal.SIGINT)):
            with self.subTest(on_lost_rank=what):
                running, lines, reader = self.start_run(what, 2, "checkpoint.every_minutes=600", f"parallel.on_lost_rank={what}", steps=1000000)
                self.await_step(running, lines)
                running.send_signal(number)
                self.assertIn(running.wait(TIMEOUT_S), STOPPED, lines)
                reader.join(TIMEOUT_S)
                self.assertTrue(os.path.exists(self.path(f"{what}/checkpoints/latest")), lines)


@unittest.skipUnless(has_ulfm(), "continuing in place needs Open MPI 5 with ULFM")
class LostRanks(KilledRanks):
    def test_the_others_continue_from_the_newest_checkpoint(self):
        self.check_random_moments()

    def test_the_others_continue_from_copies_in_memory(self):
        self.check_random_moments(IN_MEMORY)
        self.assertGreater(self.from_memory, 0)

    def test_a_rank_that_is_lost_with_its_partner_costs_the_steps_since_the_checkpoint(self):
        self.train_well(*SAME_BITS, f"run.steps={STEPS}", ranks=2, name="undisturbed")
        # Any two of three ranks store copies for each other.
        running, lines, reader = self.start_run("both", 3, "checkpoint.memory_every_steps=1", "checkpoint.every_steps=20")
        self.await_step(running, lines, what=r"step +50/")
        for process in sorted(processes(self.path("both")))[:2]:
            os.kill(process, signal.SIGKILL)
        self.assertEqual(running.wait(TIMEOUT_S), 0, lines)
        reader.join(TIMEOUT_S)
        said = "".join(line for _, line in lines)
        self.assertNotIn("from the copies in memory", said)
        self.assertRegex(said, r"resumed from \S+: step \d*[02468]0,")
        self.assertEqual(self.weights(STEPS, "both"), self.weights(STEPS, "undisturbed"), said)

    def test_every_shard_continues_as_a_run_on_the_remaining_ranks(self):
        for shard in ("none", "optimizer", "gradients", "parameters"):
            settings = (*IN_MEMORY, "checkpoint.keep=0", f"parallel.shard={shard}", "parallel.reduction=ordered",
                        "parallel.logical_shards=none", "evaluate.every_steps=0")
            with self.subTest(shard=shard):
                running, lines, reader = self.start_run(shard, 3, *settings)
                self.await_step(running, lines, what=r"step +10/")
                os.kill(processes(self.path(shard))[0], signal.SIGKILL)
                self.assertEqual(running.wait(TIMEOUT_S), 0, lines)
                reader.join(TIMEOUT_S)
                said = "".join(line for _, line in lines)
                written = re.search(r"wrote (\S+) from the copies in memory", said)
                self.assertIsNotNone(written, said)
                again = self.path(f"{shard}-again/checkpoints/{os.path.basename(written[1])}")
                shutil.copytree(written[1], again)
                self.train_well(*merged(*SAME_BITS, f"run.steps={STEPS}", *settings), ranks=2, name=f"{shard}-again")
                self.assertEqual(self.weights(STEPS, shard), self.weights(STEPS, f"{shard}-again"), said)

    def test_replicas_with_local_steps_continue_without_one(self):
        for ranks, replicate, left in ((3, "rank", "2 ranks with 2 copies"), (4, "2", "3 ranks with 2 copies")):
            with self.subTest(replicate=replicate):
                local = ("parallel.reduction=ordered", "parallel.logical_shards=none", f"parallel.replicate={replicate}",
                         "optimizer.outer.local_steps=2", "parallel.shard=optimizer")
                name = f"local-{replicate}"
                running, lines, reader = self.start_run(name, ranks, *local)
                self.await_step(running, lines, what=r"step +20/")
                os.kill(processes(self.path(name))[0], signal.SIGKILL)
                self.assertEqual(running.wait(TIMEOUT_S), 0, lines)
                reader.join(TIMEOUT_S)
                said = "".join(line for _, line in lines)
                self.assertIn(left, said)
                self.assertEqual(self.column("step", "steps", name), list(range(1, STEPS + 1)), said)

    def test_the_log_names_the_lost_rank(self):
        running, lines, reader = self.start_run("named", 3)
        self.await_step(running, lines)
        os.kill(max(processes(self.path("named"))), signal.SIGKILL)
        self.assertEqual(running.wait(TIMEOUT_S), 0, lines)
        reader.join(TIMEOUT_S)
        self.assertNotIn("starts again", "".join(line for _, line in lines))
        with open(os.path.join(self.path("named"), "log.txt"), encoding="utf-8") as log:
            self.assertRegex(log.read(), r"rank 2 on \S+ was lost.* 2 ranks")


@unittest.skipIf(has_ulfm(), "this MPI continues in place")
class Restarts(KilledRanks):
    def test_a_new_start_continues_from_the_newest_checkpoint(self):
        self.check_random_moments()

    def test_the_number_of_starts_is_limited(self):
        running, lines, reader = self.start_run("limited", 2, "checkpoint.every_minutes=600", steps=1000000, restarts=1)
        for start in (1, 2):
            self.await_step(running, lines, start)
            alive = set(processes(self.path("limited")))
            os.kill(min(alive), signal.SIGKILL)
            while alive & set(processes(self.path("limited"))):
                time.sleep(0.01)
        self.assertNotIn(running.wait(TIMEOUT_S), (0, 2, 4, 75), lines)
        reader.join(TIMEOUT_S)
        said = "".join(line for _, line in lines)
        self.assertEqual(said.count("it starts again"), 1, said)
        self.assertIn("restarted 1 times without a new checkpoint", said)

    def test_starts_that_made_a_checkpoint_do_not_count(self):
        running, lines, reader = self.start_run("counted=1", 2, restarts=1)
        for start in (1, 2):
            self.await_step(running, lines, start, r"step +\d+/\d+ +checkpoint")
            os.kill(min(processes(self.path("counted=1"))), signal.SIGKILL)
        self.assertEqual(running.wait(TIMEOUT_S), 0, lines)
        reader.join(TIMEOUT_S)
        self.assertEqual("".join(line for _, line in lines).count("it starts again"), 2, lines)


del KilledRanks
