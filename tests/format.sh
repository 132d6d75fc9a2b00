#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks every C++ file against .clang-format. The major version is pinned, because versions format differently.
#   usage: bash tests/format.sh [--fix]          exit code 77: skipped, clang-format 14 is not installed
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
tool=
for candidate in clang-format-14 clang-format /usr/bin/clang-format-14; do
  if "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "skipped: clang-format 14 is not installed"
  exit 77
fi
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
find src tests -type f \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 "$tool" "${mode[@]}"
