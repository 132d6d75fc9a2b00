#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test; then builds the unit tests, and the MPI tests for two ranks, once more with the
# address and undefined-behaviour sanitizers and runs those, and lets clang's fuzzers look for five seconds each. Exits non-zero when a
# test fails or when there was none to run.
#   usage: bash tests/run.sh [CTEST_OPTION …]     e.g. bash tests/run.sh -R layout
# TRIREME_SANITIZERS=off leaves the sanitizers out; with options for ctest they are left out too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
start=$SECONDS

bash modules/debian/setup.sh tests
PRESET=cpu bash jobs/build.sh

results=()
status=0
run_tests() { # name, then what to run
  local name=$1 from=$SECONDS verdict=passed
  shift
  "$@" || { verdict="FAILED (exit $?)"; status=1; }
  results+=("$(printf '%-10s %s, %d s' "$name" "$verdict" $((SECONDS - from)))")
}

jobs=$(nproc)
if [ $# -gt 0 ]; then
  run_tests chosen ctest --preset cpu "$@"
else
  # What breaks the most is told first: the unit tests, then those that start MPI, then the rest.
  run_tests unit ctest --preset cpu -j "$jobs" -L '^unit$'
  run_tests others ctest --preset cpu -j "$jobs" -LE '^unit$'
  if [ "${TRIREME_SANITIZERS:-on}" != off ]; then
    if PRESET=asan bash jobs/build.sh unit_tests mpi_tests; then
      run_tests sanitized ctest --preset asan -j "$jobs"
    else
      results+=("sanitized  FAILED to build")
      status=1
    fi
    fuzzing=0
    bash tests/fuzz/run.sh 5 || fuzzing=$?
    [ $fuzzing -eq 77 ] || run_tests fuzz test $fuzzing -eq 0
  fi
fi

echo
printf 'tests: %s\n' "${results[@]}"
echo "tests: $([ $status -eq 0 ] && echo 'all passed' || echo 'SOME FAILED'), $((SECONDS - start)) s in all"
exit $status
