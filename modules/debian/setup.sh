#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what trireme needs on Debian 12, as root or through sudo. When everything is there it only looks and touches no network.
#   usage: bash modules/debian/setup.sh [tests]      tests: also what only tests need, who say what they skip without it
# Where the CUDA compiler is installed, cuDNN's front end (headers only, from PyPI) is put into build-deps/ as well.
# TRIREME_SETUP=skip says that the libraries come from elsewhere (environment modules, Spack): nothing is looked for or installed.
set -euo pipefail

packages=(
  build-essential cmake ninja-build git ca-certificates
  libopenmpi-dev openmpi-bin openssh-client # mpirun looks for ssh even when every rank is on this machine
  libdnnl-dev ocl-icd-opencl-dev # oneDNN's CMake package asks for OpenCL
  libhdf5-openmpi-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev
  libgtest-dev libgmock-dev clang-format-14
  iproute2 # tests/network joins two hosts on one machine with it
  python3 python3-venv python3-pip python3-setuptools python3-wheel python3-numpy python3-h5py python3-matplotlib
)
# For tests/slurm, tests/modules, tests/fuzz and tests/faults. Daemons that come along are not started.
packages_for_tests=(
  strace
  munge slurmctld slurmd slurm-client
  lmod
  clang-14 libclang-rt-14-dev libomp-14-dev
)

if [ "${TRIREME_SETUP:-}" = skip ]; then
  echo "setup: skipped (TRIREME_SETUP=skip)"
  exit 0
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  system=$(. /etc/os-release 2>/dev/null && echo "${PRETTY_NAME:-}") || true
  echo "error: setup.sh installs Debian packages, and this is ${system:-no Debian}. Provide Open MPI, oneDNN 2, parallel HDF5, yaml-cpp," >&2
  echo "       CLI11, spdlog, fmt and GoogleTest (modules, Spack, your packager), then run this again with TRIREME_SETUP=skip." >&2
  exit 3
fi

find_missing() { # packages; the result is in `missing`
  local present package
  present=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p') || true
  missing=()
  for package in "$@"; do
    grep -qx -- "$package" <<<"$present" || missing+=("$package")
  done
}

install_missing() { # says why not on standard error
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n) # without a terminal nobody can type a password
    if ! "${as_root[@]}" true; then
      echo "these packages are missing, and sudo is not allowed here: ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "setup: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local policy=/usr/sbin/policy-rc.d # what Debian's packages ask before they start a daemon
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null && "${as_root[@]}" chmod +x "$policy"
  else
    policy=
  fi
  local log status=0
  log=$(mktemp)
  { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends --no-remove "${missing[@]}"; } >"$log" 2>&1 </dev/null || status=1
  [ -z "$policy" ] || "${as_root[@]}" rm -f "$policy"
  if [ $status -ne 0 ]; then
    grep -E '^(E|W|Err):?' "$log" >&2 || tail -n 20 "$log" >&2
    echo "apt-get could not install: ${missing[*]}" >&2
  fi
  rm -f "$log"
  return $status
}

install_cudnn_frontend() {
  local version=1.18.0 folder=build-deps/cudnn-frontend
  { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null || return 0
  cd "$(dirname "${BASH_SOURCE[0]}")/../.."
  [ ! -d "$folder/nvidia_cudnn_frontend-$version.dist-info" ] || return 0
  local python=/usr/bin/python3 log
  [ -x "$python" ] || python=python3
  log=$(mktemp)
  echo "setup: CUDA is here, fetching nvidia-cudnn-frontend $version"
  if "$python" -m pip install -q --no-deps --no-compile --only-binary :all: --target "$folder.part" "nvidia-cudnn-frontend==$version" \
    >"$log" 2>&1; then
    rm -rf "$folder" && mv "$folder.part" "$folder"
  else # not an error: CMake says what is missing, and the CPU needs none of it
    tail -n 3 "$log" >&2
    echo "setup: without nvidia-cudnn-frontend the build will be one for the CPU" >&2
    rm -rf "$folder.part"
  fi
  rm -f "$log"
}

find_missing "${packages[@]}"
if [ ${#missing[@]} -gt 0 ]; then
  install_missing || { echo "error: trireme cannot be built without them" >&2; exit 3; }
  echo "setup: done"
fi
install_cudnn_frontend
if [ "${1:-}" = tests ]; then
  find_missing "${packages_for_tests[@]}"
  [ ${#missing[@]} -eq 0 ] || install_missing || echo "setup: without them some tests are skipped, and say so" >&2
fi
