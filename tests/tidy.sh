#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy 14 with .clang-tidy on the sources. It configures build-dev-cpu, whose sources are compiled one by one: in build/, a
# unity build, no single source has a command.
#   usage: bash tests/tidy.sh [FILE_OR_FOLDER …]        default: src; JOBS=number at once
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tool=$(command -v clang-tidy-14 || command -v clang-tidy) || {
  echo "error: clang-tidy 14 is not installed (Debian: clang-tidy-14)" >&2
  exit 3
}
log=$(cmake --preset dev-cpu 2>&1) || {
  printf '%s\n' "$log" >&2
  exit 3
}
[ $# -gt 0 ] || set -- src
find "$@" -type f -name '*.cpp' -print0 | sort -z |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "$tool" -p build-dev-cpu --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -v 'warnings generated' >&2)
echo "clang-tidy: nothing found"
