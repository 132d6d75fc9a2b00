#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs everything that needs a GPU, in stages that fit a short reservation, and stores results and logs as they arrive. It needs bash and
# Python 3.11 or later. With a bundle (jobs/bundle.sh --tests), it needs neither MPI, CMake nor Python packages.
#   usage: bash tests/gpu_session.sh first|second|all [OPTIONS] [ITEM …]     `--help` explains the options, `--list` prints the items
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
for python in python3 python3.13 python3.12 python3.11; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
    exec "$python" "$here/gpu_session.py" "$@"
  fi
done
echo "error: gpu_session.sh needs Python 3.11 or later on PATH" >&2
exit 3
