#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_ranges.hpp: which code points are letters, numbers and white space.

usage: unicode_ranges.py > src/data/text/unicode_ranges.hpp

Letters are general category L*, numbers N*, as \\p{L} and \\p{N} of regular expressions. They come from Python's unicodedata, or from
the package unicodedata2 of PyPI where that is installed, which offers other versions of Unicode (unicodedata2==16.0.0 made the file that
is here: the version of tokenizers and tiktoken at that time). White_Space is not a category; its 25 code points, the same since
Unicode 6.3, are listed here (PropList.txt of the Unicode Character Database).
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

WHITE_SPACE = [(0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
               (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
WIDTH = 98


def ranges_of(kind):
    """First and last code points of the runs of a general category's first letter."""
    runs = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] != kind:
            continue
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def table(name, comment, ranges):
    lines = [f"/// {comment}", f"inline constexpr CodePointRange {name}[] = {{"]
    line = "   "
    for first, last in ranges:
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > WIDTH:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join(lines + [line, "};"])


def main():
    version = unicodedata.unidata_version
    print(f"""// SPDX-License-Identifier: Apache-2.0
// Letters, numbers and white space of Unicode {version}, as ranges of code points in increasing order.
// Written by unicode_ranges.py; do not edit. Data: Unicode Character Database, under the Unicode
// licence (unicode.org/license.txt).
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::text {{

/// Of the tables below. It decides how newly assigned characters are split, so it is recorded with a
/// tokenizer.
inline constexpr std::string_view unicode_version = "{version}";

/// First and last code point.
struct CodePointRange {{
  std::uint32_t first, last;
}};

// clang-format off
{table("letter_ranges", "General category L.", ranges_of("L"))}
{table("number_ranges", "General category N.", ranges_of("N"))}
{table("space_ranges", "Property White_Space.", WHITE_SPACE)}
// clang-format on

}}  // namespace trireme::text""")


if __name__ == "__main__":
    main()
