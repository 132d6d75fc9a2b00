#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts cuDNN's front end (headers only, from PyPI) into build-deps/, where the build finds it. Needs python3 with pip; touches no network
# when it is there.
#   usage: bash modules/packages/cudnn_frontend.sh
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
version=1.18.0 folder=build-deps/cudnn-frontend
[ ! -d "$folder/nvidia_cudnn_frontend-$version.dist-info" ] || exit 0
python=/usr/bin/python3
[ -x "$python" ] || python=python3
log=$(mktemp)
trap 'rm -rf "$log" "$folder.part"' EXIT
echo "setup: fetching nvidia-cudnn-frontend $version"
if ! "$python" -m pip install -q --no-deps --no-compile --only-binary :all: --target "$folder.part" "nvidia-cudnn-frontend==$version" \
  >"$log" 2>&1; then
  tail -n 3 "$log" >&2
  echo "error: nvidia-cudnn-frontend $version could not be fetched; -DTRIREME_CUDNN_FRONTEND=DIR names a folder with cudnn_frontend.h" >&2
  exit 3
fi
rm -rf "$folder" && mv "$folder.part" "$folder"
