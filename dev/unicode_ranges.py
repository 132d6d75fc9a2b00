#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_ranges.hpp: the kinds of all code points, and the tables for normalization form C.

usage: unicode_ranges.py > src/data/text/unicode_ranges.hpp

The data come from the package unicodedata2 of PyPI if it is installed, otherwise from Python's unicodedata. The committed file was made
with unicodedata2==16.0.0, the version of Unicode that tokenizers and tiktoken used at that time. White_Space is not a category, so its
25 code points, unchanged since Unicode 6.3, are listed here (PropList.txt of the Unicode Character Database).
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WHITE_SPACE = [(0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
               (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
WIDTH = 94
HANGUL = range(0xAC00, 0xD7A4)
# General category -> value of the enumeration Kind in characters.hpp.
KINDS = {"Lm": 1, "Lo": 1, "Nd": 2, "Nl": 2, "No": 2, "Lu": 4, "Lt": 4, "Ll": 5, "Mn": 6, "Mc": 6, "Me": 6,
         "Pc": 7, "Pd": 7, "Ps": 7, "Pe": 7, "Pi": 7, "Pf": 7, "Po": 7, "Sm": 8, "Sc": 8, "Sk": 8, "So": 8}


def coded(number):
    """Encodes a number as characters of five bits each, the lowest bits first. All characters but the last have 32 added."""
    text = ""
    while True:
        number, digit = number >> 5, number & 31
        text += chr(ord("0") + digit + (32 if number else 0))
        if not number:
            return text


def runs_of(value):
    """Returns [value, length] for each run of consecutive code points that have the same `value`."""
    runs = []
    for code in range(sys.maxunicode + 1):
        if runs and runs[-1][0] == value(code):
            runs[-1][1] += 1
        else:
            runs.append([value(code), 1])
    return runs


def alternations_joined(runs):
    """Replaces runs of alternating single upper-case and lower-case letters (two pairs or more) by one run of kind 9."""
    joined, at = [], 0
    while at < len(runs):
        end = at
        while runs[end:end + 2] == [[4, 1], [5, 1]]:
            end += 2
        joined.append([9, end - at] if end > at + 2 else runs[at])
        at = end if end > at + 2 else at + 1
    return joined


def runs_coded(runs, factor):
    return "".join(coded(value + factor * length) for value, length in runs)


def kind_of(code):
    return 3 if any(first <= code <= last for first, last in WHITE_SPACE) else KINDS.get(unicodedata.category(chr(code)), 0)


def combining_class(code):
    return unicodedata.combining(chr(code))


def decompositions():
    """Encodes three numbers for each code point with a canonical decomposition: its distance from the previous such code point, the
    signed distance of its first part from the previous first part, and 2 * second part (0: none) + whether composition restores it."""
    text, before, first_before = "", 0, 0
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code))
        if not parts or parts[0] == "<" or code in HANGUL:
            continue
        first, second = ([int(part, 16) for part in parts.split()] + [0])[:2]
        composes = unicodedata.normalize("NFC", chr(code)) == chr(code)
        step = first - first_before
        text += coded(code - before) + coded(2 * step if step >= 0 else -2 * step - 1) + coded(2 * second + composes)
        before, first_before = code, first
    return text


def table(name, comment, text):
    lines = [f"/// {comment}", f"inline constexpr std::string_view {name} ="]
    lines += [f'    R"({text[at:at + WIDTH - 6]})"' for at in range(0, len(text), WIDTH - 6)]
    return "\n".join(lines) + ";"


def main():
    version = unicodedata.unidata_version
    print(f"""// SPDX-License-Identifier: Apache-2.0
// Kinds and normalization of the code points of Unicode {version}, coded as numbers (characters.cpp).
// Written by unicode_ranges.py; do not edit. Data: Unicode Character Database, under the Unicode
// licence (unicode.org/license.txt).
#pragma once

#include <string_view>

namespace trireme::text {{

/// Of the tables below. It decides how newly assigned characters are split, so it is recorded with
/// a tokenizer.
inline constexpr std::string_view unicode_version = "{version}";

// clang-format off
{table("kind_runs", "Runs of equal kinds over all code points: kind + 16 * length. 9: upper and lower in turn.",
       runs_coded(alternations_joined(runs_of(kind_of)), 16))}
{table("combining_runs", "Runs of equal combining classes: class + 256 * length.", runs_coded(runs_of(combining_class), 256))}
{table("decompositions", "Distances from the one before of it and its first part, 2 * second part + whether they compose.", decompositions())}
// clang-format on

}}  // namespace trireme::text""")


if __name__ == "__main__":
    main()
