#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the name of a clang++ that can build the fuzzers. Some installed versions may lack the libraries: clang-tidy installs its own
# clang, and Debian can install only one libomp-dev at a time.
#   usage: bash tests/fuzz/compiler.sh       exit code 77: there is none; prints what is missing
set -euo pipefail
for candidate in clang++-14 clang++-{16..21} clang++; do
  if "$candidate" -fsanitize=fuzzer -fopenmp -x c++ -o /dev/null - 2>/dev/null \
    <<<'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'; then
    echo "$candidate"
    exit 0
  fi
done
echo "skipped: fuzzing needs clang++, libclang-rt-dev and libomp-dev of one version (bash modules/packages/setup.sh tests installs them)"
exit 77
