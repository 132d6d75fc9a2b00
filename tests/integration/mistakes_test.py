# SPDX-License-Identifier: Apache-2.0
"""Bad input and a bad environment cause one clear error line and the right exit code, without a hang or overwritten files."""
import fcntl
import glob
import os
import shlex
import shutil
import struct
import subprocess
import unittest
import unittest.mock

import h5py

from harness import DECK, FLAGS, MPIRUN, TIMEOUT_S, TRIREME, Run, TrainingTest, launch, rank_in_shell, start

USER, ENVIRONMENT = 2, 3


def xxh64(data):
    """XXH64 with seed 0, written from its specification."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
    whole = (1 << 64) - 1

    def rotated(x, by):
        return (x << by | x >> (64 - by)) & whole

    def mixed(lane, word):
        return rotated((lane + word * p2) & whole, 31) * p1 & whole

    at = len(data) // 32 * 32
    hashed = p5
    if at:
        lanes = [(p1 + p2) & whole, p2, 0, -p1 & whole]
        for stripe in struct.iter_unpack("<4Q", data[:at]):
            lanes = [mixed(lane, word) for lane, word in zip(lanes, stripe)]
        hashed = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & whole
        for lane in lanes:
            hashed = ((hashed ^ mixed(0, lane)) * p1 + p4) & whole
    hashed = (hashed + len(data)) & whole
    for size, code in ((8, "<Q"), (4, "<I"), (1, "<B")):
        while len(data) - at >= size:
            (word,) = struct.unpack_from(code, data, at)
            at += size
            if size == 8:
                hashed = (rotated(hashed ^ mixed(0, word), 27) * p1 + p4) & whole
            elif size == 4:
                hashed = (rotated(hashed ^ word * p1 & whole, 23) * p2 + p3) & whole
            else:
                hashed = rotated(hashed ^ word * p5 & whole, 11) * p1 & whole
    hashed = (hashed ^ hashed >> 33) * p2 & whole
    hashed = (hashed ^ hashed >> 29) * p3 & whole
    return hashed ^ hashed >> 32


class Sources(TrainingTest):
    """Decks and data."""

    def test_a_verb_of_one_process_on_two_ranks(self):
        run = start("record", self.path("run"), ranks=2)
        self.assertEqual(run.code, USER, run)
        self.assertEqual(len(run.errors), 1, run)
        self.assertRegex(run.errors[0], "`trireme record` runs in one process, but .* started 2. Start it without a launcher$")
        in_script = subprocess.run([*launch(2)[:-1], "sh", "-c", f"{TRIREME} help deck run.steps; exit $?"], stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual((in_script.returncode, in_script.stdout.count("Total number of optimizer steps")), (0, 2), in_script)

    def test_a_missing_deck(self):
        for ranks in (1, 2):
            run = start(self.path("nope.yaml"), ranks=ranks)
            self.assert_refused(run, USER, "nope.yaml", "No such file")

    def test_an_empty_deck(self):
        open(self.path("empty.yaml"), "w", encoding="ascii").close()
        run = start(self.path("empty.yaml"), ranks=2)
        self.assertEqual(run.code, USER, run)
        self.assertIn("empty.yaml", run.errors[0])

    def test_several_mistakes_are_reported_at_once_by_one_rank(self):
        run = self.train("run.steps=0", "model.heads=3", "optimizer.clip_norm=.nan", ranks=3)
        self.assertEqual(run.code, USER, run)
        told = "\n".join(run.errors)
        for part in ("run.steps", "model.heads", "optimizer.clip_norm"):
            self.assertIn(part, told)
        self.assertEqual(len(run.errors), len(set(run.errors)), run)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_wrong_option_is_reported_by_one_rank(self):
        run = start("verify", *self.words("run", []), "--steps", "0", ranks=3)
        self.assert_refused(run, USER, "--steps: Value 0 not in range")
        self.assertEqual(run.err.count("usage: "), 1, run)

    def words_with(self, text):
        return [DECK, f"run.directory={self.path('run')}", f"data.train.text=[{text}]"]

    def test_text_that_is_not_there(self):
        words = self.words_with(self.path("gone.txt"))
        run = start(*words, ranks=2)
        self.assert_refused(run, USER, "gone.txt", "No such file", "command line:2:")
        self.assertEqual(run.errors, start("check", *words).errors)

    def test_text_that_cannot_be_read(self):
        run = start(*self.words_with("/proc/self/mem"), ranks=2)
        self.assert_refused(run, USER, "/proc/self/mem' is empty")

    def test_an_empty_text_file(self):
        empty = self.path("empty.txt")
        open(empty, "w", encoding="ascii").close()
        run = start(*self.words_with(empty), ranks=2)
        self.assert_refused(run, USER, "is empty")

    def test_a_directory_without_text(self):
        os.mkdir(self.path("bare"))
        run = start(*self.words_with(self.path("bare")), ranks=2)
        self.assert_refused(run, USER, "bare", "contains no text file")

    def test_more_ranks_than_sequences(self):
        run = self.train("batch.sequences=2", "batch.equal_ranks=true", ranks=3)
        self.assertEqual(run.code, USER, run)
        self.assertTrue(all("batch." in line for line in run.errors), run)
        self.assertLessEqual(len(run.errors), 2, run)

    def test_text_shorter_than_a_batch(self):
        with open(self.path("short.txt"), "w", encoding="ascii") as out:
            out.write("too short")
        run = start(*self.words_with(self.path("short.txt")), ranks=2)
        self.assertEqual(run.code, USER, run)
        self.assertIn("tiny.yaml:5:3: error: data.train: 8 training tokens make 0 sequences", run.err)

    def test_a_vocabulary_that_does_not_hold_bytes(self):
        run = self.train("model.vocabulary=100", ranks=2)
        self.assertEqual(run.code, USER, run)
        self.assertIn("model.vocabulary", run.errors[0])


class Disagreement(TrainingTest):
    """Ranks with different options, data or directories."""

    def train_each(self, *words_of_ranks, prefixes=None):
        """Each argument is the command line of one rank. A shell selects it by rank, because with `:` between command lines mpirun of Open
        MPI 5.0.7 (Debian 13) crashes with any program (open-mpi/ompi#13303)."""
        choices = "".join(f" {rank}) exec {shlex.join([*(prefixes[rank] if prefixes else []), TRIREME, *own])} ;;"
                          for rank, own in enumerate(words_of_ranks))
        words = [MPIRUN, *FLAGS, str(len(words_of_ranks)), "bash", "-c", f"case {rank_in_shell()} in{choices} esac"]
        return Run(subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
                                  check=False))

    def test_keys_that_differ_are_named_with_their_ranks(self):
        for key, first, second in (("run.seed", "1", "2"), ("run.precision", "fp32", "bf16"), ("parallel.shard", "optimizer", "none")):
            with self.subTest(key=key):
                run = self.train_each(self.words("run", [f"{key}={first}"]), self.words("run", [f"{key}={second}"]))
                self.assert_refused(run, USER, f"{key}: differs between ranks", "on rank 0", "on rank 1")

    def test_options_and_verbs_of_tokenizers_that_differ(self):
        common = ["--text", self.text, "--output", self.path("out")]

        def learn(vocabulary, threads="1"):
            return ["tokenizer", "train", *common, "--vocabulary", vocabulary, "--threads", threads]
        run = self.train_each(learn("300"), learn("301"))
        self.assert_refused(run, USER, "--vocabulary: differs between ranks: 300 on rank 0, 301 on rank 1")
        run = self.train_each(["tokenize", "--tokenizer", "bytes", *common], learn("300"))
        self.assertEqual(run.code, USER, run)
        self.assertIn("verb: differs between ranks: tokenize on rank 0, tokenizer train on rank 1", run.errors[0], run)
        self.assertEqual(os.listdir(self.folder), ["text"])
        run = self.train_each(learn("300"), learn("300", threads="2"))  # the number of threads may differ between ranks
        self.assertEqual(run.code, 0, run)

    def test_another_verb_on_one_rank_is_named(self):
        for verb, words in (("doctor", ["doctor"]), ("sample", ["sample", self.path("run")])):
            run = self.train_each(self.words("run", []), words)
            self.assert_refused(run, USER, f"verb: differs between ranks: train on rank 0, {verb} on rank 1")

    @unittest.skipUnless("Open MPI v" in subprocess.run([TRIREME, "--version"], capture_output=True, text=True, check=False).stdout,
                         "the launcher of another MPI may end the job on its own")
    def test_another_program_on_one_rank_ends_the_start(self):
        with unittest.mock.patch.dict(os.environ, TRIREME_START_DEADLINE="2"):
            run = self.train_each(self.words("run", []), [], prefixes=[[], ["true"]])
        self.assert_refused(run, ENVIRONMENT, "[rank 0", "MPI_Init has not ended within 2 s", "Start trireme as every rank")

    def test_a_mistake_on_one_rank_only(self):
        run = self.train_each(self.words("run", []), self.words("run", ["run.sed=2"]))
        self.assert_refused(run, USER, "unknown key", "run.sed")

    def test_data_that_differ_between_hosts(self):
        """Rank 1 sees other tokens under the same path."""
        self.need_own_mounts()
        for number in (0, 1):
            header = struct.pack("<256i", 20240520, 1, 20000, *[0] * 253)
            with open(self.path(f"shard-{number}.bin"), "wb") as out:
                out.write(header + b"".join(struct.pack("<H", (i * 31 + (number if i == 19000 else 0)) % 251) for i in range(20000)))
        hide = ["unshare", "-m", "bash", "-c", f"mount --bind {self.path('shard-1.bin')} {self.path('shard-0.bin')} && exec \"$@\"", "bash"]
        with open(DECK, encoding="utf-8") as deck, open(self.path("deck.yaml"), "w", encoding="utf-8") as out:
            out.write(deck.read().replace("text: [unset]", f"tokens: [{self.path('shard-0.bin')}]"))
        words = [self.path("deck.yaml"), f"run.directory={self.path('run')}", "model.vocabulary=256"]
        run = self.train_each(words, words, prefixes=[[], hide])
        self.assert_refused(run, ENVIRONMENT, "[rank 1", "shard-0.bin", "or differs from that of rank 0")

    def test_a_run_directory_that_ranks_do_not_share(self):
        """Detected before the first step, not at the first checkpoint."""
        words = [word.replace(self.path("run"), "run") for word in self.words("run", [f"data.cache={self.path('tokens')}"])]
        places = [self.path(str(rank)) for rank in (0, 1)]
        for place in places:
            os.mkdir(place)
        run = self.train_each(words, words, prefixes=[["env", "-C", place] for place in places])
        self.assert_refused(run, ENVIRONMENT, "[rank 1", f"run.directory run failed: it is {places[1]}/run for this rank", "working directory")
        self.assertNotIn("step", run.out)
        self.need_own_mounts()
        hide = ["unshare", "-m", "bash", "-c", f"mount -t tmpfs none {places[0]} && exec \"$@\"", "bash"]
        words = self.words("0/run", [f"data.cache={self.path('tokens')}"])
        run = self.train_each(words, words, prefixes=[[], hide])
        self.assert_refused(run, ENVIRONMENT, "[rank 1", "is not the directory that rank 0 uses. Choose one that all hosts share")


