# SPDX-License-Identifier: Apache-2.0
"""Submits jobs/train.sbatch to a real Slurm with two virtual nodes of one core each. Start this with private_slurm.sh."""
import os
import re
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, os.pardir, "integration"))
from harness import DECK, HYDRA, MPIRUN, STOPPED, TIMEOUT_S, TRIREME, TrainingTest, processes  # noqa: E402

SCRIPT = os.path.join(HERE, os.pardir, os.pardir, "jobs", "train.sbatch")
DEADLINE_S = 500  # what takes 40 s on a quiet machine took 160 s next to builds on a slow one
PAUSE_S = 25
LONG_PAUSE_S = 65  # longer than the minute between two queries of the limit
CONSTANT = ("optimizer.schedule={kind: constant}", "checkpoint.every_steps=1000000", "checkpoint.keep=0")
ENDLESS = ("run.steps=1000000", *CONSTANT)  # runs until something stops it, however fast the machine is


class SlurmTest(TrainingTest):
    def submit(self, *overrides, options=(), name="run", launch=None, program=TRIREME):
        """Submits a run and returns the number of the job."""
        environment = dict(os.environ, TRIREME=program)
        if launch:
            environment["TRIREME_LAUNCH"] = launch
        words = ["sbatch", "--parsable", "-o", self.path("%j.log"), *options, SCRIPT, *self.words(name, overrides)]
        job = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environment).stdout.strip()
        self.addCleanup(self.cancel, job)
        return job

    def cancel(self, job):
        """Cancels a job and waits for its end, because it would write into the removed folder."""
        subprocess.run(["scancel", "--quiet", job], check=False)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline and subprocess.run(["squeue", "-h", "-j", job], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                                             check=False).stdout:
            time.sleep(0.2)

    def field(self, job, name):
        told = subprocess.run(["scontrol", "show", "job", "-o", job], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False).stdout
        found = re.search(rf"\b{name}=(\S*)", told)
        return found.group(1) if found else "forgotten by Slurm"

    def log(self, job):
        try:
            with open(self.path(f"{job}.log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def wait_until(self, job, what, happened):
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            if time.monotonic() > deadline:
                self.fail(f"{what} did not happen: {self.field(job, 'JobState')}\n{self.log(job)}")
            time.sleep(0.2)

    def wait_for_line(self, job, part, times=1):
        self.wait_until(job, f"'{part}'", lambda: self.log(job).count(part) >= times)

    def wait_for_end(self, job, state, code="0:0"):
        self.wait_until(job, f"the end, {state}", lambda: self.field(job, "JobState") not in (
            "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"))
        self.assertEqual(self.field(job, "JobState"), state, self.log(job))
        self.assertEqual(self.field(job, "ExitCode"), code, self.log(job))

    def stop_for_good(self, job):
        """Cancels a job, whose ranks save, and waits for the last line of its script."""
        subprocess.run(["scancel", job], check=True, timeout=TIMEOUT_S)
        self.wait_until(job, "the end", lambda: self.field(job, "JobState") == "CANCELLED" and "ended with" in self.log(job))

    def pause(self, seconds, job):
        """Pauses the only rank of the run."""
        ranks = processes(self.path("run"))
        self.assertEqual(len(ranks), 1, self.log(job))
        os.kill(ranks[0], signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(ranks[0], signal.SIGCONT)

    def assert_resumes_with_equal_bits(self, *deck):
        """Resumes the stopped run for 20 more steps, compares it with a run that was never interrupted, and returns the job."""
        steps = self.column("step", "steps")[-1] + 20
        job = self.submit(f"run.steps={steps}", *deck)
        self.train_well(f"run.steps={steps}", *deck, name="calm")
        self.wait_for_end(job, "COMPLETED")
        self.assert_equal_runs("run", "calm", steps)
        return job

    def assert_equal_runs(self, run, reference, steps):
        self.assertEqual(self.column("step", "steps", run), list(range(1, steps + 1)))
        self.assertEqual(self.losses(run), self.losses(reference))
        self.assertEqual(self.weights(steps, run), self.weights(steps, reference))


class Jobs(SlurmTest):
    def test_jobs_train_to_the_end_on_two_nodes_under_srun_and_under_mpirun(self):
        self.train_well(ranks=2, name="reference")
        # mpirun starts its daemons on both nodes with srun. For MPICH, the script chooses mpirun on its own.
        mpirun = MPIRUN if HYDRA else f"{MPIRUN} --bind-to none"
        for name, launch in (("default", None), ("mpirun", mpirun)):
            job = self.submit(options=["-N2", "-n2"], name=name, launch=launch)
            self.wait_for_end(job, "COMPLETED")
            self.assertIn("ended with exit code 0", self.log(job))
            self.assertIn("2 ranks", self.log(job))
            self.assert_equal_runs(name, "reference", 12)

    def test_a_mistake_in_the_deck_ends_the_job_for_good(self):
        job = self.submit("run.steps=0")
        self.wait_for_end(job, "FAILED", "2:0")
        self.assertIn("run.steps", self.log(job))
        self.assertEqual(self.field(job, "Restarts"), "0")

    def test_signals_save_and_requeue_and_scancel_is_for_good(self):
        job = self.submit(*ENDLESS)
        self.wait_for_line(job, "step     10/")
        subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True, timeout=TIMEOUT_S)
        self.wait_for_line(job, "  checkpoint ")
        subprocess.run(["scancel", "--batch", "--signal=USR2", job], check=True, timeout=TIMEOUT_S)
        self.wait_for_line(job, "back into the queue")
        self.wait_for_line(job, "resumed from")
        self.assertEqual(self.field(job, "Restarts"), "1")
        self.stop_for_good(job)
        self.assertIn(int(re.search(r"ended with exit code (\d+)", self.log(job)).group(1)), STOPPED)
        saved = self.log(job).count("  checkpoint ")
        self.assertEqual(saved, 3, self.log(job))

        again = self.assert_resumes_with_equal_bits(*CONSTANT)
        self.assertIn("resumed from", self.log(again))

    def test_a_run_that_was_stopped_by_command_stays_out_of_the_queue(self):
        program = self.path("trireme")
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 76\n")
        os.chmod(program, 0o755)
        job = self.submit(program=program)
        self.wait_for_end(job, "FAILED", "76:0")
        self.assertIn("stopped by `trireme stop`", self.log(job))
        self.assertEqual(self.field(job, "Restarts"), "0")

    @unittest.skipIf(HYDRA, "mpirun of MPICH does not say that ranks ended with 75")
    def test_a_signal_under_mpirun_on_two_nodes_requeues_at_once_and_scancel_saves(self):
        job = self.submit(*ENDLESS, options=["-N2", "-n2"], launch=f"{MPIRUN} --bind-to none")
        self.wait_for_line(job, "step     10/")
        subprocess.run(["scancel", "--batch", "--signal=USR2", job], check=True, timeout=TIMEOUT_S)
        self.wait_for_line(job, "stopped after step")
        saved = time.monotonic()
        self.wait_for_line(job, "back into the queue")
        self.assertLess(time.monotonic() - saved, 60, self.log(job))  # mpirun must not wait for ended processes
        self.wait_for_line(job, "resumed from")
        # Slurm also sends SIGTERM to mpirun and its daemons.
        self.stop_for_good(job)
        self.assertIn("ended with exit code 75", self.log(job))
        self.assertEqual(self.log(job).count("stopped after step"), 2, self.log(job))


class LostRanks(SlurmTest):
    def test_a_job_starts_again_after_a_rank_was_killed_and_leaves_out_a_failed_node(self):
        deck = ("run.steps=2000", "parallel.reduction=tree", "parallel.logical_shards=2", "parallel.on_lost_rank=shrink", "checkpoint.every_steps=20",
                "evaluate.every_steps=0")
        job = self.submit(*deck, options=["-N2", "-n2", "--no-kill"])
        for start in (1, 2):
            self.wait_until(job, f"step 20 of start {start}", lambda start=start: len(re.findall(
                r"(?s)tiny: .*?  checkpoint ", self.log(job))) >= start)
            if start == 2:
                subprocess.run(["scontrol", "update", f"nodename={self.nodes()[1]}", "state=down", "reason=test"], check=True,
                               timeout=TIMEOUT_S)
                self.addCleanup(subprocess.run, ["scontrol", "update", f"nodename={self.nodes()[1]}", "state=resume"], stderr=subprocess.DEVNULL, check=False)
            else:
                os.kill(max(processes(self.path("run"))), signal.SIGKILL)
        self.wait_for_end(job, "COMPLETED")
        self.assertEqual(self.log(job).count("it starts again"), 2, self.log(job))
        self.assertIn("1 rank", self.log(job).rsplit("it starts again", 1)[1])
        self.train_well(*deck, ranks=2, name="reference")
        self.assertEqual(self.weights(2000), self.weights(2000, "reference"))

    def nodes(self):
        return subprocess.run(["sinfo", "-h", "-N", "-o", "%N"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout.split()


class Arrays(SlurmTest):
    def tasks(self, job):
        """Maps the index of each task to its job id."""
        told = subprocess.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        return {index: job for job, index in re.findall(r"^JobId=(\d+) .*?ArrayTaskId=(\d+) ", told, re.MULTILINE)}

    def test_one_task_is_requeued_and_every_task_has_its_own_values(self):
        job = self.submit("run.seed={array}", *ENDLESS, options=["--array=1-2", "-o", self.path("%a.log")], name="{array}-of-{job}")
        for index in "12":
            self.wait_until(job, f"step 10 of task {index}", lambda index=index: "step     10/" in self.log(index))
        tasks = self.tasks(job)
        # This task has the same job number as the whole array.
        index = next(index for index, number in tasks.items() if number == job)
        other = "12".replace(index, "")
        subprocess.run(["scancel", "--batch", "--signal=USR2", f"{job}_{index}"], check=True, timeout=TIMEOUT_S)
        self.wait_until(job, "the second start", lambda: "resumed from" in self.log(index))
        self.assertIn(f"job {job}_{index}: checkpointed, not finished: back into the queue", self.log(index))
        self.assertIn(f"job {job}_{index}, start 2, on ", self.log(index))
        self.assertNotIn("stopped after", self.log(other))
        self.assertEqual(self.field(f"{job}_{other}", "Restarts"), "0")
        for task in "12":
            with open(self.path(f"{task}-of-{job}/deck.resolved.yaml"), encoding="utf-8") as file:
                resolved = file.read()
            self.assertRegex(resolved, rf"\n  seed: {task} ")
            self.assertIn(f"{{array}}: {task}\n", self.log(task))


class NewLimit(SlurmTest):
    def test_a_limit_that_changes_during_the_run_is_seen(self):
        job = self.submit(*ENDLESS, options=["-t10"])
        self.wait_for_line(job, "step     10/")
        # The limit is in minutes from the start of the job. The run queries it every minute, so it does as soon as the pause ends.
        subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=2"], check=True, timeout=TIMEOUT_S)
        self.pause(LONG_PAUSE_S, job)
        self.wait_for_line(job, "back into the queue")
        self.assertIn(f": the time limit of Slurm job {job} (squeue) leaves no time for another step and a checkpoint.", self.log(job))
        self.assertNotIn("DUE TO TIME LIMIT", self.log(job))


class Ablation(SlurmTest):
    def test_runs_as_a_job_on_two_nodes(self):
        script = os.path.join(HERE, os.pardir, os.pardir, "dev", "experiments", "ablation.sh")
        output = self.path("ablation.h5")
        words = ["sbatch", "--parsable", "-n", "2", "-o", self.path("%j.log"), script, "--steps", "4", "--rounds", "1", "--output", output,
                 DECK, f"data.train.text=[{self.text}]"]
        job = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, cwd=os.path.join(HERE, os.pardir, os.pardir),
                             env=dict(os.environ, TRIREME=TRIREME)).stdout.strip()
        self.addCleanup(self.cancel, job)
        self.wait_for_end(job, "COMPLETED")
        self.assertIn("| sums inside hosts first, not MPI: step |", self.log(job))
        for name in ("ablation.h5", "ablation.md", "ablation.png"):
            self.assertTrue(os.path.exists(self.path(name)), name)


class TimeLimit(SlurmTest):
    def test_a_job_near_its_limit_is_requeued_and_gives_the_same_bits(self):
        # One minute is Slurm's shortest limit. The pause leaves fewer steps to repeat.
        deck = ("evaluate.every_steps=0", "record.spans=false")
        job = self.submit(*ENDLESS, *deck, options=["-t1"])
        self.wait_for_line(job, "step     10/")
        self.pause(PAUSE_S, job)
        self.wait_for_line(job, "back into the queue")
        self.wait_for_line(job, "resumed from")
        told = self.log(job)
        self.assertIn("leaves no time for another step and a checkpoint", told)
        self.assertNotIn("DUE TO TIME LIMIT", told)
        self.stop_for_good(job)

        self.assert_resumes_with_equal_bits(*CONSTANT, *deck)


if __name__ == "__main__":
    unittest.main()
