#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures one preset of CMakePresets.json in a temporary folder and builds nothing.
#   usage: presets_test.sh SOURCE_DIR PRESET      exit code 77: the tools of the preset are not installed
set -uo pipefail
preset=$2
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
skip() {
  echo "skipped: preset $preset needs $1"
  exit 77
}

options=()
case $preset in
  dev-cpu | audit) options=(-DTRIREME_CUDA=OFF) ;; # searching for CUDA takes ten seconds; the preset cuda tests it
  mpich)
    if [ ! -x /usr/bin/mpicc.mpich ] || [ ! -x /usr/bin/h5pcc.mpich ]; then skip "Debian's MPICH and its HDF5"; fi
    ;;
  fuzz)
    CXX=$(bash "$1/tests/fuzz/compiler.sh") || { code=$? && echo "$CXX" && exit $code; }
    export CXX CC=${CXX/++/}
    ;;
esac
cd "$1" || exit 1
if ! cmake --preset "$preset" -B "$here/build" "${options[@]}" >"$here/out" 2>&1; then
  cat "$here/out"
  ! grep -q 'TRIREME_CUDA=ON, but these were not found' "$here/out" || skip "what is listed above"
  exit 1
fi
echo "preset $preset: configured"
