# SPDX-License-Identifier: Apache-2.0
"""Sampling and evaluating a trained model: `trireme sample` (also `generate`) and `trireme evaluate`."""
import json
import math
import os
import re
import struct

import h5py

from harness import TrainingTest, start

EXAMPLE = 65535  # the token before each example in llm.c's evaluation files


def write_hellaswag(path, examples):
    """`examples` are triples of tokens: (label, context, choices)."""
    numbers = []
    for index, (label, context, choices) in enumerate(examples):
        body = [index, label, len(choices), len(context), *context]
        for choice in choices:
            body += [len(choice), *choice]
        numbers += [EXAMPLE, 2 * (len(body) + 2), *body]
    with open(path, "wb") as out:
        out.write(struct.pack("<256i", 20240522, 1, len(examples), 2000, *[0] * 252))
        out.write(struct.pack(f"<{len(numbers)}H", *numbers))


class Trained(TrainingTest):
    """A run on bytes that has learned only which letters occur."""

    def setUp(self):
        super().setUp()
        self.train_well("run.steps=24")
        self.run_directory = self.path("run")

    def well(self, *words, ranks=1):
        run = start(*words, ranks=ranks)
        self.assertEqual(run.code, 0, run)
        return run.out

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8", newline="") as out:
            out.write(text)
        return self.path(name)

    def rows(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


class Sample(Trained):
    def test_seeds_and_steps_are_whole_numbers(self):
        for option in ("--seed", "--step"):
            for value in ("-1", "99999999999999999999"):
                run = start("sample", self.path("run"), option, value)
                self.assertEqual(run.code, 2, run)
                self.assertIn(option, run.err)
                self.assertLess(max(len(line) for line in run.err.splitlines()), 200, run)

    def test_kept_keys_change_nothing_and_generate_is_the_same_verb(self):
        words = [self.run_directory, "--prompt", "the quick", "--tokens", "60", "--seed", "4"]  # more than the context of 16
        said = self.well("sample", *words)
        self.assertTrue(said.startswith("the quick"), said)
        self.assertEqual(self.well("generate", *words), said)
        self.assertEqual(self.well("sample", *words, "--no-cache"), said)
        self.assertNotEqual(self.well("sample", *words[:-1], "5"), said)

    def test_any_number_of_ranks_gives_the_same_texts(self):
        prompts = self.write("prompts.txt", "\ufeffthe\n\nquick brown fox jumps over the lazy dog\r\nz\n")
        words = ["sample", self.run_directory, "--prompts", prompts, "--samples", "3", "--tokens", "20", "--top-k", "9", "--top-p",
                 "0.9", "--batch", "2"]
        said = {ranks: self.well(*words, "--json", self.path(f"{ranks}.json"), ranks=ranks) for ranks in (1, 2, 3)}
        self.assertEqual(said[1], said[2])
        self.assertEqual(said[1], said[3])
        self.assertEqual(self.rows("1.json"), self.rows("2.json"))
        self.assertEqual(self.rows("1.json"), self.rows("3.json"))
        rows = self.rows("1.json")
        self.assertEqual([(row["prompt"], row["sample"]) for row in rows],
                         [(prompt, sample) for prompt in ("the", "quick brown fox jumps over the lazy dog", "z") for sample in range(3)])
        for row in rows:
            self.assertEqual(len(row["tokens"]), 20)
            self.assertEqual(row["end"], "length")
            self.assertEqual(bytes(row["tokens"]).decode("utf-8", errors="replace"), row["text"])
        self.assertEqual(len({row["text"] for row in rows[:3]}), 3)

    def test_json_instead_of_text(self):
        prompts = self.write("prompts.jsonl", '{"say": "the\\nlazy"}\n{"say": "\u00e9"}\n')
        said = self.well("sample", self.run_directory, "--prompts", prompts, "--field", "say", "--tokens", "5", "--temperature", "0",
                         "--json", "-")
        self.assertEqual([json.loads(line)["prompt"] for line in said.splitlines()], ["the\nlazy", "\u00e9"])

    def test_a_text_ends_where_it_repeats(self):
        words = ["sample", self.run_directory, "--prompt", "the", "--temperature", "0", "--tokens", "400", "--json"]
        self.well(*words, self.path("free.json"))
        self.well(*words, self.path("ended.json"), "--stop-repetition", "6")
        (free,), (ended,) = self.rows("free.json"), self.rows("ended.json")
        self.assertEqual(ended["end"], "repetition")
        tokens = ended["tokens"]
        self.assertEqual(tokens, free["tokens"][:len(tokens)])
        self.assertTrue(any(tokens[i:i + 6] == tokens[-6:] for i in range(len(tokens) - 6)))

    def test_the_checkpoint_of_a_step(self):
        words = ["sample", self.run_directory, "--temperature", "0", "--tokens", "30"]
        self.assertNotEqual(self.well(*words, "--step", "12"), self.well(*words))
        self.assertEqual(self.well(*words, "--step", "24"), self.well(*words))
        self.assert_refused(start(*words, "--step", "13"), 2, "no checkpoint of step 13. Available steps: 12, 18, 24")

    def test_weights_of_another_format_give_the_same_texts_and_scores(self):
        text = self.write("text.txt", "the quick brown fox jumps over the lazy dog\n" * 9)
        folders = [self.run_directory]
        for form in ("huggingface", "llm.c"):
            folders.append(self.path(form))
            self.well("export", self.run_directory, "--format", form, "--output", folders[-1])
        said, scored = [], []
        for folder in folders:
            said.append(self.well("sample", folder, "--prompt", "the", "--tokens", "30", ranks=2))
            self.well("evaluate", folder, "--text", text, "--json", self.path("scores.json"))
            with open(self.path("scores.json"), encoding="utf-8") as file:
                scores = json.load(file)
            os.remove(self.path("scores.json"))
            self.assertIn(folder, scores.pop("model"))
            self.assertEqual(scores.pop("step"), 24 if folder == self.run_directory else None)
            scored.append(scores)
        self.assertEqual(said, [said[0]] * 3)
        self.assertEqual(scored, [scored[0]] * 3)

    def test_mistakes(self):
        there = self.write("there.json", "mine")
        self.assert_refused(start("sample", self.path("none"), ranks=2), 2, "none: error: no such file or directory")
        self.assert_refused(start("sample", self.run_directory, "--prompts", self.path("none"), ranks=2), 2, "--prompts", "none")
        self.assert_refused(start("sample", self.run_directory, "--prompts", self.write("blank", "\n\n")), 2, "the file contains no prompt")
        self.assert_refused(start("sample", self.run_directory, "--json", there), 2, "not overwritten")
        with open(there, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")
        self.assert_refused(start("sample", self.run_directory, "--top-p", "0"), 2, "--top-p")


class Evaluate(Trained):
    def evaluate(self, name, *words, ranks=1):
        out = self.well("evaluate", self.run_directory, *words, "--json", self.path(name), ranks=ranks)
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file), out

    def test_the_loss_of_the_validation_data_is_that_of_training(self):
        # The last tenth of the tokens. The record evaluated two batches of 12 windows of 16 of it.
        with open(os.path.join(self.text, "a.txt"), "rb") as file:
            data = file.read()
        begin = len(data) - round(len(data) / 10)
        part = self.path("part.txt")
        with open(part, "wb") as out:
            out.write(data[begin:begin + 2 * 12 * 16 + 1])
        found, said = self.evaluate("part.json", "--text", part)
        self.assertEqual(found["loss"]["tokens"], 2 * 12 * 16)
        self.assertEqual(found["step"], 24)
        self.assertAlmostEqual(found["loss"]["loss"], self.column("loss", "validation")[-1], places=12)
        self.assertAlmostEqual(found["loss"]["perplexity"], math.exp(found["loss"]["loss"]), places=9)
        self.assertAlmostEqual(found["loss"]["bits_per_byte"], found["loss"]["loss"] / math.log(2), places=12)
        self.assertIn("bits per byte", said)

    def test_files_that_are_left_out_are_named(self):
        os.mkdir(self.path("mixed"))
        for name, text in (("a.txt", "the quick brown fox"), ("b.dat", "\0x" * 50)):
            self.write(os.path.join("mixed", name), text)
        done = start("evaluate", self.run_directory, "--text", self.path("mixed"))
        self.assertEqual(done.code, 0, done)
        self.assertIn("b.dat", done.out)

    def test_any_number_of_ranks_finds_the_same_bits(self):
        questions = self.path("questions.bin")
        write_hellaswag(questions, [(i % 4, list(b"the quick brown"[:1 + i % 15]), [list(word) for word in
                                     (b"fox", b"dog", b"jumps", bytes([65 + i]) * (1 + i % 5))]) for i in range(17)])
        words = ["--text", self.text, "--multiple-choice", questions, "--format", "hellaswag"]
        found = {ranks: self.evaluate(f"{ranks}.json", *words, ranks=ranks)[0] for ranks in (1, 2, 3)}
        self.assertEqual(found[1], found[2])
        self.assertEqual(found[1], found[3])
        choices = found[1]["multiple_choice"]
        self.assertEqual(choices["questions"], 17)
        for name in ("accuracy", "accuracy_per_token", "accuracy_per_character"):
            share = choices[name]["right"] / 17
            self.assertAlmostEqual(choices[name]["value"], share, places=15)
            self.assertAlmostEqual(choices[name]["standard_error"], math.sqrt(share * (1 - share) / 16), places=15)
        self.assertEqual(choices["accuracy_per_token"], choices["accuracy_per_character"])  # tokens are bytes

    def test_the_same_questions_in_both_formats(self):
        contexts = ["the", "over", "lazy dogs and"]
        endings = [" quick brown fox", " \u00ff\u00ff", " \u00fe\u00fe\u00fe"]  # bytes that do not occur in the text
        write_hellaswag(self.path("q.bin"), [(0, list(c.encode()), [list(e.encode()) for e in endings]) for c in contexts])
        lines = "".join(json.dumps({"ctx": c, "endings": [e.strip() for e in endings], "label": 0}) + "\n" for c in contexts)
        found = [self.evaluate("bin.json", "--multiple-choice", self.path("q.bin"), "--format", "hellaswag")[0],
                 self.evaluate("jsonl.json", "--multiple-choice", self.write("q.jsonl", lines), "--format", "jsonl")[0]]
        self.assertEqual(found[0], found[1])
        self.assertIsNone(found[0]["loss"])
        self.assertGreater(found[0]["multiple_choice"]["accuracy_per_token"]["right"], 0)

    def test_one_question_has_no_standard_error(self):
        question = self.write("one.jsonl", json.dumps({"ctx": "the", "endings": ["quick", "lazy"], "label": 0}) + "\n")
        found, said = self.evaluate("one.json", "--multiple-choice", question, "--format", "jsonl")
        self.assertIsNone(found["multiple_choice"]["accuracy"]["standard_error"])
        self.assertRegex(said, r"accuracy +[01]\.0000\n")

    def test_token_files_are_the_text(self):
        done = start("tokenize", "--tokenizer", "bytes", "--text", self.text, "--output", self.path("shard"))
        self.assertEqual(done.code, 0, done)
        tokens, _ = self.evaluate("tokens.json", "--tokens", self.path("shard_train_*.bin"))
        text, _ = self.evaluate("text.json", "--text", self.text)
        self.assertEqual(tokens, text)

    def test_all_mistakes_at_once(self):
        questions = self.write("q.jsonl", 'x\n{"context": "a", "choices": ["b", "c"], "label": 2}\n')
        run = start("evaluate", self.run_directory, "--text", self.path("none"), "--multiple-choice", questions, "--format", "jsonl",
                    ranks=2)
        self.assertEqual(run.code, 2, run)
        self.assertEqual(len(run.errors), 3, run)
        for part in ("--text", "q.jsonl:1:1: error: the line: is not a JSON object", "q.jsonl:2:1: error: the line: the label 2 names none"):
            self.assertIn(part, run.err)
        self.assert_refused(start("evaluate", self.run_directory), 2, "there is nothing to evaluate")
        self.assert_refused(start("evaluate", self.run_directory, "--text", self.write("one", "x")), 2, "too few to predict one")
        self.assert_refused(start("evaluate", self.run_directory, "--tokens", self.write("t.bin", "x")), 2, "t.bin")


class Sets(TrainingTest):
    """evaluate.sets: the rows in the record agree with `trireme evaluate`."""

    def setUp(self):
        super().setUp()
        self.questions = self.path("questions.bin")
        write_hellaswag(self.questions, [(i % 3, list(b"the quick brown"[:1 + i % 15]), [list(b" fox"), list(b" dogs"), [65 + i] * 3])
                                         for i in range(11)])
        self.other = self.path("other.txt")
        with open(self.other, "w", encoding="ascii") as out:
            out.write("the lazy fox jumps over 12 quick brown dogs\n")
        self.sets = (f"evaluate.sets=[{{name: choices, every_steps: 6, multiple_choice: {self.questions}}}, "
                     f"{{name: other, every_steps: 4, text: [{self.other}]}}]")

    def evaluations(self, name, run="run"):
        with h5py.File(os.path.join(self.path(run), "run.h5"), "r") as file:
            return {column: list(data[:]) for column, data in file["evaluation"][name].items()}

    def test_rows_are_those_of_the_verb_on_any_number_of_ranks(self):
        # With reshard_after_forward=false, ranks gather the parameters and evaluate alone; otherwise they join all forward passes.
        kept = ("parallel.shard=parameters", "parallel.reshard_after_forward=false")
        for ranks, shards in ((1, ()), (2, kept), (3, kept[:1])):
            self.train_well(self.sets, *shards, ranks=ranks, name=f"on-{ranks}")
        first = self.evaluations("choices", "on-1")
        self.assertEqual(first["step"], [0, 6, 12])
        self.assertEqual(self.evaluations("other", "on-1")["step"], [0, 4, 8, 12])
        for ranks in (1, 2, 3):  # gradients are summed differently, so the weights differ
            run = self.path(f"on-{ranks}")
            done = start("evaluate", run, "--text", self.other, "--multiple-choice", self.questions, "--json", self.path(f"{ranks}.json"))
            self.assertEqual(done.code, 0, done)
            with open(self.path(f"{ranks}.json"), encoding="utf-8") as file:
                found = json.load(file)
            choices, other = self.evaluations("choices", f"on-{ranks}"), self.evaluations("other", f"on-{ranks}")
            self.assertEqual(other["loss"][-1], found["loss"]["loss"])
            self.assertEqual(other["bits_per_byte"][-1], found["loss"]["bits_per_byte"])
            self.assertTrue(math.isnan(other["accuracy"][-1]))
            for name in ("accuracy", "accuracy_per_token", "accuracy_per_character"):
                self.assertEqual(choices[name][-1], found["multiple_choice"][name]["value"])
                self.assertEqual(choices[name + "_error"][-1], found["multiple_choice"][name]["standard_error"])
            self.assertTrue(math.isnan(choices["loss"][-1]))
            self.assertEqual([row[-1] for row in (choices["step"], other["step"])], [12, 12])

    def test_they_change_no_bits_and_go_on_after_a_resume(self):
        self.train_well(name="without")
        run = self.train_well(self.sets, name="with")
        self.assertIn("choices: accuracy", run.out)
        self.assertEqual(self.losses("with"), self.losses("without"))
        self.assertEqual(self.weights(12, "with"), self.weights(12, "without"))
        resumed = self.train_well(self.sets, "run.steps=18", name="with")
        self.assertNotIn("have changed since the checkpoint", resumed.out + resumed.err)
        self.assertEqual(self.evaluations("choices", "with")["step"], [0, 6, 12, 18])
        self.assertEqual(self.evaluations("other", "with")["step"], [0, 4, 8, 12, 16, 18])
        with open(self.other, "a", encoding="ascii") as out:
            out.write("more of it\n")
        resumed = self.train_well(self.sets, "run.steps=20", name="with")
        changed = re.findall(r"the data of the evaluation set (\w+) have changed since the checkpoint", resumed.out + resumed.err)
        self.assertEqual(changed, ["other"])

    def test_mistakes_come_before_the_first_step_all_at_once(self):
        run = self.train(f"evaluate.sets=[{{name: a, every_steps: 1, text: [{self.path('none')}]}}, "
                         f"{{name: b, every_steps: 1, multiple_choice: {self.other}}}, "
                         f"{{name: c, every_steps: 1, multiple_choice: {self.path('gone')}}}]", ranks=2)
        self.assertEqual(run.code, 2, run)
        self.assertEqual(len(run.errors), 3, run)
        self.assertIn("evaluate.sets[0].text", run.err)
        self.assertIn("evaluate.sets[2].multiple_choice", run.err)
        self.assertIn("not an evaluation file of llm.c", run.err)
        self.assertNotIn("step      1/", run.out)