class Leftovers(TrainingTest):
    """Files of an earlier run that are damaged or belong to something else."""

    def setUp(self):
        super().setUp()
        self.train_well(ranks=2)

    def cache(self):
        (path,) = glob.glob(self.path("run/tokens/*.bin"))
        return path

    def newest(self, name):
        return self.path(f"run/checkpoints/step-00000012/{name}")

    def refused_without_a_trace(self, *overrides, parts=()):
        """The start fails, and no file has changed."""
        def fingerprint():
            return {os.path.join(at, name): os.stat(os.path.join(at, name)).st_mtime_ns
                    for at, _, names in os.walk(self.path("run")) for name in names if name not in ("lock", "log.txt")}
        before = fingerprint()
        run = self.train("run.steps=18", *overrides, ranks=2)
        self.assert_refused(run, USER, *parts)
        self.assertEqual(fingerprint(), before)

    def test_a_damaged_token_cache_is_made_again_with_a_line(self):
        with open(self.cache(), "rb") as file:
            whole = file.read()
        for steps, damaged in enumerate((whole[:len(whole) // 2], whole[:8] + bytes([whole[8] ^ 0x40]) + whole[9:]), start=16):
            with self.subTest(len(damaged)):
                with open(self.cache(), "wb") as file:
                    file.write(damaged)
                run = self.train_well(f"run.steps={steps}", ranks=2)
                self.assertRegex(run.out + run.err, "_manifest.json: a shard is missing, or has another size or header.*encoding the text again")
                with open(self.cache(), "rb") as file:
                    self.assertEqual(file.read(), whole)

    def test_a_token_cache_with_other_tokens_is_named(self):
        with open(self.cache(), "rb") as file:
            whole = file.read()
        with open(self.cache(), "wb") as file:
            file.write(whole[:1024] + bytes(byte ^ 1 for byte in whole[1024:]))
        run = self.train("run.steps=18")
        self.assert_refused(run, ENVIRONMENT, self.cache(), "do not match their hash", "remove it if it is a cache of text")
        os.remove(self.cache())
        self.train_well("run.steps=18", ranks=2)

    def test_a_truncated_checkpoint(self):
        for name in ("rank-00001.h5", "manifest.h5"):
            with self.subTest(name):
                whole = self.newest(name) + ".whole"
                shutil.copy2(self.newest(name), whole)
                os.truncate(self.newest(name), os.path.getsize(whole) // 2)
                self.refused_without_a_trace(parts=["step-00000012", "step-00000006"])
                os.replace(whole, self.newest(name))

    def test_a_checkpoint_that_somebody_changed(self):
        with h5py.File(self.newest("manifest.h5"), "r+") as file:
            file.attrs["next_sample"] = 7
        self.refused_without_a_trace(parts=["manifest.h5", "step-00000006"])

    def test_a_checkpoint_of_another_format_version(self):
        with h5py.File(self.newest("manifest.h5"), "r+") as file:
            file.attrs["version"] = [file.attrs["version"][0] + 1, 0]
        # Intact, but with another version: the checksum is adapted.
        with open(self.newest("manifest.h5"), "rb") as file:
            digest = xxh64(file.read())
        with open(self.newest("manifest.xxh64"), "w", encoding="ascii") as out:
            out.write(f"{digest:016x}  manifest.h5\n")
        self.refused_without_a_trace(parts=["manifest.h5", "checkpoint format 3.0", "reads format 2.x"])

    def test_a_checkpoint_of_another_model(self):
        self.refused_without_a_trace("model.channels=64", parts=["channels", "32", "64"])

    def test_a_checkpoint_of_another_seed(self):
        self.refused_without_a_trace("run.seed=8", parts=["run.seed", "7", "8"])

    def test_all_that_a_resume_refuses_is_named_at_once_also_by_check(self):
        changes = ["run.steps=18", "model.channels=64", "model.layers=3", "run.seed=8", "batch.sequences=24"]
        parts = ["model.channels: 64 here", "model.layers: 3 here", "run.seed: 8 here", "batch.sequences: 24 here"]
        said = []
        for verb in ((), ("check",)):
            refused = start(*verb, *self.words("run", changes), ranks=2 - len(verb))
            self.assertEqual((refused.code, len(refused.errors)), (USER, len(parts)), refused)
            for part in parts:
                self.assertIn(part, refused.err)
            said.append(sorted(refused.errors))
        self.assertEqual(said[0], said[1], "with the places of the keys, however they are found")
        self.assertEqual(start("check", *self.words("run", changes[:1])).code, 0)

    def test_weights_of_another_shape_and_seed_are_refused_by_check_as_well(self):
        folder, imported = self.path("weights"), self.path("imported")
        for words in (("export", self.path("run"), "--format", "huggingface", "--output", folder), ("import", folder, "--output", imported)):
            done = start(*words)
            self.assertEqual(done.code, 0, done)
        for override, part in (("model.layers=3", "layers is 2 there and 3 in this run"), ("run.seed=8", "run.seed: 8 here")):
            for verb in ((), ("check",)):
                deck = self.words("imported", ("model.vocabulary=256", "run.seed=1337")[:1 if "seed" in override else 2])
                self.assert_refused(start(*verb, *deck, override), USER, part)

    def test_a_checkpoint_of_another_precision(self):
        self.refused_without_a_trace("run.precision=bf16", parts=["run.precision: bf16 here", "run.precision=fp32"])
        run = self.train_well("run.steps=18", "run.precision=fp32", ranks=2)
        self.assertIn("resumed from", run.out)


class Disks(TrainingTest):
    """File systems that report errors."""

    def mounted(self, options):
        """Prefix of a command that runs it in a private mount namespace, with a file system mounted on self.path('disk')."""
        self.need_own_mounts()
        os.mkdir(self.path("disk"))
        return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} none "{self.path("disk")}" && exec "$@"', "sh")

    def test_a_file_in_the_place_of_the_run_directory(self):
        with open(self.path("run"), "w", encoding="ascii") as out:
            out.write("mine")
        run = self.train(ranks=2)
        self.assert_refused(run, USER, self.path("run"))
        with open(self.path("run"), encoding="ascii") as kept:
            self.assertEqual(kept.read(), "mine")

    def test_a_read_only_run_directory(self):
        run = self.train(name="disk/run", prefix=self.mounted("ro"), ranks=2)
        self.assert_refused(run, ENVIRONMENT, "disk/run", "Read-only file system")

    def test_a_full_disk(self):
        prefix = self.mounted("size=1m")
        for asynchronous in ("true", "false"):
            with self.subTest(asynchronous=asynchronous):
                run = self.train("run.steps=400", "checkpoint.every_steps=5", "checkpoint.keep=0",
                                 f"checkpoint.asynchronous={asynchronous}", name="disk/run", prefix=prefix, ranks=2)
                self.assert_refused(run, ENVIRONMENT, "No space left on device")

    def test_two_runs_on_one_directory(self):
        holder = self.path("run")
        os.mkdir(holder)
        with open(os.path.join(holder, "lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            run = self.train(ranks=2)
        self.assert_refused(run, USER, holder)


if __name__ == "__main__":
    unittest.main()
