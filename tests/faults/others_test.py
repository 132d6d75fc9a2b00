# SPDX-License-Identifier: Apache-2.0
"""Other people's files, programs and jobs near a run: it does not touch their files, and they cannot damage the run without a message."""
import fcntl
import glob
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import unittest

import h5py

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import DECK, TIMEOUT_S, TRIREME, Run, TrainingTest, start  # noqa: E402

USER, ENVIRONMENT = 2, 3
RESTART = "run.restart_without_checkpoints=true"


class OthersTest(TrainingTest):
    def write(self, name, text="mine\n"):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def files(self, name):
        """Maps the path of every file in a folder to its contents."""
        found = {}
        for path in glob.glob(self.path(name) + "/**", recursive=True):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = file.read()
        return found

    def alone(self, *words, **environment):
        """Runs the executable without mpirun."""
        return Run(subprocess.run([TRIREME, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                                  timeout=TIMEOUT_S, env={**os.environ, **environment}, check=False))


class Files(OthersTest):
    """Files of others in directories that a run writes to."""

    def test_a_checkpoint_directory_with_other_files_is_refused(self):
        for name in ("thesis.tmp.d/chapter1", "results.tmp", "keep.txt", "step-100/model.bin"):
            self.write(f"scratch/{name}")
        before = self.files("scratch")
        with open(DECK, encoding="utf-8") as deck:
            text = deck.read().replace("checkpoint: {", f"checkpoint: {{directory: {self.path('scratch')}, ")
        deck = self.write("deck/deck.yaml", text)
        run = start(deck, f"run.directory={self.path('run')}", f"data.train.text=[{self.text}]", ranks=2)
        line = next(number for number, words in enumerate(text.splitlines(), 1) if words.startswith("checkpoint:"))
        for run in run, self.alone("check", deck, f"run.directory={self.path('run')}", f"data.train.text=[{self.text}]"):
            self.assert_refused(run, USER, f"deck.yaml:{line}:", "checkpoint.directory", "not checkpoints of trireme", self.path("scratch/checkpoints"))
        self.assertEqual(self.files("scratch"), before)

    def test_what_looks_like_a_leftover_and_is_not_stays(self):
        self.train_well()
        mine = self.path("run/checkpoints/step-00000012.tmp_mybackup")
        shutil.copytree(self.path("run/checkpoints/step-00000012"), mine)
        os.mkdir(self.path("run/checkpoints/step-00000003.tmp"))  # left by a save that was killed
        before = self.files("run/checkpoints/step-00000012.tmp_mybackup")
        self.train_well("run.steps=24", "checkpoint.keep=1")
        self.assertEqual(self.files("run/checkpoints/step-00000012.tmp_mybackup"), before)
        self.assertFalse(os.path.exists(self.path("run/checkpoints/step-00000003.tmp")))

    def test_drafts_of_token_caches_go_with_their_process(self):
        self.train_well()
        (cache,) = glob.glob(self.path("run/tokens/*.bin"))
        whole = glob.glob(self.path("run/tokens/*"))
        os.remove(cache)
        dead, live = self.write(f"run/tokens/{os.path.basename(cache)}.node7-4711.part"), f"{cache}.node7-4712.part"
        others = [self.write(f"run/tokens/{name}") for name in ("notes.part", f"{os.path.basename(cache)}.node7-x.part", "a.node7-4711.part")]
        with open(live, "w", encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.train_well("run.steps=14")
            self.assertEqual(sorted(glob.glob(self.path("run/tokens/*"))), sorted([*whole, live, *others]))
        self.assertFalse(os.path.exists(dead))

    def test_a_corpus_does_not_replace_shards_of_others(self):
        shard = self.write("out/edu_train_000000.bin", "tokens of another program")
        words = ["tokenize", "--tokenizer", "bytes", "--text", self.text, "--output", self.path("out/edu")]
        self.assert_refused(start(*words), USER, shard, "another --output")
        self.assertEqual(os.listdir(self.path("out")), ["edu_train_000000.bin"])
        os.remove(shard)
        self.assertEqual(start(*words).code, 0)

    def test_text_of_the_same_size_and_time_is_read_again(self):
        text = os.path.join(self.text, "a.txt")

        def losses(name):
            os.utime(text, ns=(0, 0))
            self.train_well("data.cache=" + self.path("cache"), name=name)
            return self.losses(name)
        first = losses("one")
        self.assertEqual(losses("same"), first)
        with open(text, encoding="ascii") as file:
            words = file.read()
        with open(text, "w", encoding="ascii") as file:
            file.write(words.replace("fox", "owl"))
        self.assertNotEqual(losses("other"), first)


class Missing(OthersTest):
    """Missing checkpoints: a run starts from step 0 only if it never had any, or on request."""

    def refused(self, run, *parts):
        self.assert_refused(run, ENVIRONMENT, self.path("run"), *parts, "bring them back", RESTART)

    def test_a_record_that_lists_checkpoints_is_not_set_aside(self):
        self.train_well(ranks=2)
        before = self.files("run")
        os.rename(self.path("run/checkpoints"), self.path("away"))
        self.refused(self.train("run.steps=24", ranks=2), "steps.jsonl lists checkpoints up to step 12")
        os.mkdir(self.path("run/checkpoints"))  # a purge removes files and keeps the directory
        self.refused(self.train("run.steps=24"), "steps.jsonl lists checkpoints up to step 12")
        os.rmdir(self.path("run/checkpoints"))
        os.rename(self.path("away"), self.path("run/checkpoints"))
        self.assertEqual({path for path, text in self.files("run").items() if text != before[path] and not path.endswith("/lock")}, set())
        self.assertIn("resumed from", self.train_well("run.steps=24").out)

    def test_a_link_that_leads_nowhere_is_named(self):
        elsewhere = f"checkpoint.directory={self.path('scratch')}"
        self.train_well(elsewhere)
        os.rename(self.path("scratch"), self.path("unmounted"))
        for words in ([elsewhere], []):
            self.refused(self.train("run.steps=24", *words), f"is a link to {self.path('scratch')}, which does not exist")
        self.assertFalse(os.path.exists(self.path("scratch")))
        os.rename(self.path("unmounted"), self.path("scratch"))
        self.assertIn("resumed from", self.train_well("run.steps=24", elsewhere).out)

    def test_a_checkpoint_that_a_killed_save_had_renamed_is_found(self):
        self.train_well("checkpoint.keep=1")
        checkpoint = self.path("run/checkpoints/step-00000012")
        os.rename(checkpoint, checkpoint + ".tmp.old")  # a save killed between its two renames (no RENAME_EXCHANGE)
        self.assertIn("resumed from", self.train_well("run.steps=18", "checkpoint.keep=1").out)

    def test_the_file_latest_tells_of_checkpoints_as_well(self):
        self.train_well()
        os.remove(self.path("run/steps.jsonl"))
        for name in glob.glob(self.path("run/checkpoints/step-*")):
            shutil.rmtree(name)
        self.refused(self.train(), "checkpoints/latest names a checkpoint")

    def test_step_0_on_request_and_no_advice_against_the_good_checkpoint(self):
        self.train_well()
        os.rename(self.path("run/checkpoints"), self.path("away"))
        run = self.train("run.steps=18", RESTART)
        self.assertEqual(run.code, 0, run)
        self.assertRegex(run.out + run.err, r"starting from step 0\. Moved the record of the earlier attempt \(12 steps\): .*attempt-1")
        shutil.rmtree(self.path("run/checkpoints"))
        os.rename(self.path("away"), self.path("run/checkpoints"))
        run = self.train("run.steps=18")
        self.assert_refused(run, USER, "checkpoint of run", "move steps.jsonl, run.h5 and run.id", "bring back its own")
        for name in ("steps.jsonl", "run.h5", "run.id"):
            os.rename(self.path(f"run/{name}"), self.path(name))
        for name in ("steps.jsonl", "run.h5"):
            os.rename(self.path(f"run/{name}.attempt-1"), self.path(f"run/{name}"))
        self.assertIn("resumed from", self.train_well("run.steps=18").out)
        self.assertEqual(self.column("step", "steps"), list(range(1, 19)))

    def test_a_run_that_never_had_a_checkpoint_starts_again(self):
        few = "checkpoint.every_steps=0"
        self.train_well(few)
        run = self.train("run.steps=24", few)
        self.assertEqual(run.code, 0, run)
        self.assertTrue(os.path.exists(self.path("run/run.h5.attempt-1")))


class Programs(OthersTest):
    """Other processes that access a running run."""

    def running(self):
        """Starts a run that saves often and continues until stop()."""
        running = self.popen("run.steps=1000000", "checkpoint.every_steps=5", "checkpoint.keep=1", "evaluate.every_steps=0")
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=lambda: [self.lines.put(line) for line in running.stdout])
        self.reader.start()
        self.wait_for_checkpoints(1)
        return running

    def wait_for_checkpoints(self, number):
        while number > 0:
            number -= "  checkpoint " in self.lines.get(timeout=TIMEOUT_S)

    def stop(self, running):
        with open(self.path("run/lock"), encoding="utf-8") as file:
            os.kill(int(file.read().split()[1]), signal.SIGUSR2)
        self.assertEqual(running.wait(TIMEOUT_S), 75)
        self.reader.join()

    def test_a_second_run_is_refused_when_the_lock_was_purged(self):
        running = self.running()
        os.remove(self.path("run/lock"))
        self.assert_refused(self.train(), USER, "run.directory is in use")
        self.wait_for_checkpoints(30)
        self.stop(running)  # uses the lock file that the run recreated
        with h5py.File(self.path("run/run.h5"), "r") as file:
            steps = list(file["steps/step"][:])
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def test_what_others_make_of_run_h5_harms_nothing(self):
        running = self.running()
        with h5py.File(self.path("run/run.h5"), "r+") as file:  # it is open and locked when the run replaces it
            file.attrs["note"] = "mine"
            self.wait_for_checkpoints(30)
        os.truncate(self.path("run/run.h5"), 100)
        self.stop(running)
        steps = self.column("step", "steps")
        self.assertEqual(steps, list(range(1, len(steps) + 1)))

    def test_readers_never_take_a_pruned_checkpoint_for_a_damaged_one(self):
        def read(*words):
            run = self.alone(*words)
            while run.code == ENVIRONMENT and "removed it while it was being read, for the third time. Repeat the command" in run.err:
                run = self.alone(*words)  # happens on a busy machine
            self.assertEqual(run.code, 0, run)
            return run

        running = self.running()
        for number in range(5):
            read("export", self.path("run"), "--format", "huggingface", "--output", self.path(f"out{number}"))
            shutil.rmtree(self.path(f"out{number}"))
            read("import", self.path("run"), "--output", self.path(f"in{number}"))
        read("sample", self.path("run"), "--tokens", "2")
        run = read("checkpoints", self.path("run"), "--verify", "--json", "-")
        self.assertNotIn("damaged", {one["state"] for one in json.loads(run.out)["checkpoints"]})
        self.stop(running)


class Launchers(OthersTest):
    def test_processes_that_mpi_does_not_connect_do_not_train_alone(self):
        run = self.alone(*self.words("run", []), PMI_SIZE="2", PMI_RANK="0")
        self.assert_refused(run, ENVIRONMENT, "a launcher with PMI started 2 processes, but MPI connects 1 of them", "mpirun")
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    unittest.main()
