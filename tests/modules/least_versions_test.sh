#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the errors of CMake for a compiler, MPI, HDF5 or oneDNN that is too old: version found, minimum version, and advice. Find modules
# placed before CMake's own report other versions than the installed ones, and a wrapper of g++ reports version 11.
#   usage: least_versions_test.sh SOURCE_DIR
set -uo pipefail
here=$(mktemp -d) failures=0
trap 'rm -rf "$here"' EXIT
mkdir "$here/find"
for names in MPI_C_VERSION "HDF5_VERSION HDF5_IS_PARALLEL"; do
  cat >"$here/find/Find${names%%_*}.cmake" <<END
include(\${CMAKE_ROOT}/Modules/Find${names%%_*}.cmake)
foreach(name $names)
  if(DEFINED TEST_\${name})
    set(\${name} \${TEST_\${name}})
  endif()
endforeach()
END
done
printf 'set(dnnl_FOUND TRUE)\nset(dnnl_VERSION 2.5)\n' >"$here/find/Finddnnl.cmake"
configure=(cmake -S "$1" -B "$here/build" -DTRIREME_TESTS=OFF -DTRIREME_CUDA=OFF -DTRIREME_ONEDNN=OFF -DCMAKE_MODULE_PATH="$here/find" -U "TEST_*") # -U: unset earlier values

said() { # argument: expected text
  tr '\n' ' ' <"$here/out" | tr -s ' ' | grep -qF -- "$1" || { echo "nothing about '$1':" && cat "$here/out" && failures=$((failures + 1)); }
}
refused() { # arguments: expected text of the error, then options of cmake
  local words=$1
  shift
  ! "${configure[@]}" "$@" >"$here/out" 2>&1 || { echo "configured, with $*" && failures=$((failures + 1)); }
  said "$words"
}
taken() { # options of cmake
  "${configure[@]}" "$@" >"$here/out" 2>&1 || { echo "not configured, with $*" && cat "$here/out" && failures=$((failures + 1)); }
  ! grep -q 'CMake Warning' "$here/out" || { echo "a warning, with $*" && cat "$here/out" && failures=$((failures + 1)); }
}

refused "is version 3.0 of the standard: trireme needs 3.1" -DTEST_MPI_C_VERSION=3.0
for version in 1.8.22 1.10.6 1.12.0; do
  refused "is too old: trireme needs 1.10.7 or later, and of 1.12 it needs 1.12.1. -DHDF5_C_COMPILER_EXECUTABLE=DIR/h5pcc" -DTEST_HDF5_VERSION=$version
  said "HDF5 $version in "
done
refused "oneDNN 2.5 in" -DTRIREME_ONEDNN=ON
taken -DTEST_HDF5_VERSION=1.10.7 -DTEST_HDF5_IS_PARALLEL=OFF
said "-- HDF5 1.10.7 was built without MPI"
taken -DTEST_HDF5_VERSION=1.12.1 -DTEST_MPI_C_VERSION=4.0
printf '#!/bin/sh\nexit 1\n' >"$here/h5pcc" && chmod +x "$here/h5pcc" # HDF5's own wrapper fails like this if the path has a space
refused "h5pcc and h5cc fail in '$here/two words', because of the space" -B "$here/two words" -DHDF5_C_COMPILER_EXECUTABLE="$here/h5pcc"

if command -v g++ >/dev/null; then
  printf '#!/bin/sh\nexec g++ -w -U__GNUC__ -D__GNUC__=11 "$@"\n' >"$here/g++-11"
  chmod +x "$here/g++-11"
  refused "g++-11 is GNU 11." -B "$here/build-compiler" -DCMAKE_CXX_COMPILER="$here/g++-11"
  said "trireme needs g++ 12 or later, or clang++ 16 or later. CXX=g++-12"
fi

[ $failures -eq 0 ] && echo "least versions: as expected"
exit $((failures > 0))
