#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy 16 with .clang-tidy on the sources. (14 cannot parse the <ranges> of libstdc++ 12, and later versions have other checks.)
# It configures build-dev-cpu, which is not a unity build: in build/, single sources have no compile command.
#   usage: bash tests/tidy.sh [FILE_OR_FOLDER …]        default: src; JOBS: number of processes
# Exit code 77: skipped, clang-tidy 16 is not installed (Debian: clang-tidy-16).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
tool=
for candidate in clang-tidy-16 clang-tidy; do
  if "$candidate" --version 2>/dev/null | grep -q 'version 16\.'; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "skipped: clang-tidy 16 is not installed"
  exit 77
fi
log=$(cmake --preset dev-cpu 2>&1) || {
  printf '%s\n' "$log" >&2
  exit 3
}
[ $# -gt 0 ] || set -- src
# Debian installs only one libomp at a time, and clang cannot parse g++'s omp.h, so search the omp.h of any other clang last.
after=()
for header in /usr/lib/llvm-*/lib/clang/*/include/omp.h; do
  [ ! -e "$header" ] || after=(--extra-arg=-idirafter --extra-arg="$(dirname "$header")")
done
find "$@" -type f -name '*.cpp' -print0 | sort -z |
  xargs -0 -n 1 -P "${JOBS:-$(nproc)}" "$tool" -p build-dev-cpu --quiet \
    --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument "${after[@]}" \
    2> >(grep -v 'warnings generated' >&2)
echo "clang-tidy: nothing found"
