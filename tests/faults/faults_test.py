# SPDX-License-Identifier: Apache-2.0
"""Kills ranks at random moments and damages what they left behind; the run must go on as if nothing had happened.

TRIREME_FAULTS says how many kills are tried (default 8); TRIREME_FAULT_SEED picks the moments (default 1).
    cd tests/faults; TRIREME_FAULTS=50 python3 -m unittest -v faults_test.Kills     with the variables of tests/integration
"""
import glob
import os
import random
import re
import shutil
import signal
import sys
import time
import unittest

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import TIMEOUT_S, TRIREME, TrainingTest  # noqa: E402

USER, ENVIRONMENT = 2, 3
FAULTS = int(os.environ.get("TRIREME_FAULTS", "8"))
SEED = int(os.environ.get("TRIREME_FAULT_SEED", "1"))
RANKS = 3
STEPS = 240
# Files large enough that a kill finds them half-written, and a checkpoint every 8 steps.
RUN = (f"run.steps={STEPS}", "model.channels=96", "checkpoint.every_steps=8", "checkpoint.keep=0", "evaluate.every_steps=40",
       "record.every_steps=1")


def ranks_of(launcher):
    """Process ids of the ranks that this mpirun started."""
    found = []
    for path in glob.glob(f"/proc/{launcher.pid}/task/*/children"):
        try:
            with open(path, encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
        except OSError:
            pass
    return [pid for pid in found if runs_trireme(pid)]


def runs_trireme(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(TRIREME)
    except OSError:
        return False


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return int(re.search(rb"\0OMPI_COMM_WORLD_RANK=(\d+)", file.read()).group(1))


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class FaultTest(TrainingTest):
    def checkpoints(self, run):
        """Directories that claim to be whole, oldest first."""
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
        """Its data, as h5py reads them, are those of the undisturbed run."""
        self.assertEqual(self.hashes(run, checkpoint), self.hashes(reference, checkpoint), checkpoint)
        step = int(checkpoint[5:])
        self.assertEqual(self.weights(step, run), self.weights(step, reference), checkpoint)


class Kills(FaultTest):
    def start(self, run):
        running = self.popen(*RUN, ranks=RANKS, name=run)
        resumed = None
        for line in running.stdout:
            found = re.search(r"resumed from \S*/(step-\d+):", line)
            resumed = found.group(1) if found else resumed
            if "step " in line and "/" in line and "loss" in line:
                return running, resumed
        self.fail(f"the run did not start: {running.stderr.read()}")

    def strike(self, running, run, chance, inside):
        """Kills one rank or all of them: a random while after a checkpoint has begun, or at the first moment after a random one
        when none is being written. Whether the run was still going, and whether it was writing a checkpoint then."""
        one_rank = chance.random() < 0.5
        deadline = time.monotonic() + TIMEOUT_S
        if inside:
            for _ in range(chance.randrange(1, 5)):  # not always the first one
                while self.being_written(run) and running.poll() is None:
                    pass
                while not self.being_written(run) and running.poll() is None and time.monotonic() < deadline:
                    pass
            time.sleep(chance.random() * self.writing_s)  # the moment of the kill is what is varied here
        else:
            time.sleep(chance.random() * self.whole_s / 4)
        ranks = ranks_of(running)
        while not inside and self.being_written(run) and running.poll() is None and time.monotonic() < deadline:
            pass
        kill([chance.choice(ranks)] if one_rank and ranks else [*ranks, running.pid])
        going = running.poll() is None or running.returncode != 0
        running.communicate(timeout=TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while any(runs_trireme(pid) for pid in ranks) and time.monotonic() < deadline:
            time.sleep(0.01)  # between two looks: orphans end when they miss their launcher
        kill(ranks)
        return going, bool(self.being_written(run))

    def test_kill_9_at_random_moments(self):
        begin = time.monotonic()
        self.train_well(*RUN, ranks=RANKS, name="calm")
        self.whole_s = time.monotonic() - begin
        writing = sorted(self.column("write_s", "checkpoints", "calm"))
        self.writing_s = writing[len(writing) // 2]
        chance = random.Random(SEED)
        tried = inside_tried = finished = 0
        run, verified = "run0", set()

        def enough():  # of both kinds; a blow that fell on the other side counts there
            return min(inside_tried, tried - inside_tried) >= FAULTS // 2

        while not enough():
            self.assertLess(tried, 3 * FAULTS, f"{inside_tried} inside a checkpoint: one of the two is hardly ever hit")
            before = self.checkpoints(run)
            running, resumed = self.start(run)
            self.assertEqual(resumed, before[-1] if before else None, "it resumes from the newest whole checkpoint")
            going, inside = self.strike(running, run, chance, inside=2 * inside_tried <= tried)
            after = self.checkpoints(run)
            self.assertEqual(after[:len(before)], before, "an older checkpoint is lost")
            for checkpoint in after:
                if (run, checkpoint) not in verified:
                    self.assert_whole(run, checkpoint, "calm")
                    verified.add((run, checkpoint))
            if going:
                tried += 1
                inside_tried += inside
            if after and after[-1] == f"step-{STEPS:08d}" or enough():
                self.finish(run)
                finished += 1
                shutil.rmtree(self.path(run))
                run = f"run{finished}"
        print(f"{tried} kills tried (seed {SEED}), {inside_tried} of them inside a checkpoint, all survived; "
              f"{finished} runs of {STEPS} steps on {RANKS} ranks finished with the bits of the undisturbed one")

    def finish(self, run):
        self.train_well(*RUN, ranks=RANKS, name=run)
        self.assertEqual(self.column("step", "steps", run), list(range(1, STEPS + 1)))
        self.assertEqual(self.losses(run), self.losses("calm"))
        self.assertEqual(self.column("loss", "validation", run), self.column("loss", "validation", "calm"))
        self.assert_whole(run, f"step-{STEPS:08d}", "calm")
        self.assertEqual(self.being_written(run), [])


class Damage(FaultTest):
    """What lies in the directory is not as the run left it."""

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
                                "remove step-00000012 to go on from step-00000006")
            with open(path, "wb") as file:
                file.write(whole)
        print(f"{len(files)} flipped bits tried, {len(files)} found and named")
        # The way out that was offered.
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

    def test_a_record_older_than_the_checkpoint_keeps_its_gap_and_says_so(self):
        record = self.path("run/run.h5")
        self.train_well("run.steps=6", ranks=2, name="short")
        shutil.copy(self.path("short/run.h5"), record)  # as after a power cut on a disk that lied
        run = self.resume()
        self.assertIn("step-00000012:", run.out)
        self.assertRegex(run.out + run.err, r"run\.h5 ends with step 6, before the checkpoint: the rows up to step 12 are missing")
        self.assertEqual(self.column("step", "steps"), [*range(1, 7), 13, 14])
        # A damaged one is refused, and once it is moved away, as the refusal says, the run goes on.
        os.truncate(record, os.path.getsize(record) // 2)
        self.assert_refused(self.train("run.steps=16", ranks=2), USER, "run.h5", "move it away, and the run goes on with a new record")
        os.remove(record)
        self.assertEqual(self.train_well("run.steps=16", ranks=2).code, 0)
        self.assertEqual(self.column("step", "steps"), [15, 16])
        self.assertEqual(self.column("first_step", "sessions"), [15])

    def test_a_stale_temporary_directory_is_not_resumed_from_and_goes(self):
        shutil.copytree(self.checkpoint, self.path("run/checkpoints/step-00000013.tmp"))
        self.assertIn("step-00000012:", self.resume().out)
        self.assertEqual(self.being_written("run"), [])


class Standstill(FaultTest):
    def test_a_rank_that_hangs_ends_the_run_in_words_that_name_it(self):
        for transport in ("shared_memory", "mpi"):
            with self.subTest(transport=transport):
                running = self.popen(*RUN, f"parallel.transport={transport}", "parallel.deadline=3", ranks=RANKS, name=transport)
                self.wait_for_line(running, "step     10/")
                hanging = [pid for pid in ranks_of(running) if rank_of(pid) == 1]
                self.assertEqual(len(hanging), 1)
                os.kill(hanging[0], signal.SIGSTOP)
                try:
                    said = running.communicate(timeout=TIMEOUT_S)
                finally:
                    kill(hanging)
                self.assertEqual(running.returncode, ENVIRONMENT, said)
                self.assertRegex(said[1], r"error: .*rank 1\b")


if __name__ == "__main__":
    unittest.main()
