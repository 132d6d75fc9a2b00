#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the tests with the address and undefined-behaviour sanitizers, and an emulated GPU if CUDA's headers are installed. Runs the unit
# tests, and the MPI tests on two ranks.
#   usage: bash tests/sanitized.sh [core] [--build-only]
# core: only the tests with the label `core` (base, files, layout, device, comm, ops, optim, reduce, model and the emulated GPU).
# tests/run.sh runs that part. The whole takes about as long as tests/run.sh.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
exec </dev/null

targets=(unit_tests mpi_tests) selection=() run=yes
for argument in "$@"; do
  case $argument in
    core) targets=(core_tests) selection=(-L '^core$') ;;
    --build-only) run=no ;;
    *) echo "usage: bash tests/sanitized.sh [core] [--build-only]" >&2 && exit 2 ;;
  esac
done
PRESET=asan bash jobs/build.sh "${targets[@]}"
if [ $run = yes ]; then
  ctest --preset asan -j "$(nproc)" "${selection[@]}"
fi
