#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the configuration says of CUDA libraries that are too old: the least version, the one found and where, and what to do.
#   usage: cuda_versions_test.sh SOURCE_DIR         where the CUDA toolkit is
set -uo pipefail
here=$(mktemp -d) failures=0
trap 'rm -rf "$here"' EXIT
mkdir "$here/nccl" "$here/cudnn"
printf '#define NCCL_MAJOR 2\n#define NCCL_MINOR 18\n#define NCCL_PATCH 3\n' >"$here/nccl/nccl.h"
printf '#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n' >"$here/cudnn/cudnn_version.h"
touch "$here/libcudnn.so.9" "$here/libnccl.so.2"

configure() { # what the errors are to say, after the options
  local words=$1
  shift
  if cmake -S "$source" -B "$here/build" -DTRIREME_TESTS=OFF -DTRIREME_CUDA=ON "$@" >"$here/out" 2>&1; then
    echo "configured, with $*" && failures=$((failures + 1))
  elif ! tr '\n' ' ' <"$here/out" | tr -s ' ' | grep -qF -- "$words"; then
    echo "nothing about '$words':" && cat "$here/out" && failures=$((failures + 1))
  fi
}
source=$1
configure "NCCL 2.19 or later, and $here/nccl has 2.18" -DTRIREME_NCCL_INCLUDE="$here/nccl" -DTRIREME_NCCL_LIBRARY="$here/libnccl.so.2"
configure "cuDNN 9.0 or later, and $here/cudnn has 8.9" -DTRIREME_CUDNN_INCLUDE="$here/cudnn" -DTRIREME_CUDNN_LIBRARY="$here/libcudnn.so.9"
configure "or build for CPUs with -DTRIREME_CUDA=OFF" -DTRIREME_CUDNN_FRONTEND_INCLUDE=
[ $failures -eq 0 ] && echo "CUDA's versions: as expected"
exit $((failures > 0))
