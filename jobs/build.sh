#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one preset of CMakePresets.json.
#   usage: bash jobs/build.sh [TARGET …]
# PRESET=cpu (default: build/), cuda, mpich, dev-cpu, audit, asan, tsan or fuzz; JOBS=number of compilers.
# ccache is used if it is installed; clones in different folders share its contents. If nvcc is found but another part of CUDA is missing,
# the build continues without CUDA and prints what is missing.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
preset=${PRESET:-cpu}
options=()
if command -v ccache >/dev/null; then
  launcher="env;CCACHE_BASEDIR=$PWD;CCACHE_NOHASHDIR=1;ccache"
  options+=("-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher" "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher")
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "build: configuring preset $preset"
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  exit 3
fi
# The parts of CUDA that CMake reports as missing. Without nvcc, this is taken for a machine without GPUs, and nothing is printed.
missing=$(sed -n '/^-- Without CUDA; it would take$/,/^[^ ]/{/^  /p}' "$log")
if [ -n "$missing" ] && ! grep -q 'no nvcc on PATH' <<<"$missing"; then
  printf 'build: nvcc was found, but this build has no CUDA. It needs:\n%s\n' "$missing" >&2
  echo "build: load the module or set its path, then build again. PRESET=cuda makes this an error, -DTRIREME_CUDA=OFF silences it." >&2
fi
jobs=${JOBS:-$(nproc)}
if [ $# -gt 0 ]; then
  cmake --build --preset "$preset" -j "$jobs" --target "$@"
else
  cmake --build --preset "$preset" -j "$jobs"
fi
