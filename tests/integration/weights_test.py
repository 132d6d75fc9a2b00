# SPDX-License-Identifier: Apache-2.0
"""Exporting and importing weights, and the errors if they do not fit."""
import json
import os
import shutil
import struct
import unittest

import h5py
import numpy as np

from harness import TrainingTest, start

USER = 2
SIZES = ("model.layers=2", "model.heads=2", "model.channels=32", "model.context=16")


def read_safetensors(path):
    """Reads name -> array, written from the description of the format only."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    assert header.pop("__metadata__")["format"] == "pt" and length % 8 == 0
    types = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}
    return {name: np.frombuffer(data[8 + length + one["data_offsets"][0]:8 + length + one["data_offsets"][1]],
                                types[one["dtype"]]).reshape(one["shape"]) for name, one in header.items()}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        stored = values.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class WeightsTest(TrainingTest):
    def good(self, *words, ranks=1):
        run = start(*words, ranks=ranks)
        self.assertEqual(run.code, 0, run)
        return run

    def masters(self, step, run="run"):
        return {name: value for name, value in self.weights(step, run).items() if name.startswith("master/")}

    def trained(self):
        """A run of 12 steps, and the folder of its exported weights."""
        self.train_well(ranks=2)
        self.good("export", self.path("run"), "--format", "huggingface", "--output", self.path("hf"))
        return self.path("hf")

    def more(self, step, run):
        """The facts about a checkpoint."""
        with h5py.File(os.path.join(self.path(run), "checkpoints", f"step-{step:08d}", "manifest.h5"), "r") as file:
            return {name: value.decode() if isinstance(value, bytes) else value for name, value in file["more"].attrs.items()}


class Export(WeightsTest):
    def test_a_run_leaves_as_transformers_names_and_turns_it(self):
        folder = self.trained()
        tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
        masters = {name.removeprefix("master/"): np.frombuffer(value, "<f4") for name, value in self.masters(12).items()}
        renamed = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}
        self.assertEqual(len(tensors), len(masters))
        for name, values in masters.items():
            turned = False
            theirs = "transformer." + name
            for ours, other in renamed.items():
                if f".{ours}." in name:
                    theirs = theirs.replace(ours, other)
                    turned = name.endswith(".weight")
            there = tensors[theirs]
            self.assertEqual((there.T if turned else there).tobytes(), values.tobytes(), name)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual([config[key] for key in ("model_type", "n_layer", "n_head", "n_embd", "n_positions", "vocab_size")],
                         ["gpt2", 2, 2, 32, 16, 256])
        self.assertEqual(config["resid_pdrop"], 0.1)

    def test_it_comes_back_bit_by_bit_on_any_number_of_ranks(self):
        folder = self.trained()
        llmc = self.path("llmc")
        self.good("export", self.path("run"), "--format", "llm.c", "--output", llmc)
        for number, (source, ranks) in enumerate(((folder, 1), (folder, 3), (llmc, 2), (self.path("run"), 2))):
            self.good("import", source, "--output", self.path(f"back-{number}"), ranks=ranks)
            self.assertEqual(self.masters(0, f"back-{number}"), self.masters(12), source)
        hashes = {self.more(0, f"back-{number}")["initial_weights_hash"] for number in range(4)}
        self.assertEqual(len(hashes), 1)
        text = self.good("sample", self.path("run"), "--tokens", "30").out
        self.assertEqual(self.good("sample", self.path("back-1"), "--tokens", "30").out, text)

    def test_an_older_step_and_bf16(self):
        self.trained()
        self.good("export", self.path("run"), "--format", "huggingface", "--output", self.path("six"), "--step", "6", "--dtype", "bf16")
        values = read_safetensors(os.path.join(self.path("six"), "model.safetensors"))["transformer.wte.weight"]
        exact = np.frombuffer(self.masters(6)["master/wte.weight"], "<u4")
        rounded = (exact + 0x7FFF + (exact >> 16 & 1)) >> 16
        self.assertEqual(values.ravel().tolist(), rounded.tolist())
        run = start("export", self.path("run"), "--format", "huggingface", "--output", self.path("none"), "--step", "7")
        self.assert_refused(run, USER, "no checkpoint of step 7", "6, 12")

    def test_a_model_with_capped_logits_leaves_in_no_format(self):
        self.train_well("model.logit_softcap=15", "model.z_loss=1e-4")
        for form in ("huggingface", "llm.c"):
            run = start("export", self.path("run"), "--format", form, "--output", self.path("out"))
            self.assert_refused(run, USER, "model.logit_softcap: 15")
            self.assertFalse(os.path.exists(self.path("out")))
        self.good("import", self.path("run"), "--output", self.path("back"))  # a checkpoint can store the softcap
        words = ("--tokens", "30")
        self.assertEqual(self.good("sample", self.path("run"), *words).out, self.good("sample", self.path("back"), *words).out)

    def test_nothing_is_overwritten(self):
        folder = self.trained()
        before = sorted(os.listdir(self.folder))
        for words in (("export", self.path("run"), "--format", "huggingface", "--output", folder),
                      ("import", folder, "--output", self.path("run"))):
            self.assert_refused(start(*words), USER, "this is there already")
        run = start("export", self.path("nowhere"), "--format", "llm.c", "--output", self.path("out"))
        self.assert_refused(run, USER, "nowhere", "no such file")
        self.assertEqual(start("export", self.path("run"), "--format", "onnx", "--output", self.path("out")).code, USER)
        self.assertEqual(sorted(os.listdir(self.folder)), before)


class InitialWeights(WeightsTest):
    def test_a_run_begins_where_the_weights_end(self):
        folder = self.trained()
        end = self.column("loss", "validation")[-1]
        llmc = self.path("llmc")
        self.good("export", self.path("run"), "--format", "llm.c", "--output", llmc)
        facts = set()
        for number, (source, ranks, transport) in enumerate(((folder, 1, "auto"), (folder, 2, "mpi"), (folder, 3, "shared_memory"), (llmc, 2, "auto"),
                                                             (self.path("run"), 3, "mpi"), (self.path("run/checkpoints/step-00000012"), 1, "auto"))):
            name = f"next-{number}"
            self.train_well(f"run.initial_weights={source}", f"parallel.transport={transport}", "run.steps=1", "optimizer.schedule.warmup_steps=0", ranks=ranks, name=name)
            self.assertEqual(self.column("loss", "validation", name)[0], end, source)
            more = self.more(1, name)
            facts.add(more["initial_weights_hash"])
            self.assertEqual(more["initial_weights"], {self.path("run"): self.path("run/checkpoints/step-00000012"),
                                                       llmc: os.path.join(llmc, "model_00000012.bin")}.get(source, source))
        self.assertEqual(len(facts), 1)

    def test_sharded_or_not_it_is_the_same_run(self):
        folder = self.trained()
        losses = []
        for name, words in (("sharded", ()), ("whole", ("parallel.shard=none",)), ("small", ("parallel.bucket_elements=1000",))):
            self.train_well(f"run.initial_weights={folder}", "run.steps=3", "optimizer.schedule.warmup_steps=1", *words, ranks=2, name=name)
            losses.append((self.losses(name), self.more(3, name)["initial_weights_hash"]))
        self.assertEqual(losses[0], losses[1])
        self.assertEqual(losses[0], losses[2])

    def test_import_and_train_is_the_same_run(self):
        folder = self.trained()
        self.good("import", folder, "--output", self.path("imported"), "--seed", "7", ranks=2)
        run = self.train_well(ranks=2, name="imported")
        self.assertNotIn("warning", run.out + run.err)
        self.train_well(f"run.initial_weights={folder}", ranks=2, name="direct")
        self.assertEqual(self.losses("imported"), self.losses("direct"))
        self.assertEqual(self.weights(12, "imported"), self.weights(12, "direct"))
        with h5py.File(self.path("imported/run.h5"), "r") as one, h5py.File(self.path("direct/run.h5"), "r") as other:
            self.assertEqual(one.attrs["initial_weights_hash"], other.attrs["initial_weights_hash"])

    def test_a_resume_does_not_read_them_again(self):
        folder = self.trained()
        self.train_well(f"run.initial_weights={folder}", "run.steps=6", ranks=2, name="next")
        told = self.more(6, "next")["initial_weights_hash"]
        shutil.rmtree(folder)
        words = self.words("next", [f"run.initial_weights={folder}"])
        self.assertIn("no mistakes", self.good("check", *words).out)
        run = self.train_well(f"run.initial_weights={folder}", ranks=3, name="next")
        self.assertIn("run.initial_weights: not read", run.out + run.err)
        self.assertEqual(self.more(12, "next")["initial_weights_hash"], told)
        run = self.train(f"run.initial_weights={folder}", name="anew")
        self.assert_refused(run, USER, "run.initial_weights", folder, "no such file")
        self.assertFalse(os.path.exists(self.path("anew")))

    def test_weights_that_moved_or_others_hold_no_resume_up(self):
        folder, moved = self.trained(), self.path("moved")
        weights, schedule = f"run.initial_weights={folder}", "optimizer.schedule.steps=12"
        self.train_well(weights, schedule, ranks=2, name="straight")
        self.train_well(weights, schedule, "run.steps=6", ranks=2, name="next")
        os.rename(folder, moved)
        self.assertIn("no mistakes", self.good("check", *self.words("next", [f"run.initial_weights={moved}"])).out)
        run = self.train_well(f"run.initial_weights={moved}", schedule, ranks=2, name="next")
        self.assertRegex(run.out, r"run\.initial_weights +\S*hf -> \S*moved\n")
        self.assertIn(f"run.initial_weights: not read, since the run resumes from step 6; it began with those of {folder}\n", run.out)
        self.assertEqual(self.losses("next"), self.losses("straight"))
        self.assertTrue(self.weights(12, "next") == self.weights(12, "straight"))
        run = self.train_well("run.steps=13", ranks=2, name="next")
        self.assertRegex(run.out, r'run\.initial_weights +\S*moved -> ""\n')
        # The initial weights of the run remain recorded, whatever later decks say.
        names = ("initial_weights", "initial_weights_format", "initial_weights_hash", "run_id")
        first, last = self.more(6, "next"), self.more(13, "next")
        self.assertEqual([last[name] for name in names], [first[name] for name in names])
        self.assertEqual(first["initial_weights"], folder)
        with h5py.File(self.path("next/run.h5"), "r") as file:
            self.assertEqual(file.attrs["initial_weights_hash"], first["initial_weights_hash"])
        # A run that started from random weights is recorded as such.
        run = self.train_well(f"run.initial_weights={moved}", "run.steps=13", ranks=2)
        self.assertIn("run.initial_weights: not read, since the run resumes from step 12; it began with random weights\n", run.out)
        self.assertNotIn("initial_weights", self.more(13, "run"))

    def test_rows_are_added_and_left_out_as_the_deck_says(self):
        folder = self.trained()
        words = (f"run.initial_weights={folder}", "run.steps=1", "optimizer.schedule.warmup_steps=0", "model.vocabulary=300", "model.context=12")
        run = self.train(*words, ranks=2, name="rows")
        self.assertEqual(run.code, USER, run)
        told = "\n".join(run.errors)
        self.assertIn("model.vocabulary: 300 tokens here, but 256 in", told)
        self.assertIn("model.context: 12 positions here, but 16 in", told)
        hashes = set()
        for ranks in (1, 3):
            run = self.train_well(*words, "run.initial_rows=fit", ranks=ranks, name=f"rows-{ranks}")
            self.assertIn("wte.weight: 44 rows are added to the 256 in", run.out + run.err)
            self.assertIn("wpe.weight: the last 4 of the", run.out + run.err)
            hashes.add(self.more(1, f"rows-{ranks}")["initial_weights_hash"])
        self.assertEqual(len(hashes), 1)
        run = self.train("run.initial_rows=pad", name="idle")
        self.assert_refused(run, USER, "run.initial_rows", "without effect")

    def test_all_that_does_not_fit_is_said_at_once_with_both_places(self):
        folder = self.trained()
        deck = self.path("deck.yaml")
        with open(deck, "w", encoding="ascii") as out:
            out.write(f"run: {{directory: {self.path('x')}, steps: 2, initial_weights: {folder}}}\n"
                      f"model: {{layers: 3, heads: 4,\n        channels: 64, context: 16, bias: false}}\n"
                      f"data: {{train: {{text: [{self.text}]}}}}\nbatch: {{sequences: 6, micro_sequences: 1}}\noptimizer: {{learning_rate: 0.1}}\n")
        for words, ranks in ((("check", deck), 1), (("plan", deck), 1), ((deck,), 1), ((deck,), 3)):
            run = start(*words, ranks=ranks)
            self.assertEqual(run.code, USER, run)
            config = os.path.join(folder, "config.json")
            expected = (f"{deck}:2:17: error: model.layers: 3 here, but 2 in {config}", f"{deck}:2:27: error: model.heads: 4 here, but 2 in {config}",
                        f"{deck}:3:19: error: model.channels: 64 here, but 32 in {config}", f"{deck}:3:42: error: model.bias: false here, but true in {config}")
            for line in expected:
                self.assertIn(line, run.err, run)
            self.assertEqual(len(run.errors), len(expected), run)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_a_folder_with_mistakes_lists_them_at_the_key(self):
        folder = self.trained()
        path = os.path.join(folder, "model.safetensors")
        tensors = read_safetensors(path)
        del tensors["transformer.ln_f.weight"]
        tensors["transformer.h.1.attn.c_attn.weight"] = tensors["transformer.h.1.attn.c_attn.weight"].T
        tensors["transformer.extra"] = np.zeros(3)
        write_safetensors(path, tensors)
        run = self.train(f"run.initial_weights={folder}", ranks=2, name="next")
        self.assertEqual(run.code, USER, run)
        self.assertEqual(len(run.errors), 3, run)
        for line in run.errors:
            self.assertIn("command line:", line)
            self.assertIn("run.initial_weights: " + folder, line)
        for part in ("ln_f.weight: missing", "its shape is [96, 32]", "transformer.extra: unexpected tensor"):
            self.assertIn(part, run.err)

    def test_another_tokenizer_is_refused(self):
        tokenizer = self.path("tokenizer")
        self.good("tokenizer", "train", "--text", self.text, "--vocabulary", "300", "--output", tokenizer)
        self.train_well(f"data.tokenizer={tokenizer}", "run.steps=6", name="pairs")
        self.good("export", self.path("pairs"), "--format", "huggingface", "--output", self.path("hf"))
        run = self.train(f"run.initial_weights={self.path('hf')}", "model.vocabulary=300", name="next")
        self.assert_refused(run, USER, "data.tokenizer", "not the tokenizer", os.path.join(self.path("hf"), "tokenizer.json"))
        self.train_well(f"run.initial_weights={self.path('hf')}", f"data.tokenizer={tokenizer}", "run.steps=6", name="same")
        self.good("import", self.path("hf"), "--output", self.path("imported"))
        self.good("export", self.path("imported"), "--format", "huggingface", "--output", self.path("again"))
        for name in ("model.safetensors", "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "config.json"):
            with open(os.path.join(self.path("hf"), name), "rb") as one, open(os.path.join(self.path("again"), name), "rb") as other:
                if name != "config.json":  # it contains the deck's dropout
                    self.assertEqual(one.read(), other.read(), name)


if __name__ == "__main__":
    unittest.main()
