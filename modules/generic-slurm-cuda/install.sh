#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds trireme with the modules of profile.sh, without the tests, and installs it.
# The site asks for GPUs: whatever CUDA lacks is an error. cuDNN's front end is fetched from PyPI, unless an option names its folder.
#   usage: bash modules/generic-slurm-cuda/install.sh PREFIX [CMAKE OPTION …]     e.g. -DTRIREME_CUDNN_FRONTEND=DIR
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
prefix=${1:?"usage: install.sh PREFIX [CMAKE OPTION …]"}
shift
type module >/dev/null 2>&1 || { echo "error: no module command: start this from a login shell of the cluster" >&2; exit 3; }
set +u # module functions use variables that may be unset
. modules/generic-slurm-cuda/profile.sh
set -u
[[ " $*" == *" -DTRIREME_CUDNN_FRONTEND="* || " $*" == *" -DTRIREME_CUDA=OFF"* ]] || bash modules/packages/cudnn_frontend.sh
cmake -S . -B build-site -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRIREME_TESTS=OFF -DTRIREME_CUDA=ON "$@"
cmake --build build-site --target trireme
cmake --install build-site --prefix "$prefix"
echo "installed: module use $prefix/share/modulefiles && module load trireme"
