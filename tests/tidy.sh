#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy 14 with .clang-tidy on the sources; build/ must be configured.
#   usage: bash tests/tidy.sh [FILE_OR_FOLDER …]        default: src; JOBS=number at once
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "error: clang-tidy 14 is not installed (Debian: clang-tidy-14)" >&2
  exit 3
}
[ -f build/compile_commands.json ] || {
  echo "error: build/ is not configured: run bash jobs/build.sh" >&2
  exit 3
}
[ $# -gt 0 ] || set -- src
find "$@" -type f -name '*.cpp' -print0 | sort -z |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "$tool" -p build --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -v 'warnings generated' >&2)
echo "clang-tidy: nothing found"
