#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A simple version of the training algorithm of src/data/corpus/train.hpp: it counts all pairs again before each merge.

usage: train_reference.py PATTERN IDS FILE ...    prints the lines of merges.txt, without its first
Pieces are split by the package regex. An invalid byte is a character that is neither a letter, a number nor white space.
"""
import collections
import pathlib
import sys

CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s%s"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EXPRESSIONS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": "|".join([CASED % ("*", "+", CONTRACTION), CASED % ("+", "*", CONTRACTION), r"\p{N}{1,3}", REST]),
    "tekken": "|".join([CASED % ("*", "+", ""), CASED % ("+", "*", ""), r"\p{N}", REST]),
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "nanochat": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
}


def byte_alphabet():
    """The printable character for each byte, in the order of GPT-2's ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def pieces_of(pattern, data):
    import regex
    text = data.decode("utf-8", "surrogateescape")
    return [piece.encode("utf-8", "surrogateescape") for piece in regex.findall(EXPRESSIONS[pattern], text)]


def merged(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if tuple(ids[i:i + 2]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def train(counts, merges):
    """Pairs of ids in the order of merging. `counts` maps pieces, as bytes, to their counts."""
    order = list(byte_alphabet())
    tokens = [bytes([b]) for b in order]
    pieces = [([order.index(b) for b in piece], count) for piece, count in counts.items()]
    result, passed_over = [], set()
    while len(result) < merges:
        pairs = collections.Counter()
        for ids, count in pieces:
            for pair in zip(ids, ids[1:]):
                pairs[pair] += count
        candidates = [(-count, pair) for pair, count in pairs.items() if pair not in passed_over]
        if not candidates:
            break
        pair = min(candidates)[1]
        new = tokens[pair[0]] + tokens[pair[1]]
        if new in tokens:
            passed_over.add(pair)
            continue
        result.append(pair)
        tokens.append(new)
        pieces = [(merged(ids, pair, len(tokens) - 1), count) for ids, count in pieces]
    return result, tokens


def main():
    pattern, ids, *files = sys.argv[1:]
    counts = collections.Counter()
    for file in files:
        counts.update(pieces_of(pattern, pathlib.Path(file).read_bytes()))
    alphabet = byte_alphabet()
    merges, tokens = train(counts, int(ids) - 257)
    for pair in merges:
        print(*("".join(alphabet[b] for b in tokens[i]) for i in pair))


if __name__ == "__main__":
    main()
