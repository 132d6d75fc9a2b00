#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs libFuzzer on the deck parser, the token readers, the manifest reader, the record and the readers of tokenizers and weights. It
# searches for inputs that do not end in success or an error message.
#   usage: bash tests/fuzz/run.sh [SECONDS|--build]      exit code 77: skipped, no clang with libFuzzer is installed
# With SECONDS, each fuzzer runs for SECONDS with a random seed. Without it (as a test), each tries a fixed number of inputs with a fixed
# seed and fixed addresses, so that the result depends neither on the machine's speed nor, except for names of temporary files, on chance.
# Inputs that fail are stored in build-fuzz/found. Add them to tests/fuzz/corpus with the fix.
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
    ! setarch -R true 2>/dev/null || place=(setarch -R) # not permitted in some containers
    rm -rf "$corpus" # do not start from inputs of earlier runs
  fi
  mkdir -p "$corpus"
  log=build-fuzz/$target.log
  # Leaks are not checked: here they would be those of libraries. The asan tests find ours.
  if ! UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 "${place[@]}" build-fuzz/fuzz_$target "$corpus" "${known[@]}" \
    "${looks[@]}" -max_len=4096 -timeout=60 -detect_leaks=0 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/found/$target- >"$log" 2>&1; then
    tail -n 60 "$log"
    exit 1
  fi
  echo "fuzz: $target, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, nothing found"
done
