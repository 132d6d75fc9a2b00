#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what trireme needs from the packages of Debian 12, Debian 13 or Ubuntu 24.04, as root or with sudo. If nothing is missing, it
# does not use the network. On other systems it prints what trireme needs and exits with code 3.
#   usage: bash modules/packages/setup.sh [tests]    tests: also the packages of the tests (which are skipped without them)
#          bash modules/packages/setup.sh libraries  only prints the packages of the libraries, for tests/aarch64.sh
# Set TRIREME_SETUP=skip if the libraries come from elsewhere (environment modules, Spack): nothing is searched for or installed.
# TRIREME_MPI=mpich uses MPICH instead of Open MPI. If the CUDA compiler is installed, cudnn_frontend.sh in this folder runs as well.
set -euo pipefail

os_release=${TRIREME_OS_RELEASE:-/etc/os-release} # the tests set it to another file

# Packages with the same name on every supported distribution; the packages of MPI and of each distribution are added below.
libraries=(
  libdnnl-dev ocl-icd-opencl-dev # for bench matmul; oneDNN's CMake package asks for OpenCL
  libyaml-cpp-dev libcli11-dev nlohmann-json3-dev zlib1g-dev libzstd-dev libbz2-dev liblzma-dev libfmt-dev libgtest-dev libgmock-dev
)
packages=(
  build-essential cmake ninja-build git ca-certificates
  iproute2 # tests/network connects hosts on one machine with it
  python3 python3-venv python3-pip python3-setuptools python3-wheel python3-numpy python3-h5py python3-matplotlib
)
case ${TRIREME_MPI:-openmpi} in
  openmpi) libraries+=(libopenmpi-dev libhdf5-openmpi-dev) packages+=(openmpi-bin openssh-client) ;; # mpirun always needs ssh
  mpich) libraries+=(libmpich-dev libhdf5-mpich-dev) packages+=(mpich) ;;
  *) echo "error: TRIREME_MPI=$TRIREME_MPI is neither openmpi nor mpich" >&2 && exit 2 ;;
esac
packages+=("${libraries[@]}")
if [ "${1:-}" = libraries ]; then
  printf '%s\n' "${libraries[@]}"
  exit 0
fi

unsupported() { # prints what to install and exits
  local system family
  system=$(. "$os_release" 2>/dev/null && echo "${PRETTY_NAME:-}") || true
  family=$(. "$os_release" 2>/dev/null && echo "${ID:-} ${ID_LIKE:-}") || true
  {
    echo "error: setup.sh knows Debian 12, Debian 13 and Ubuntu 24.04, and this is ${system:-another system}. trireme needs these, under"
    echo "their usual names, which were not tried:"
    printf '  %-26s %-34s %-34s %s\n' \
      "what, and from which on" "Fedora, Rocky (EPEL, CRB)" "openSUSE" "Arch" \
      "g++ 12 or clang++ 16" "gcc-c++ (Rocky 9: gcc-toolset-12)" "gcc-c++ (Leap 15: gcc12-c++)" gcc \
      "CMake 3.25, Ninja" "cmake ninja-build" "cmake ninja" "cmake ninja" \
      "Open MPI 4.1 or MPICH 4" openmpi-devel openmpi4-devel openmpi \
      "HDF5 1.10.7 (or 1.12.1)" hdf5-openmpi-devel hdf5-openmpi4-devel hdf5-openmpi \
      "oneDNN 2.6 (or none)" "onednn-devel (Rocky: none)" onednn-devel onednn \
      "yaml-cpp 0.7" yaml-cpp-devel yaml-cpp-devel yaml-cpp \
      "CLI11 2.3" cli11-devel cli11-devel cli11 \
      "nlohmann-json 3.11" json-devel nlohmann_json-devel nlohmann-json \
      "zlib 1.2, zstd 1.5" "zlib-devel libzstd-devel" "zlib-devel libzstd-devel" "zlib zstd" \
      "bzip2 1.0, xz 5.2 (or none)" "bzip2-devel xz-devel" "libbz2-devel xz-devel" "bzip2 xz" \
      "fmt 9" fmt-devel fmt-devel fmt \
      "GoogleTest 1.12 (tests)" "gtest-devel gmock-devel" "gtest gmock" gtest \
      "Python 3.9: h5py, numpy," python3-h5py python3-h5py python-h5py \
      "  matplotlib, venv, pip," python3-matplotlib python3-matplotlib python-matplotlib \
      "  setuptools, wheel" "python3-setuptools python3-wheel" "python3-setuptools python3-wheel" "python-setuptools python-wheel"
    case " $family " in
      *' debian '* | *' ubuntu '*)
        echo "With apt, as on the systems that it knows: apt-get install ${packages[*]}"
        echo "(Ubuntu 22.04 has an older g++ and CMake: g++-12 with CXX=g++-12 CC=gcc-12, and python3 -m pip install cmake.)"
        ;;
      *) echo "On Fedora and Rocky, module load mpi/openmpi-x86_64 puts mpicc and mpirun on PATH; on openSUSE they are in /usr/lib64/mpi/gcc/openmpi4/bin." ;;
    esac
    echo "Older versions were not tried, and names may differ between releases. On a cluster take them from modules, or from modules/spack."
    echo "oneDNN is for bench matmul only: without it, configure with -DTRIREME_ONEDNN=OFF. When they are there, continue with"
    echo "  TRIREME_SETUP=skip bash jobs/quickstart.sh"
  } >&2
  exit 3
}

