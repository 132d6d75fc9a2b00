#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets libFuzzer look for inputs that end the deck parser, the token readers, the manifest reader, the
# record or the readers of tokenizers and weights otherwise than in words.
#   usage: bash tests/fuzz/run.sh [SECONDS|--build]      exit code 77: no clang with libFuzzer here
# With SECONDS each fuzzer looks for so long, elsewhere every time. Without, as a test, it tries a number of inputs from a fixed seed at
# fixed addresses, so that the pace of the machine does not decide what it finds, and chance does only by the names of temporary files.
# An input that was found stays in build-fuzz/found; put it into tests/fuzz/corpus with the fix.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
seconds=${1:-}
declare -A runs=([deck]=5000 [tokens]=100000 [manifest]=50000 [record]=600 [tokenizer]=20000 [weights]=20000) # a few seconds each
compiler=$(bash tests/fuzz/compiler.sh) || { code=$? && echo "$compiler" && exit $code; }
CC=${compiler/++/} CXX=$compiler PRESET=fuzz bash jobs/build.sh
[ "$seconds" != --build ] || exit 0
mkdir -p build-fuzz/found
for target in deck tokens manifest record tokenizer weights; do
  known=(tests/fuzz/corpus/$target)
  [ $target != deck ] || known+=(input)
  corpus=build-fuzz/corpus/$target
  place=() looks=(-max_total_time="$seconds")
  if [ -z "$seconds" ]; then
    corpus=build-fuzz/tested/$target
    looks=(-runs=${runs[$target]} -seed=1)
    ! setarch -R true 2>/dev/null || place=(setarch -R) # a container may forbid it
    rm -rf "$corpus" # what was found before is not tried
  fi
  mkdir -p "$corpus"
  log=build-fuzz/$target.log
  # Leaks are asan's tests to find; here they would blame the libraries.
  if ! UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 "${place[@]}" build-fuzz/fuzz_$target "$corpus" "${known[@]}" \
    "${looks[@]}" -max_len=4096 -timeout=60 -detect_leaks=0 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/found/$target- >"$log" 2>&1; then
    tail -n 60 "$log"
    exit 1
  fi
  echo "fuzz: $target, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, nothing found"
done
