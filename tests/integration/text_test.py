# SPDX-License-Identifier: Apache-2.0
"""From text to tokens, shards, a model and a sample: tokenizers, `trireme tokenize`, mixtures, bits per byte."""
import gzip
import hashlib
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import time

import h5py

from harness import DECK, TIMEOUT_S, TRIREME, TrainingTest, start

MERGES = ["t h", "th e", "q u", "qu i", "qui c", "quic k", "o x", "o v", "\u0120 the", "b r", "br o", "d o", "do g", "dog s", "j u", "m p"]


def write_tokenizer(directory, merges=MERGES):
    """Writes a tokenizer.json for bytes, some merges and an end of text."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    vocabulary = {letter: i for i, letter in enumerate(alphabet)}
    for merge in merges:
        vocabulary.setdefault(merge.replace(" ", ""), len(vocabulary))
    end = len(vocabulary)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump({"version": "1.0", "truncation": None, "padding": None,
                   "added_tokens": [{"id": end, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": True}],
                   "normalizer": None,
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                   "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                   "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                             "merges": merges}}, out)
    return end


def shard_tokens(path):
    with open(path, "rb") as file:
        magic, version, count = struct.unpack("<3i", file.read(12))
        file.seek(1024)
        assert (magic, version) == (20240520, 1)
        return list(struct.unpack(f"<{count}H", file.read()))


class Tokenized(TrainingTest):
    def setUp(self):
        super().setUp()
        self.tokenizer = self.path("tokenizer")
        self.end = write_tokenizer(self.tokenizer)
        self.with_tokenizer = f"data.tokenizer={self.tokenizer}"

    def test_a_vocabulary_is_the_same_on_every_number_of_ranks(self):
        self.many_texts()
        with open(os.path.join(self.text, "large.txt"), "w", encoding="ascii") as out:  # large enough to be divided among ranks
            for line in range(60000):
                out.write(f"line {line} of many, and {line * line % 1009} words in it\n")

        def trained(ranks, *options):
            output = self.path(f"vocabulary-{ranks}-{len(options)}")
            done = start("tokenizer", "train", "--text", self.text, "--vocabulary", "400", "--output", output, *options, ranks=ranks)
            self.assertEqual(done.code, 0, done)
            contents = {}
            for name in sorted(os.listdir(output)):
                with open(os.path.join(output, name), "rb") as file:
                    contents[name] = file.read()
            self.assertEqual(sorted(contents), ["merges.txt", "tokenizer.json", "training.json", "vocab.json"])
            return contents
        first = trained(1)
        self.assertEqual(len(json.loads(first["vocab.json"])), 400)
        for ranks in (2, 3):
            self.assertEqual(trained(ranks), first)
        self.tokenizer = self.path("vocabulary-1-0")
        self.tokenize_well("of-400", ranks=2)
        again = start("tokenizer", "train", "--text", self.text, "--vocabulary", "400", "--output", self.tokenizer)
        self.assert_refused(again, 2, self.tokenizer)

    def test_a_vocabulary_is_that_of_the_text_however_it_is_packed(self):
        self.many_texts(6)
        os.mkdir(self.path("packed"))
        documents = []
        for name in sorted(os.listdir(self.text)):
            with open(os.path.join(self.text, name), encoding="ascii") as file:
                documents.append(file.read())
        for i, text in enumerate(documents):
            if i % 2:
                with gzip.open(self.path(f"packed/{i}.txt.gz"), "wt", encoding="ascii") as out:
                    out.write(text)
            else:
                with open(self.path(f"packed/{i}.txt"), "w", encoding="ascii") as out:
                    out.write(text)
        with gzip.open(self.path("lines.jsonl.gz"), "wt", encoding="ascii") as out:
            out.writelines(json.dumps({"id": i, "body": text}) + "\n" for i, text in enumerate(documents))
        contents = []
        for number, (text, *options) in enumerate(((self.text,), (self.path("packed"),), (self.path("pac*d/*"),),
                                                   (self.path("lines.jsonl.gz"), "--field", "body"))):
            output = self.path(f"of-{number}")
            done = start("tokenizer", "train", "--text", text, "--vocabulary", "400", "--output", output, *options, ranks=2)
            self.assertEqual(done.code, 0, done)
            contents.append({})
            for name in sorted(os.listdir(output)):
                with open(os.path.join(output, name), "rb") as file:
                    contents[-1][name] = file.read()
            self.assertEqual(contents[-1], contents[0], text)
        refused = start("tokenizer", "train", "--text", self.path("lines.jsonl.gz"), "--field", "text", "--vocabulary", "400", "--output",
                        self.path("none"), ranks=2)
        self.assert_refused(refused, 2, "lines.jsonl.gz:1:1: error: the line has no key 'text'")
        self.assertFalse(os.path.exists(self.path("none")))

    def tokenize(self, output, *options, ranks=1, text=None):
        return start("tokenize", "--tokenizer", self.tokenizer, "--text", text or self.text, "--output", self.path(output), *options,
                     ranks=ranks)

    def tokenize_well(self, *arguments, **keywords):
        done = self.tokenize(*arguments, **keywords)
        self.assertEqual(done.code, 0, done)
        return done

    def begin_tokenize(self, output, *options):
        """Starts the process without mpirun, because killing mpirun would not end its rank."""
        return subprocess.Popen([TRIREME, "tokenize", "--tokenizer", self.tokenizer, "--text", self.text, "--output", self.path(output),
                                 *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def begin_and_halt(self, output, *options):
        """Starts the process and halts it with SIGSTOP between finding its text and its end."""
        running = self.begin_tokenize(output, *options)
        deadline = time.monotonic() + TIMEOUT_S
        while not os.path.exists(self.path(output + ".parts/job")) and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        running.send_signal(signal.SIGSTOP)
        self.assertIsNone(running.poll(), "it ended too early")
        return running

    def many_texts(self, number=120):
        for i in range(number):
            with open(os.path.join(self.text, f"{i:03}.txt"), "w", encoding="ascii") as out:
                for line in range(40 + i % 7 * 30):
                    out.write(f"{i} {line}: the quick brown fox jumps over {line * 7 % 31} lazy dogs\n")

    def files(self, prefix):
        """Maps the rest of each name of a corpus file to its hash. The manifest is hashed with NAME in place of the corpus's name."""
        folder, name = os.path.split(self.path(prefix))
        found = {}
        for file in sorted(os.listdir(folder)):
            if file.startswith(name + "_"):
                with open(os.path.join(folder, file), "rb") as content:
                    data = content.read()
                if file.endswith(".json"):
                    data = data.replace(name.encode(), b"NAME")
                found[file[len(name):]] = hashlib.sha256(data).hexdigest()
        return found

    # The deck

    def test_text_a_tokenizer_a_model_and_a_sample(self):
        run = self.train_well(self.with_tokenizer, "sample.every_steps=12", "sample.prompt=the quick", "sample.tokens=8", ranks=2)
        self.assertIn("bits per byte", run.out)
        self.assertIn("sample after step 12", run.out)
        with h5py.File(os.path.join(self.path("run"), "run.h5"), "r") as file:
            self.assertEqual(file["deck"].attrs["model.vocabulary"], self.end + 1)
            self.assertEqual(file.attrs["tokenizer_kind"], "bpe")
            self.assertIn("trireme tokenizer", file["tokenizer"][0].decode())
            for table in ("steps", "validation"):
                self.assertEqual(file[table]["bits_per_byte"].attrs["units"], "bit/byte")
            bits, loss = file["steps"]["bits_per_byte"][:], file["steps"]["loss"][:]
        for b, nats in zip(bits, loss):  # a token has one to five bytes
            self.assertLess(b, nats / math.log(2))
            self.assertGreater(b, nats / math.log(2) / 5)
        os.rename(self.tokenizer, self.path("gone"))  # the checkpoint contains the tokenizer
        say = [TRIREME, "sample", self.path("run"), "--prompt", "the quick", "--tokens", "12", "--temperature", "0"]
        said = subprocess.run(say, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
        self.assertTrue(said.startswith("the quick"), said)

    def test_the_same_bits_on_any_number_of_ranks(self):
        columns = {}
        for ranks in (1, 2, 3):
            self.train_well(self.with_tokenizer, "batch.sequences=12", "data.rows=documents", ranks=ranks, name=f"on-{ranks}")
            columns[ranks] = self.column("bits_per_byte", "validation", f"on-{ranks}")[0]
        self.assertEqual(columns[1], columns[2])
        self.assertEqual(columns[1], columns[3])

    def test_bytes_are_losses_over_ln_2(self):
        self.train_well()
        for nats, bits in zip(self.losses(), self.column("bits_per_byte", "steps")):
            self.assertAlmostEqual(bits, nats / math.log(2), places=12)

    def test_another_tokenizer_is_refused_and_a_moved_one_is_not(self):
        self.train_well(self.with_tokenizer, "run.steps=6")
        other = self.path("other")
        write_tokenizer(other, [*MERGES[:-1], "z z"])
        self.assert_refused(self.train(f"data.tokenizer={other}", "run.allow_changes=[data]"), 2, "data.tokenizer",
                            "a run cannot change it")
        os.rename(self.tokenizer, self.path("moved"))
        self.train_well(f"data.tokenizer={self.path('moved')}")
        self.assertEqual(len(self.losses()), 12)

    def test_what_is_no_tokenizer_is_named_with_its_place_in_the_deck(self):
        run = self.train("data.tokenizer=/nowhere/at/all", ranks=2)
        self.assertEqual(run.code, 2, run)
        self.assertIn("data.tokenizer", run.err)
        self.assertIn("/nowhere/at/all", run.err)

    # Shards

    def test_shards_are_the_same_on_any_number_of_ranks(self):
        self.many_texts()
        options = ("--validation-fraction", "0.2", "--shard-bytes", "65536")
        for ranks in (1, 2, 3, 5):
            self.tokenize_well(f"on{ranks}/c", *options, ranks=ranks)
        expected = self.files("on1/c")
        self.assertGreater(len(expected), 8)
        for ranks in (2, 3, 5):
            self.assertEqual(self.files(f"on{ranks}/c"), expected, ranks)
        with open(self.path("on1/c_manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(manifest["train"]["documents"] + manifest["validation"]["documents"], 121)
        self.assertEqual(manifest["tokenizer"]["vocabulary"], self.end + 1)
        first = shard_tokens(self.path("on1/c_train_000000.bin"))
        self.assertEqual(first[0], self.end)
        self.assertEqual(sum(shard["tokens"] for shard in manifest["train"]["shards"]), manifest["train"]["tokens"])
        self.assertEqual(manifest["train"]["shards"][0]["tokens"], len(first))

    def test_a_big_file_in_ranges_gives_the_tokens_of_the_whole(self):
        big = self.path("big.txt")
        with open(big, "w", encoding="ascii") as out:
            for line in range(9000):
                out.write(f"{line} the quick brown fox jumps over the lazy dogs {line * line}\n")
        self.tokenize_well("cut/c", "--shard-bytes", "65536", text=big, ranks=2)
        self.tokenize_well("whole/c", text=big)
        parts = []
        for name in sorted(os.listdir(self.path("cut"))):
            if name.endswith(".bin"):
                parts += shard_tokens(os.path.join(self.path("cut"), name))
        self.assertGreater(len(os.listdir(self.path("cut"))), 5)
        self.assertEqual(parts, shard_tokens(self.path("whole/c_train_000000.bin")))
        self.assertEqual(parts.count(self.end), 1)

    def test_json_lines_plain_and_compressed_give_the_same(self):
        lines = "".join(json.dumps({"id": i, "text": f"the quick fox {i}\n"}) + "\n" for i in range(500))
        with open(self.path("a.jsonl"), "w", encoding="ascii") as out:
            out.write(lines)
        with gzip.open(self.path("a.jsonl.gz"), "wt", encoding="ascii") as out:
            out.write(lines)
        self.tokenize_well("plain/c", "--field", "text", text=self.path("a.jsonl"))
        self.tokenize_well("packed/c", "--field", "text", text=self.path("a.jsonl.gz"))
        tokens = shard_tokens(self.path("plain/c_train_000000.bin"))
        self.assertEqual(tokens, shard_tokens(self.path("packed/c_train_000000.bin")))
        self.assertEqual(tokens.count(self.end), 500)
        with open(self.path("bad.jsonl"), "w", encoding="ascii") as out:
            out.write(lines + '{"body": "x"}\n')
        refused = self.tokenize("bad/c", "--field", "text", text=self.path("bad.jsonl"), ranks=2)
        self.assert_refused(refused, 2, "bad.jsonl:501:1: error: the line has no key 'text'")
        self.assertFalse(os.path.exists(self.path("bad/c_manifest.json")))

    def test_separators_and_bad_lines_are_in_the_manifest(self):
        with open(self.path("stories.txt"), "w", encoding="ascii") as out:
            out.write("<|endoftext|>\n".join(f"the quick fox {i}. " * 500 for i in range(60)))
        done = self.tokenize_well("stories/c", "--shard-bytes", "65536", "--validation-fraction", "0.2", text=self.path("stories.txt"), ranks=2)
        self.assertIn('--text: found 59 separators "<|endoftext|>" between 60 documents', done.out)
        tokens, ends = 0, 0
        for name in sorted(os.listdir(self.path("stories"))):
            if name.endswith(".bin"):
                part = shard_tokens(self.path("stories/" + name))
                tokens, ends = tokens + len(part), ends + part.count(self.end)
        self.assertEqual(ends, 60)
        with open(self.path("stories/c_manifest.json"), encoding="ascii") as file:
            manifest = json.load(file)
        self.assertEqual(manifest["notes"]["separators"], 59)
        self.assertEqual(manifest["train"]["documents"] + manifest["validation"]["documents"], 60)
        self.assertGreater(manifest["validation"]["documents"], 0)
        whole = self.tokenize_well("whole/s", "--separator", "none", text=self.path("stories.txt"))
        self.assertIn("special tokens are spelled out 59 times", whole.out)
        self.assertNotIn("nowhere in the text", done.out + whole.out)
        with open(self.path("windows.txt"), "w", encoding="ascii", newline="") as out:
            out.write("one\r\n\r\ntwo\r\n")
        windows = self.tokenize_well("windows/s", "--separator", "blank-line", text=self.path("windows.txt"))
        self.assertIn("is nowhere in the text, so every file is one document. Lines that end in CR LF", windows.out)
        with open(self.path("bad.jsonl"), "w", encoding="ascii") as out:
            out.write('{"text": "good"}\n{"text": null}\n{"text": "x", "score": NaN}\n{"text": "\\ud800"}\n')
        done = self.tokenize_well("skipped/c", "--field", "text", "--bad-lines", "skip", text=self.path("bad.jsonl"))
        self.assertIn("skipped 2 bad lines", done.out)
        with open(self.path("skipped/c_manifest.json"), encoding="ascii") as file:
            notes = json.load(file)["notes"]
        self.assertEqual(notes["bad_lines"], 2)
        self.assertIn("bad.jsonl:2:1: the line has 'text' that is not text but null", notes["bad_places"][0])

    def test_a_killed_start_is_finished_by_the_next(self):
        self.many_texts(400)
        options = ["--validation-fraction", "0.1", "--shard-bytes", "65536"]
        self.tokenize_well("whole/c", *options)
        killed = 0
        for attempt in range(12):
            running = self.begin_tokenize("parts/c", *options)
            deadline = time.monotonic() + TIMEOUT_S
            wanted = attempt + 1  # kill after this many finished units, later with each attempt
            while running.poll() is None and time.monotonic() < deadline:
                folder = self.path("parts/c.parts")
                if os.path.isdir(folder) and sum(name.endswith(".json") for name in os.listdir(folder)) >= wanted:
                    running.kill()
                    break
            if running.wait(TIMEOUT_S) != 0:
                killed += 1
                self.assertFalse(os.path.exists(self.path("parts/c_manifest.json")))
        self.assertGreater(killed, 0)
        again = self.tokenize_well("parts/c", *options, ranks=2)
        self.assertEqual(self.files("parts/c"), self.files("whole/c"), again)
        self.assertFalse(os.path.exists(self.path("parts/c.parts")))
        self.assertIn("finished already", self.tokenize_well("parts/c", *options).out)
        refused = self.tokenize("parts/c", "--validation-fraction", "0.3", "--shard-bytes", "65536")
        self.assert_refused(refused, 2, "c_manifest.json", "a corpus of other text")

    def test_a_second_start_is_refused_while_the_first_is_there(self):
        self.many_texts(400)
        first = self.begin_and_halt("c", "--shard-bytes", "65536")
        try:
            for ranks in (1, 2):
                second = self.tokenize("c", "--shard-bytes", "65536", ranks=ranks)
                self.assert_refused(second, 2, "c.parts: error: another start", f"process {first.pid} on")
        finally:
            first.send_signal(signal.SIGCONT)
        self.assertEqual(first.wait(TIMEOUT_S), 0)
        self.assertFalse(os.path.exists(self.path("c.parts")))

    def test_files_of_others_stay(self):
        self.many_texts(3)

        def holdings(folder):
            found = {}
            for directory, _, names in os.walk(self.path(folder)):
                for path in (os.path.join(directory, name) for name in names):
                    if os.path.isfile(path):
                        with open(path, "rb") as file:
                            found[path] = file.read()
                    else:
                        found[path] = os.readlink(path)
            return found

        def refused(output, path, *parts):
            before = holdings(output)
            self.assert_refused(self.tokenize(output + "/c"), 2, path, *parts)
            self.assertEqual(holdings(output), before)

        for number, name in enumerate(("c.parts/notes", "c.parts/000000.json", "c.parts/job", "c.parts", "c_train_000000.bin", "c_val_000007.bin",
                                       "c_train_000000.bin.index", "c_manifest.json/notes")):
            with self.subTest(name=name):
                path = self.path(f"others{number}/{name}")
                os.makedirs(os.path.dirname(path))
                with open(path, "w", encoding="ascii") as out:
                    out.write("mine")
                refused(f"others{number}", name.partition("/")[0])
        os.makedirs(self.path("link"))
        os.symlink("nowhere", self.path("link/c_manifest.json"))
        refused("link", "c_manifest.json")
        self.tokenize_well("whole/c")
        self.tokenize_well("other/c", text=os.path.join(self.text, "001.txt"))
        shutil.copyfile(self.path("other/c_train_000000.bin"), self.path("whole/c_train_000000.bin"))
        refused("whole", "c_train_000000.bin", "is another file")
        os.truncate(self.path("whole/c_train_000000.bin"), 2000)
        self.assertIn("encoding the text again", self.tokenize_well("whole/c").out)

    def test_a_corrected_text_takes_the_place_of_one_with_a_mistake(self):
        path = self.path("lines.jsonl")
        for line, code in (('{"text": 1}', 2), ('{"text": "one"}', 0)):
            with open(path, "w", encoding="ascii") as out:
                out.write(line + "\n")
            self.assertEqual(self.tokenize("c", "--field", "text", text=path).code, code)

    def test_text_that_changes_while_it_is_encoded_is_no_corpus(self):
        self.many_texts(400)
        running = self.begin_and_halt("c", "--shard-bytes", "65536")
        try:
            with open(os.path.join(self.text, "399.txt"), "a", encoding="ascii") as out:
                out.write("more")
        finally:
            running.send_signal(signal.SIGCONT)
        self.assertEqual(running.wait(TIMEOUT_S), 3)
        self.assertFalse(os.path.exists(self.path("c_manifest.json")))

    def test_training_on_shards_with_their_own_validation(self):
        self.many_texts()
        self.tokenize_well("c", "--validation-fraction", "0.2", "--shard-bytes", "65536")
        tokens = [f"data.train.tokens=[{self.path('c_train_*.bin')}]", f"data.validation.tokens=[{self.path('c_val_*.bin')}]",
                  "data.train.text=[]", "data.validation_fraction=0", self.with_tokenizer, "data.rows=documents"]
        for ranks in (1, 2):
            run = start(DECK, f"run.directory={self.path(f'on{ranks}')}", *tokens, ranks=ranks)
            self.assertEqual(run.code, 0, run)
        self.assertEqual(self.column("loss", "validation", "on1")[0], self.column("loss", "validation", "on2")[0])

    def test_shards_that_do_not_fit_are_refused(self):
        self.tokenize_well("c")
        shard = self.path("c_train_000000.bin")
        write_tokenizer(self.path("other"), [*MERGES[:-1], "z z"])
        words = [f"run.directory={self.path('run')}", f"data.train={{tokens: [{shard}], text: []}}"]
        deck = [DECK]
        self.assert_refused(start(*deck, *words, f"data.tokenizer={self.path('other')}"), 2, shard, "tokens of another tokenizer")
        with open(shard, "r+b") as file:
            file.seek(1024 + 40)
            file.write(b"\x01\x00")
        self.assert_refused(start(*deck, *words, self.with_tokenizer), 3, shard, "do not match their hash")
        os.remove(shard + ".index")
        self.assert_refused(start(*deck, *words, self.with_tokenizer), 2, shard, "manifest.json lists")
        with open(shard, "r+b") as file:
            file.seek(1024 + 40)
            file.write(b"\xff\x7f")
        self.assert_refused(start(*deck, *words, self.with_tokenizer), 2, shard, "token 20 is 32767", "byte 1064 of the file")
        os.truncate(shard, os.path.getsize(shard) - 3)
        self.assert_refused(start(*deck, *words, self.with_tokenizer), 2, shard, "truncated")

    # Mixtures

    def test_a_mixture_on_any_number_of_ranks_and_across_a_change(self):
        self.many_texts(60)
        half = self.path("half")
        os.mkdir(half)
        for name in sorted(os.listdir(self.text))[:30]:
            os.rename(os.path.join(self.text, name), os.path.join(half, name))
        mixture = "data.train={text: [], mixture: [{weight: 3, text: [%s]}, {weight: %d, text: [%s]}]}"
        base = [DECK, "evaluate.every_steps=0", "data.validation_fraction=0", "optimizer.schedule.steps=12",
                self.with_tokenizer]

        def run(name, weight, *more, ranks=1):
            done = start(*base, f"run.directory={self.path(name)}", mixture % (self.text, weight, half), *more, ranks=ranks)
            self.assertEqual(done.code, 0, done)
            return done

        self.assertIn("epochs of the parts of the mixture", run("one", 1).out)
        run("three", 1, ranks=3)
        for a, b in zip(self.losses("one"), self.losses("three")):
            self.assertAlmostEqual(a, b, places=4)
        run("parts", 1, "run.steps=6", ranks=2)
        run("parts", 1)
        for whole, parts in zip(self.losses("one"), self.losses("parts")):
            self.assertAlmostEqual(whole, parts, places=4)
        changed = start(*base, f"run.directory={self.path('parts')}", mixture % (self.text, 2, half), "run.steps=18")
        self.assert_refused(changed, 2, "data.train.mixture")
        run("parts", 2, "run.steps=18", "run.allow_changes=[data]")
        self.assertEqual(len(self.losses("parts")), 18)