if [ "${TRIREME_SETUP:-}" = skip ]; then
  echo "setup: skipped (TRIREME_SETUP=skip)"
  exit 0
fi
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  unsupported
fi

# For tests/faults, tests/slurm, tests/modules, tests/processors.sh, tests/fuzz and tests/postproc (a browser; Ubuntu has it only as a
# snap). The daemons in these packages are not started.
packages_for_tests=(strace munge slurmctld slurmd slurm-client lmod qemu-user)
case $(. "$os_release" 2>/dev/null && echo "${ID:-}-${VERSION_ID:-}") in
  debian-12) packages_for_tests+=(clang-format-14 clang-14 libclang-rt-14-dev libomp-14-dev chromium-headless-shell) ;;
  debian-13) packages_for_tests+=(clang-19 libclang-rt-19-dev libomp-19-dev chromium-headless-shell) ;; # no clang-format 14
  ubuntu-24.04) packages_for_tests+=(clang-format-14 clang-14 libclang-rt-14-dev libomp-14-dev) ;;
  *) unsupported ;;
esac

find_missing() { # packages; the result is in `missing`
  local present package
  present=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii  *//p') || true
  missing=()
  for package in "$@"; do
    grep -qx -- "$package" <<<"$present" || missing+=("$package")
  done
}

install_missing() { # with `each`: if not all can be installed, installs the others one by one; errors go to stderr
  local as_root=() each=${1:-}
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "these packages are missing, and installing them needs root or sudo: ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n) # without a terminal, nobody can type a password
    if ! "${as_root[@]}" true; then
      echo "these packages are missing, and sudo is not allowed here: ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "setup: installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  local policy=/usr/sbin/policy-rc.d # Debian's packages run it before they start a daemon
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null && "${as_root[@]}" chmod +x "$policy"
  else
    policy=
  fi
  local log status=0 package
  log=$(mktemp)
  local install=("${apt[@]}" install -y --no-install-recommends --no-remove)
  { "${apt[@]}" update && "${install[@]}" "${missing[@]}"; } >"$log" 2>&1 </dev/null || status=1
  if [ $status -ne 0 ] && [ -n "$each" ]; then # a package does not exist in this release, or two conflict
    for package in "${missing[@]}"; do
      "${install[@]}" "$package" >>"$log" 2>&1 </dev/null || true
    done
    find_missing "${missing[@]}"
    [ ${#missing[@]} -gt 0 ] || status=0
  fi
  [ -z "$policy" ] || "${as_root[@]}" rm -f "$policy"
  if [ $status -ne 0 ]; then
    grep -E '^(E|W|Err):?' "$log" | sort -u >&2 || tail -n 20 "$log" >&2
    echo "apt-get could not install: ${missing[*]}" >&2
  fi
  rm -f "$log"
  return $status
}

find_missing "${packages[@]}"
if [ ${#missing[@]} -gt 0 ]; then
  install_missing || { echo "error: trireme cannot be built without them" >&2; exit 3; }
  echo "setup: done"
fi
# cmake/TriremeCuda.cmake searches these folders for nvcc too.
if PATH=$PATH${CUDA_HOME:+:$CUDA_HOME/bin}${CUDA_PATH:+:$CUDA_PATH/bin}:/usr/local/cuda/bin command -v "${CUDACXX:-nvcc}" >/dev/null; then
  bash "$(dirname "${BASH_SOURCE[0]}")/cudnn_frontend.sh" ||
    echo "setup: without nvidia-cudnn-frontend the build will be one for the CPU" >&2 # CMake reports it too; a CPU build does not need it
fi
if [ "${1:-}" = tests ]; then
  find_missing "${packages_for_tests[@]}"
  [ ${#missing[@]} -eq 0 ] || install_missing each || echo "setup: without them some tests are skipped, and say so" >&2
fi
