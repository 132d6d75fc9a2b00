#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the encoding speed of the room `text` with the packages tokenizers and tiktoken, on one thread each, in one run.

usage: speed.py TEXT_TOOL TOKENIZER_DIR FILE ...     TOKENIZER_DIR is what `trireme tokenizer train` wrote
A row is the median of 3, in MB per second of CPU time. Ratios are ours to theirs. tiktoken gets the ranks of vocab.json.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiktoken
import train_reference
from tokenizers import Tokenizer


def speed(encode, text):
    seconds = []
    for _ in range(3):
        begin = time.process_time()
        encode(text)
        seconds.append(time.process_time() - begin)
    return len(text.encode()) / statistics.median(seconds) / 1e6


def main():
    tool, folder, *files = sys.argv[1:]
    there = Tokenizer.from_file(f"{folder}/tokenizer.json")
    pattern = json.loads(pathlib.Path(folder, "training.json").read_text(encoding="utf-8")).get("pattern", "gpt2")
    alphabet = {c: b for b, c in train_reference.byte_alphabet().items()}
    vocab = json.loads(pathlib.Path(folder, "vocab.json").read_text(encoding="utf-8"))
    ranks = {bytes(alphabet[c] for c in token): i for token, i in vocab.items() if token != "<|endoftext|>"}
    encoding = tiktoken.Encoding("trained", pat_str=train_reference.EXPRESSIONS[pattern], mergeable_ranks=ranks, special_tokens={})
    print(f"{'file':40} {'trireme':>9} {'tokenizers':>11} {'tiktoken':>9}   MB/s, and the ratios to both")
    for file in files:
        text = pathlib.Path(file).read_text(encoding="utf-8", errors="replace")
        said = subprocess.run([tool, "speed", folder, file], stdout=subprocess.PIPE, check=True, text=True).stdout
        ours = float(said.split(" MB/s")[0].rsplit(" ", 1)[1])
        # tokenizers gets the text in parts, because it stores the offsets of the whole text.
        parts = [text[i:i + 100000] for i in range(0, len(text), 100000)]
        theirs = speed(lambda _: [there.encode(p) for p in parts], text)
        tiktokens = speed(encoding.encode_ordinary, text)
        print(f"{pathlib.Path(file).name:40} {ours:9.1f} {theirs:11.1f} {tiktokens:9.1f}   {ours / theirs:.1f} {ours / tiktokens:.1f}")


if __name__ == "__main__":
    main()
