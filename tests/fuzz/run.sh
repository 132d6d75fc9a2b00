#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets libFuzzer look for inputs that end the deck parser, the token readers or the manifest reader otherwise than in words.
#   usage: bash tests/fuzz/run.sh [SECONDS]      of each fuzzer, default 5; exit code 77: no clang with libFuzzer here
# An input that was found stays in build-fuzz/found; put it into tests/fuzz/corpus with the mend.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-5}
if ! command -v clang++-14 >/dev/null ||
  ! clang++-14 -fsanitize=fuzzer -x c++ -o /dev/null - <<<'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' 2>/dev/null; then
  echo "skipped: fuzzing needs clang++-14, libclang-rt-14-dev and libomp-14-dev (bash modules/debian/setup.sh tests installs them on Debian)"
  exit 77
fi
PRESET=fuzz bash jobs/build.sh
mkdir -p build-fuzz/found
for target in deck tokens manifest; do
  known=(tests/fuzz/corpus/$target)
  [ $target != deck ] || known+=(input)
  mkdir -p build-fuzz/corpus/$target
  log=build-fuzz/$target.log
  # Leaks are asan's tests to find; here they would blame the libraries.
  if ! UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 build-fuzz/fuzz_$target build-fuzz/corpus/$target "${known[@]}" \
    -max_total_time="$seconds" -max_len=4096 -timeout=10 -detect_leaks=0 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/found/$target- >"$log" 2>&1; then
    tail -n 60 "$log"
    exit 1
  fi
  echo "fuzz: $target, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, nothing found"
done
