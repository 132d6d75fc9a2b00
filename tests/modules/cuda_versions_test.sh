#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the errors of CMake for CUDA libraries that are too old: minimum version, version found, folder, and advice. The site set-up for
# GPUs (modules/generic-slurm-cuda) must fail with the same error and never build without CUDA. Also checked: nvcc outside PATH, an nvcc
# that fails, and that jobs/build.sh, which hides CMake's output on success, reports what is missing if there is an nvcc.
#   usage: cuda_versions_test.sh SOURCE_DIR         where the CUDA toolkit is
set -uo pipefail
here=$(mktemp -d) failures=0
trap 'rm -rf "$here"' EXIT
mkdir "$here/nccl" "$here/cudnn"
printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 18\n#define NCCL_PATCH 3\n' >"$here/nccl/nccl.h"
printf '#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n' >"$here/cudnn/cudnn_version.h"
touch "$here/libcudnn.so.9" "$here/libnccl.so.2"
toolkit=$here/toolkit # looks like CUDA 11.8 with all required libraries
mkdir -p "$toolkit"/{bin,include,lib64}
printf '#!/bin/sh\necho "Cuda compilation tools, release 11.8, V11.8.89"\n' >"$toolkit/bin/nvcc"
chmod +x "$toolkit/bin/nvcc"
touch "$toolkit/include/cuda_runtime.h" "$toolkit"/lib64/{libcudart.so,libcudart_static.a,libcublas.so,libcublasLt.so}

refused() { # arguments: expected text of the error, then the command
  local words=$1
  shift
  if "$@" >"$here/out" 2>&1; then
    echo "configured, with $*" && failures=$((failures + 1))
  elif ! tr '\n' ' ' <"$here/out" | tr -s ' ' | grep -qF -- "$words"; then
    echo "nothing about '$words':" && cat "$here/out" && failures=$((failures + 1))
  fi
}
source=$1
on=(cmake -S "$source" -B "$here/build" -DTRIREME_TESTS=OFF -DTRIREME_CUDA=ON)
old_nccl=(-DTRIREME_NCCL_INCLUDE="$here/nccl" -DTRIREME_NCCL_LIBRARY="$here/libnccl.so.2")
refused "NCCL 2.19 or later, and $here/nccl has 2.18" "${on[@]}" "${old_nccl[@]}"
refused "CUDA 12.0 or later with cudart_static and cuBLASLt, and found is 11.8" "${on[@]}" -B "$here/build-toolkit" -DCUDAToolkit_ROOT="$toolkit"
refused "cuDNN 9.0 or later, and $here/cudnn has 8.9" "${on[@]}" -DTRIREME_CUDNN_INCLUDE="$here/cudnn" -DTRIREME_CUDNN_LIBRARY="$here/libcudnn.so.9"
refused "GPUs of compute capability 8.0 or later, and CMAKE_CUDA_ARCHITECTURES has 75-real" "${on[@]}" "-DCMAKE_CUDA_ARCHITECTURES=75-real;90"
refused "or build for CPUs with -DTRIREME_CUDA=OFF" "${on[@]}" -DTRIREME_CUDNN_FRONTEND_INCLUDE=

# An nvcc outside PATH is found, a broken nvcc is reported with its error, and a missing nvcc is reported as missing.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
folders='' ignored=-DCMAKE_IGNORE_PATH=/usr/local/cuda/bin # folders of PATH without nvcc; folders with nvcc
while read -r folder; do
  if [ -x "$folder/nvcc" ]; then ignored+=";$folder"; else folders+=${folders:+:}$folder; fi
