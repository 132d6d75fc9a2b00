# SPDX-License-Identifier: Apache-2.0
"""Kills ranks at random moments and damages their files. The run must continue as if nothing had happened.

TRIREME_FAULTS is the number of kills (default 8), TRIREME_FAULT_SEED the random seed for the moments (default 1).
    cd tests/faults; TRIREME_FAULTS=50 python3 -m unittest -v faults_test.Kills     with the variables of tests/integration
"""
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import h5py

import fail_call

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import TIMEOUT_S, TRIREME, Run, TrainingTest  # noqa: E402

USER, ENVIRONMENT = 2, 3
FAULTS = int(os.environ.get("TRIREME_FAULTS", "8"))
SEED = int(os.environ.get("TRIREME_FAULT_SEED", "1"))
RANKS = 3
STEPS = 240
# Files large enough that kills happen while they are written, and a checkpoint every 8 steps.
RUN = ("model.channels=96", "checkpoint.every_steps=8", "checkpoint.keep=0", "evaluate.every_steps=40",
       "record.every_steps=1", "parallel.reduce_every=micro_step")
# What is sharded changes with every start of a killed run. The results are bit-identical.
SHARDS = (("parallel.shard=parameters",), ("parallel.shard=gradients",), ("parallel.shard=parameters", "parallel.reshard_after_forward=false"),
          ("parallel.shard=optimizer",), ("parallel.shard=none",))
COPIES = (("parallel.shard=parameters", "parallel.replicate=2"), ("parallel.shard=gradients", "parallel.replicate=2"))


def ranks_of(launcher):
    """Process ids of the ranks of this mpirun: its children, or those of MPICH's proxy."""
    found, parents = [], [launcher.pid]
    while parents:
        for path in glob.glob(f"/proc/{parents.pop()}/task/*/children"):
            try:
                with open(path, encoding="ascii") as file:
                    children = [int(word) for word in file.read().split()]
            except OSError:
                continue
            found += [pid for pid in children if runs_trireme(pid)]
            parents += [pid for pid in children if not runs_trireme(pid)]
    return found


def runs_trireme(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TRIREME)
    except OSError:
        return False


