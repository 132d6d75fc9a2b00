#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs every test; then builds the tests of memory, communication and kernels once more with the
# address and undefined-behaviour sanitizers (tests/sanitized.sh core) and runs those. Exits non-zero when a test fails or when there was
# none to run. Tests with the label `long` repeat what others prove on more settings; they run only on request, with `-L long`. Further
# proofs have scripts of their own: tests/sanitized.sh (all tests under the sanitizers), tests/processors.sh (processors without AVX-512,
# emulated), tests/fuzz/run.sh (the unit tests replay what the fuzzers have found), tests/aarch64.sh.
#   usage: bash tests/run.sh [CTEST_OPTION …]     e.g. bash tests/run.sh -R layout
# TRIREME_SANITIZERS=off leaves the sanitizers out; with options for ctest they are left out too.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
exec </dev/null
start=$SECONDS

bash modules/packages/setup.sh tests
PRESET=cpu bash jobs/build.sh

results=()
status=0
run_tests() { # name, then what to run
  local name=$1 from=$SECONDS code=0 verdict
  shift
  "$@" || code=$?
  case $code in
    0) verdict=passed ;;
    *) verdict="FAILED (exit $code)" status=1 ;;
  esac
  results+=("$(printf '%-10s %s, %d s' "$name" "$verdict" $((SECONDS - from)))")
}

# The tests that start MPI and Slurm wait more than they compute. Beside them, and only where they leave room, the trees of the
# sanitized part are built; what that says is shown when its turn has come.
sanitized_log=build/sanitized.log
sanitized() {
  wait "$1" || { cat "$sanitized_log"; return 1; }
  bash tests/sanitized.sh core
}

jobs=$(nproc)
if [ $# -gt 0 ]; then
  run_tests chosen ctest --preset cpu "$@"
else
  # What breaks the most comes first: the unit tests, then those that start MPI, then the rest. A test with MPI takes two of ctest's seven
  # places, on any machine, so three of them run at a time: two left half of two cores idle. Slurm's take one, so that their time limits
  # pass beside the others.
  run_tests unit ctest --preset cpu -j "$jobs" -L '^unit$'
  if [ "${TRIREME_SANITIZERS:-on}" != off ]; then
    set -m # a process group of its own, which ends with this script
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