done < <(tr : '\n' <<<"$PATH")
none=(env -u CUDACXX -u CUDA_HOME -u CUDA_PATH PATH="$folders")
broken=$here/broken
mkdir -p "$broken/bin"
printf '#!/bin/sh\necho "host_config.h:1: error: #error -- unsupported GNU version [of a test]; later than 11" >&2\nexit 1\n' >"$broken/bin/nvcc"
chmod +x "$broken/bin/nvcc"
refused "NCCL 2.19 or later, and $here/nccl has 2.18" "${none[@]}" CUDA_HOME="$(dirname "${nvcc%/*}")" "${on[@]}" -B "$here/build-outside" "${old_nccl[@]}"
refused "no nvcc on PATH or in /usr/local/cuda/bin" "${none[@]}" "${on[@]}" -B "$here/build-none" "$ignored"
refused "NCCL 2.19 or later, and $here/nccl has 2.18" "${on[@]}" -B "$here/build-none" -DCMAKE_IGNORE_PATH= "${old_nccl[@]}"
for place in "CUDA_HOME=$broken" "CUDACXX=$broken/bin/nvcc"; do
  refused "$broken/bin/nvcc fails: host_config.h:1: error: #error -- unsupported GNU version of a test later than 11 (CMAKE_CUDA_HOST_COMPILER or" \
    "${none[@]}" "$place" "${on[@]}" -B "$here/build-broken" "$ignored"
done

module() { :; } # any module of the site loads
export -f module
refused "NCCL 2.19 or later, and $here/nccl has 2.18" bash "$source/modules/generic-slurm-cuda/install.sh" "$here/site" -B "$here/build-site" "${old_nccl[@]}"
[ ! -e "$here/site" ] || { echo "something was installed" && failures=$((failures + 1)); }
# Run jobs/build.sh on this source in a separate folder with separate presets. Its target is ninja's help, so nothing is compiled.
mkdir "$here/source"
for entry in "$source"/*; do
  case ${entry##*/} in build* | runs) ;; *) ln -s "$entry" "$here/source/" ;; esac
done
preset() { # arguments: name, cache variables
  printf '{"name": "%s", "inherits": "cpu", "binaryDir": "${sourceDir}/build-test", "cacheVariables": {"TRIREME_TESTS": "OFF", %s}}' "$1" "$2"
}
{
  echo '{"version": 5, "configurePresets": ['
  preset without-front-end '"TRIREME_CUDNN_FRONTEND_INCLUDE": ""' && echo ,
  preset without-nvcc "\"CMAKE_IGNORE_PATH\": \"${ignored#*=}\"" && echo ,
  preset for-cpus '"TRIREME_CUDA": "OFF"'
  echo '], "buildPresets": ['
  printf '{"name": "%s", "configurePreset": "%s"},' without-front-end{,} without-nvcc{,}
  echo '{"name": "for-cpus", "configurePreset": "for-cpus"}]}'
} >"$here/source/CMakeUserPresets.json"
built() { # argument: preset
  rm -rf "$here/source/build-test"
  PRESET=$1 bash "$here/source/jobs/build.sh" help >"$here/out" 2>&1 || { echo "no build with preset $1:" && cat "$here/out" && failures=$((failures + 1)); }
}
built without-front-end
for words in 'this build has no CUDA' "  cuDNN's front end (bash modules/packages/cudnn_frontend.sh fetches it" 'build again. PRESET=cuda'; do
  grep -qF -- "$words" "$here/out" || { echo "nothing about '$words':" && cat "$here/out" && failures=$((failures + 1)); }
done
[ "$(grep -c '^  [^ ]' "$here/out")" -eq 1 ] || { echo "more than the front end is said to be missing:" && cat "$here/out" && failures=$((failures + 1)); }
CUDACXX=$broken/bin/nvcc built without-nvcc
for words in 'this build has no CUDA' "$broken/bin/nvcc fails: host_config.h:1"; do
  grep -qF -- "$words" "$here/out" || { echo "nothing about '$words':" && cat "$here/out" && failures=$((failures + 1)); }
done
for preset in without-nvcc for-cpus; do
  built $preset
  ! grep -q CUDA "$here/out" || { echo "words about CUDA with preset $preset:" && cat "$here/out" && failures=$((failures + 1)); }
done

[ $failures -eq 0 ] && echo "CUDA's versions: as expected"
exit $((failures > 0))
