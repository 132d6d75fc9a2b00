#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what trireme needs on Debian 12, as root or through sudo. When everything is there it only looks and touches no network.
#   usage: bash modules/debian/setup.sh
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

present=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^ii  *//p') || true
missing=()
for package in "${packages[@]}"; do
  grep -qx -- "$package" <<<"$present" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
    exit 3
  fi
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo -n) # without a terminal nobody can type a password
  if ! "${as_root[@]}" true; then
    echo "error: these packages are missing, and sudo is not allowed here: ${missing[*]}" >&2
    exit 3
  fi
fi

echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
  grep -E '^(E|W|Err):?' "$log" >&2 || tail -n 20 "$log" >&2
  echo "error: apt-get could not install: ${missing[*]}" >&2
  exit 3
fi
echo "setup: done"
