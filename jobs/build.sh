#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one preset of CMakePresets.json.
#   usage: bash jobs/build.sh [TARGET …]        PRESET=cpu (default: build/), cuda, mpich, dev-cpu, audit, asan, tsan, fuzz; JOBS=number of compilers
# ccache is used when it is there. Where nvcc is and something else of CUDA is missing, the build goes on without CUDA, and says so here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${PRESET:-cpu}
options=()
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "build: configuring preset $preset"
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 3
fi
# CMake's words on what of CUDA is missing. Without any nvcc it is a machine for CPUs, and nothing is said.
missing=$(sed -n '/^-- Without CUDA; it would take$/,/^[^ ]/{/^  /p}' "$log")
if [ -n "$missing" ] && ! grep -q 'no nvcc on PATH' <<<"$missing"; then
  printf 'build: nvcc is on this machine, but the build is WITHOUT CUDA; it would take\n%s\n' "$missing" >&2
  echo "build: load, name or mend that and build again; with PRESET=cuda that is an error, and with -DTRIREME_CUDA=OFF nothing is said" >&2
fi
jobs=${JOBS:-$(nproc)}
if [ $# -gt 0 ]; then
  cmake --build --preset "$preset" -j "$jobs" --target "$@"
else
  cmake --build --preset "$preset" -j "$jobs"
fi