def send(number, pids):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def stands_still(pid):
    """Whether every thread is stopped, or the process has ended."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
    except OSError:
        pass
    return True


class FaultTest(TrainingTest):
    def checkpoints(self, run):
        """Directories of complete checkpoints, oldest first."""
        return sorted(name for name in os.listdir(self.path(f"{run}/checkpoints"))
                      if re.fullmatch(r"step-\d+", name)) if os.path.isdir(self.path(f"{run}/checkpoints")) else []

    def being_written(self, run):
        return glob.glob(self.path(f"{run}/checkpoints/step-*.tmp"))

    def hashes(self, run, checkpoint):
        found = {}
        with h5py.File(self.path(f"{run}/checkpoints/{checkpoint}/manifest.h5"), "r") as file:
            file["tensors"].visititems(lambda name, node: found.update({name: int(node.attrs["content_hash"])})
                                       if isinstance(node, h5py.Dataset) else None)
        self.assertTrue(found)
        return found

    def assert_whole(self, run, checkpoint, reference):
        """The data in the checkpoint, read with h5py, equal those of the undisturbed run."""
        self.assertEqual(self.hashes(run, checkpoint), self.hashes(reference, checkpoint), checkpoint)
        step = int(checkpoint[5:])
        self.assertEqual(self.weights(step, run), self.weights(step, reference), checkpoint)


class Kills(FaultTest):
    def start(self, run):
        running = self.popen(*self.words_of_all, *self.shards[self.starts % len(self.shards)], ranks=self.ranks, name=run)
        self.starts += 1
        resumed = None
        for line in running.stdout:
            found = re.search(r"resumed from \S*/(step-\d+):", line)
            resumed = found.group(1) if found else resumed
            if "step " in line and "/" in line and "loss" in line:
                return running, resumed
        self.fail(f"the run did not start: {running.stderr.read()}")

    def look(self, running, holds):
        """Polls until `holds` is true or the run has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds() and running.poll() is None:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.0005)

    def freeze(self, running):
        """Stops the ranks and returns them when no thread runs. Returns fewer ranks if the run is about to end."""
        ranks = ranks_of(running)
        send(signal.SIGSTOP, ranks)
        try:
            self.look(running, lambda: all(stands_still(pid) for pid in ranks))
        except BaseException:
            send(signal.SIGCONT, ranks)
            raise
        return ranks

    def strike(self, running, run, chance, inside):
        """Kills one rank or all of them, while a checkpoint is written (`inside`) or not. The progress is measured in checkpoints, and the
        ranks are paused for the check, so that the machine's speed does not matter. Returns whether the run was still running."""
        one_rank = chance.random() < 0.5
        for _ in range(chance.randrange(5)):
            self.look(running, lambda: not self.being_written(run))
            self.look(running, lambda: self.being_written(run))
        while True:
            self.look(running, lambda: bool(self.being_written(run)) == inside)
            time.sleep(chance.random() * (self.writing_s if inside else self.between_s))  # the random moment of the kill
            ranks = self.freeze(running)
            if len(ranks) < self.ranks or bool(self.being_written(run)) == inside:
                break
            send(signal.SIGCONT, ranks)
        going = len(ranks) == self.ranks
        if going:
            send(signal.SIGKILL, [chance.choice(ranks)] if one_rank else [*ranks, running.pid])
        send(signal.SIGCONT, ranks)
        running.communicate(timeout=TIMEOUT_S)
        # Ranks without a launcher end on their own.
        deadline = time.monotonic() + TIMEOUT_S
        while any(runs_trireme(pid) for pid in ranks):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return going

    def test_kill_9_at_random_moments(self):
        self.kill(FAULTS, RANKS, SHARDS, STEPS)

    def test_kill_9_of_ranks_with_copies(self):
        self.kill(2, 4, COPIES, 64)

    def kill(self, faults, ranks, shards, steps):
        self.words_of_all, self.ranks, self.shards, self.steps = (f"run.steps={steps}", *RUN), ranks, shards, steps
        begin = time.monotonic()
        self.train_well(*self.words_of_all, ranks=ranks, name="calm")
        self.between_s = (time.monotonic() - begin) / len(self.checkpoints("calm"))
        writing = sorted(self.column("write_s", "checkpoints", "calm"))
        self.writing_s = writing[len(writing) // 2]
        chance = random.Random(SEED)
        tried = finished = 0
        run, verified = "run0", set()
        self.starts = 0
        while tried < faults:
            self.assertLessEqual(finished, faults, f"{tried} kills: the runs come to their ends before")
            before = self.checkpoints(run)
            running, resumed = self.start(run)
            self.assertEqual(resumed, before[-1] if before else None, "it resumes from the newest whole checkpoint")
            inside = tried % 2 == 0
            going = self.strike(running, run, chance, inside)
            after = self.checkpoints(run)
            self.assertEqual(after[:len(before)], before, "an older checkpoint is lost")
            for checkpoint in after:
                if (run, checkpoint) not in verified:
                    self.assert_whole(run, checkpoint, "calm")
                    verified.add((run, checkpoint))
            tried += going
            if after and after[-1] == f"step-{steps:08d}" or tried == faults:
                self.finish(run)
                finished += 1
                shutil.rmtree(self.path(run))
                run = f"run{finished}"
        print(f"{tried} kills tried (seed {SEED}), every other one inside a checkpoint, all survived; "
              f"{finished} runs of {steps} steps on {ranks} ranks finished with the bits of the undisturbed one")

    def finish(self, run):
        self.train_well(*self.words_of_all, ranks=self.ranks, name=run)
        self.assertEqual(self.column("step", "steps", run), list(range(1, self.steps + 1)))
        self.assertEqual(self.losses(run), self.losses("calm"))
        self.assertEqual(self.column("loss", "validation", run), self.column("loss", "validation", "calm"))
        self.assert_whole(run, f"step-{self.steps:08d}", "calm")
        self.assertEqual(self.being_written(run), [])


class StartKills(FaultTest):
    """One rank without a launcher, killed while it starts, evaluates and saves."""
    WORDS = ("run.steps=6", "checkpoint.every_steps=2", "evaluate={every_steps: 1, batches: 40}")

    def begin(self):
        return subprocess.Popen([TRIREME, *self.words("run", self.WORDS)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace")

    def look_until(self, running, holds):
        """Polls without a pause until `holds` is true or the run has ended."""
        deadline = time.monotonic() + TIMEOUT_S
        while not holds() and running.poll() is None:
            self.assertLess(time.monotonic(), deadline)

    def kill(self, chance):
        """Kills a start at a random moment and returns what it aimed at."""
        aim = chance.choice(("start", "steps.jsonl", "run.h5", "evaluation", "checkpoint"))
        running = self.begin()
        before = set(self.checkpoints("run"))
        try:
            if aim in ("steps.jsonl", "run.h5"):
                self.look_until(running, lambda: os.path.exists(self.path(f"run/{aim}")))
            elif aim == "checkpoint":
                self.look_until(running, lambda: self.being_written("run") or set(self.checkpoints("run")) - before)
            elif aim == "evaluation":
                for line in running.stdout:  # the validation of a step follows this line
                    if "loss" in line:
                        break
            # The random moment of the kill.
            time.sleep(chance.random() * {"start": self.start_s, "steps.jsonl": 0.01, "run.h5": 0.01, "evaluation": self.start_s / 4, "checkpoint": 0.01}[aim])
        finally:
            running.kill()
            running.communicate(timeout=TIMEOUT_S)
        return aim if running.returncode == -signal.SIGKILL else "ended before"

    def test_kill_9_while_a_run_starts_evaluates_and_saves(self):
        begin = time.monotonic()
        self.train_well(*self.WORDS, name="calm")
        self.start_s = time.monotonic() - begin
        chance, counts = random.Random(SEED), {}
        while sum(counts.values()) - counts.get("ended before", 0) < FAULTS:
            for _ in range(chance.randrange(1, 5)):
                aim = self.kill(chance)
                counts[aim] = counts.get(aim, 0) + 1
            running = self.begin()
            out, err = running.communicate(timeout=TIMEOUT_S)
            self.assertEqual(running.returncode, 0, out + err)
            self.assertFalse(glob.glob(self.path("run/*damaged*")), out + err)
            self.assertEqual(self.column("step", "steps", "run"), list(range(1, 7)))
            self.assertEqual(self.losses("run"), self.losses("calm"))
            self.assertEqual(self.column("loss", "validation", "run")[-6:], self.column("loss", "validation", "calm")[-6:])
            self.assert_whole("run", "step-00000006", "calm")
            shutil.rmtree(self.path("run"))
        print(f"kills by what they were aimed at (seed {SEED}): {counts}; each run finished with the bits of the undisturbed one")


class Damage(FaultTest):
    """Files in the run directory that were changed after the run."""

    def setUp(self):
        super().setUp()
        self.train_well(ranks=2)
        self.checkpoint = self.path("run/checkpoints/step-00000012")

    def resume(self):
        return self.train("run.steps=14", ranks=2)

    def test_a_flipped_bit_is_found_named_and_the_previous_checkpoint_offered(self):
        chance = random.Random(SEED)
        files = sorted(os.listdir(self.checkpoint))
        self.assertEqual(files, ["manifest.h5", "manifest.xxh64", "rank-00000.h5", "rank-00001.h5"])
        for name in files:
            path = os.path.join(self.checkpoint, name)
            with open(path, "rb") as file:
                whole = file.read()
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
            with open(path, "wb") as file:
                file.write(damaged)
            self.assert_refused(self.resume(), USER, "manifest.h5" if name == "manifest.xxh64" else name,
                                "remove step-00000012 to resume from step-00000006")
            with open(path, "wb") as file:
                file.write(whole)
        print(f"{len(files)} flipped bits tried, {len(files)} found and named")
        # Follow the advice in the message.
        shutil.rmtree(self.checkpoint)
        self.assertIn("resumed from", self.resume().out)
        self.assertEqual(self.column("step", "steps"), list(range(1, 15)))

    def test_latest_is_only_a_hint(self):
        latest = self.path("run/checkpoints/latest")
        os.remove(latest)
        self.assertIn("step-00000012:", self.resume().out)
        with open(latest, "r+b") as file:
            self.assertEqual(file.read(), b"step-00000014\n")
            file.seek(12)
            file.write(b"5")  # a flipped bit
        run = self.train_well("run.steps=16", ranks=2)
        self.assertIn("step-00000014:", run.out)
        self.assertIn('latest names "step-00000015", but the newest checkpoint here is step-00000014', run.out + run.err)
        with open(latest, "rb") as file:
            self.assertEqual(file.read(), b"step-00000016\n")

    def test_a_record_older_than_the_checkpoint_keeps_its_gap_and_reports_it(self):
        log = self.path("run/steps.jsonl")
        with open(log, encoding="utf-8") as file:
            lines = file.readlines()
        last = next(number for number, line in enumerate(lines) if line.startswith('{"kind": "step", "step": 7,'))
        with open(log, "w", encoding="utf-8") as file:  # as after a power cut on a disk that ignores fsync
            file.writelines(lines[:last])
        run = self.resume()
        self.assertIn("step-00000012:", run.out)
        self.assertRegex(run.out + run.err, r"steps\.jsonl ends with step 6, before the checkpoint: the rows up to step 12 are missing")
        self.assertEqual(self.column("step", "steps"), [*range(1, 7), 13, 14])
        # A log without a readable line is moved aside. So is run.h5 if its log is missing.
        with open(log, "wb") as file:
            file.write(b"somebody's notes\n")
        run = self.train_well("run.steps=16", ranks=2)
        self.assertRegex(run.out + run.err, r"no line of \S*steps\.jsonl can be read: a new record begins with step 15")
        with open(log + ".damaged-1", "rb") as file:
            self.assertEqual(file.read(), b"somebody's notes\n")
        self.assertEqual(self.column("step", "steps"), [15, 16])
        self.assertEqual(self.column("first_step", "sessions"), [15])
        os.remove(log)
        run = self.train_well("run.steps=17", ranks=2)
        self.assertRegex(run.out + run.err, r"steps\.jsonl is not here: a new record begins with step 17\. Moved \S*run\.h5 to \S*run\.h5\.earlier-1")
        self.assertEqual(self.column("step", "steps"), [17])

    def test_damaged_lines_are_named_and_cost_themselves_alone(self):
        log = self.path("run/steps.jsonl")
        chance = random.Random(SEED)
        with open(log, "rb") as file:
            whole = file.read()
        for _ in range(FAULTS):
            damaged = bytearray(whole)
            at = chance.randrange(len(whole))
            damaged[at] ^= 1 << chance.randrange(8)
            with open(log, "wb") as file:
                file.write(damaged)
            shutil.rmtree(self.path("again"), ignore_errors=True)
            shutil.copytree(self.path("run"), self.path("again"), symlinks=True)
            run = self.train_well("run.steps=14", ranks=2, name="again")
            self.assertRegex(run.out + run.err, r"steps\.jsonl: lines? [0-9, ]+ damaged and skipped")
            steps = self.column("step", "steps", "again")
            self.assertGreaterEqual(len(steps), 12)
            self.assertEqual(steps, sorted(set(steps)))

    def test_a_run_file_that_is_damaged_or_anothers_is_made_again(self):
        """run.h5 is opened only if it is byte for byte what the run wrote, whether or not HDF5 can read it."""
        record = self.path("run/run.h5")
        with open(record, "rb") as file:
            whole = file.read()
        for number, damaged in enumerate((whole[: len(whole) // 2], b"", b"somebody's notes", whole[:-9] + b"x" + whole[-8:])):
            with open(record, "wb") as file:
                file.write(damaged)
            run = self.train_well(f"run.steps={14 + number}", ranks=2)
            self.assertRegex(run.out + run.err, r"run\.h5 was changed by another program\. It was moved to ")
            with open(f"{record}.changed-{number + 1}", "rb") as file:
                self.assertEqual(file.read(), damaged)
            self.assertEqual(self.column("step", "steps"), list(range(1, 15 + number)))
        os.remove(record)
        self.train_well("run.steps=17", ranks=2)  # the run is finished, but run.h5 is rebuilt
        self.assertEqual(self.column("step", "steps"), list(range(1, 18)))

    def test_a_checkpoint_under_another_name_is_not_believed(self):
        os.rename(self.checkpoint, self.path("run/checkpoints/step-00000099"))
        self.assert_refused(self.resume(), USER, "this directory is named step-00000099, and its manifest is of step 12",
                            "give it the name step-00000012 again")
        os.rename(self.path("run/checkpoints/step-00000099"), self.checkpoint)
        self.assertIn("step-00000012:", self.resume().out)

    def test_what_cannot_be_read_is_not_called_damaged(self):
        """A folder or a FIFO in place of a file: no hang, no advice to remove anything, and nothing is removed."""
        for name in ("run/steps.jsonl", "run/checkpoints/step-00000012/manifest.h5", "run/checkpoints/step-00000012/rank-00001.h5"):
            path = self.path(name)
            for make in (os.mkfifo, os.mkdir):
                with self.subTest(name=name, make=make.__name__):
                    os.rename(path, path + ".kept")
                    make(path)
                    run = self.resume()
                    self.assertIn(run.code, (USER, ENVIRONMENT), run)
                    self.assertEqual(len(run.errors), 1, run)
                    self.assertIn(os.path.basename(path), run.errors[0])
                    (os.rmdir if os.path.isdir(path) else os.remove)(path)
                    os.rename(path + ".kept", path)
        self.assertIn("step-00000012:", self.resume().out)

    def verify(self, environment=None):
        return Run(subprocess.run([TRIREME, "checkpoints", self.path("run"), "--verify"], capture_output=True, text=True,
                                  timeout=TIMEOUT_S, check=False, env={**os.environ, **(environment or {})}))

    def test_verify_distinguishes_damage_from_what_cannot_be_read(self):
        library = fail_call.compile_into(self.folder)
        for name in ("manifest.h5", "manifest.xxh64", "rank-00001.h5"):
            path = os.path.join(self.checkpoint, name)
            for call in ("open", "pread64"):
                with self.subTest(name=name, call=call):
                    run = self.verify({"LD_PRELOAD": library, "FAIL_UNDER": path, "FAIL_CALL": call, "FAIL_AT": "1", "FAIL_FOR": "0"})
                    self.assertEqual(run.code, ENVIRONMENT, run)
                    self.assertRegex(run.out, r"(?m)^ +6 .* verified$")
                    self.assertRegex(run.out, r"(?m)^ +12 .* unreadable$")
                    self.assertTrue(run.errors, run)
                    for line in run.errors:
                        self.assertRegex(line, name + ".*Input/output error")
                        self.assertNotRegex(line, "damaged|remove|checksum")
        os.truncate(self.path("run/checkpoints/step-00000006/rank-00000.h5"), 700)
        run = self.verify({"LD_PRELOAD": library, "FAIL_UNDER": path, "FAIL_CALL": "open", "FAIL_AT": "1", "FAIL_FOR": "0"})
        self.assertEqual(run.code, USER, run)  # damage takes precedence over an unreadable file
        self.assertRegex(run.out, r"(?m)^ +6 .* damaged$")
        self.assertRegex(run.out, r"(?m)^ +12 .* unreadable$")
        run = self.verify()
        self.assert_refused(run, USER, "step-00000006/rank-00000.h5", "has 700 bytes instead of")
        self.assertRegex(run.out, r"(?m)^ +12 .* verified$")

    def test_a_stale_temporary_directory_is_not_resumed_from_and_goes(self):
        shutil.copytree(self.checkpoint, self.path("run/checkpoints/step-00000013.tmp"))
        self.assertIn("step-00000012:", self.resume().out)
        self.assertEqual(self.being_written("run"), [])


if __name__ == "__main__":
    unittest.main()
