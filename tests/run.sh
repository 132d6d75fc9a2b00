#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages, builds, and runs every test. Then it builds the tests of memory, communication and kernels again with the
# address and undefined-behaviour sanitizers (tests/sanitized.sh core) and runs them. Exits non-zero if a test fails or if there was none to
# run. Tests with the label `long` repeat others with more settings and run only on request (`-L long`). Further tests have their own
# scripts: tests/sanitized.sh (all tests with sanitizers), tests/processors.sh (emulated processors without AVX-512), tests/fuzz/run.sh (the
# unit tests replay what the fuzzers found) and tests/aarch64.sh.
#   usage: bash tests/run.sh [CTEST_OPTION …]     e.g. bash tests/run.sh -R layout
# TRIREME_SANITIZERS=off skips the sanitizers. Options for ctest skip them too.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
exec </dev/null
start=$SECONDS

bash modules/packages/setup.sh tests
PRESET=cpu bash jobs/build.sh

results=()
status=0
run_tests() { # arguments: name, then the command
  local name=$1 from=$SECONDS code=0 verdict
  shift
  "$@" || code=$?
  case $code in
    0) verdict=passed ;;
    *) verdict="FAILED (exit $code)" status=1 ;;
  esac
  results+=("$(printf '%-10s %s, %d s' "$name" "$verdict" $((SECONDS - from)))")
}

# The tests that start MPI and Slurm wait more than they compute. Meanwhile the tests for the sanitizers are built at low priority; the log
# of that build is shown only if it fails.
sanitized_log=build/sanitized.log
sanitized() {
  wait "$1" || { cat "$sanitized_log"; return 1; }
  bash tests/sanitized.sh core
}

jobs=$(nproc)
if [ $# -gt 0 ]; then
  run_tests chosen ctest --preset cpu "$@"
else
  # Unit tests run first because they fail most often, then the others. An MPI test takes two of ctest's seven slots on any machine, so
  # three run at a time: with two, half of two cores was idle. A Slurm test takes one slot, so that its time limits pass while others run.
  run_tests unit ctest --preset cpu -j "$jobs" -L '^unit$'
  if [ "${TRIREME_SANITIZERS:-on}" != off ]; then
    set -m # a separate process group, to end the build with this script
    nice -n 19 bash tests/sanitized.sh core --build-only >"$sanitized_log" 2>&1 &
    building=$!
    set +m
    trap 'kill -- -$building 2>/dev/null || true' EXIT
  fi
  run_tests others ctest --preset cpu -j 7 -LE '^(unit|long)$'
  if [ "${TRIREME_SANITIZERS:-on}" != off ]; then
    run_tests sanitized sanitized $building
  fi
fi

echo
printf 'tests: %s\n' "${results[@]}"
echo "tests: $([ $status -eq 0 ] && echo 'all passed' || echo 'SOME FAILED'), $((SECONDS - start)) s in all"
exit $status
