#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the files that differ from a commit. Looks for unclear words in changed lines (dev/plain_words.py), formats all C++ files if
# clang-format 14 is installed, and runs clang-tidy on the changed sources in src/ if clang-tidy 16 is.
#   usage: bash dev/check_changes.sh [COMMIT]        default: HEAD, which checks uncommitted changes
# Exit code 1 if a changed file had to be formatted, or clang-tidy or plain_words.py found something. As a hook: .pre-commit-config.yaml.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
mapfile -t changed < <({ git diff --name-only --diff-filter=d "${1:-HEAD}"; git ls-files --others --exclude-standard; } |
  grep -E '^(src|tests)/.*\.(hpp|cpp|cu|cuh)$' | sort -u)
status=0
python3 dev/plain_words.py --changed "${1:-HEAD}" || status=1
[ ${#changed[@]} -gt 0 ] || { echo "no C++ file differs from ${1:-HEAD}"; exit $status; }
before=$(sha256sum "${changed[@]}")
bash tests/format.sh --fix || [ $? -eq 77 ] || status=1
if [ "$(sha256sum "${changed[@]}")" != "$before" ]; then
  echo "formatted: look at the changes and add them"
  status=1
fi
sources=()
for file in "${changed[@]}"; do
  [[ $file != src/*.cpp ]] || sources+=("$file")
done
if [ ${#sources[@]} -gt 0 ]; then
  bash tests/tidy.sh "${sources[@]}" || [ $? -eq 77 ] || status=1
fi
exit $status
