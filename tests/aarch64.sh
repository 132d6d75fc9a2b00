#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds rooms of trireme for aarch64 and runs their unit tests under user-mode emulation, from nothing, on a Debian of x86-64: the
# distribution's cross compiler, its arm64 packages unpacked into build-aarch64/sysroot (nothing of them is installed), and qemu-user.
# The executable and the quickstart have not been run there; docs/portability.md says what has.
#   usage: bash tests/aarch64.sh [--build]           JOBS=number of compilers; exit code 77: skipped, with the reason
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build-aarch64 triple=aarch64-linux-gnu
sysroot=$PWD/$build/sysroot libraries=$PWD/$build/sysroot/usr/lib/$triple
tests=(base layout device ops optim)

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get dpkg-deb; do
  command -v $tool >/dev/null || {
    echo "skipped: no $tool (Debian: apt-get install g++-aarch64-linux-gnu qemu-user, and bash modules/packages/setup.sh)"
    exit 77
  }
done

# apt with a state of its own, for which this machine were one of arm64 with nothing installed.
if [ ! -e "$sysroot/complete" ]; then
  state=$PWD/$build/apt
  rm -rf "$sysroot" "$state"
  mkdir -p "$sysroot" "$state"/{lists,cache,preferences}/partial "$state/archives/partial"
  : >"$state/status"
  sources=/etc/apt/sources.list.d/debian.sources
  [ -f $sources ] || sources=/etc/apt/sources.list
  apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::status="$state/status"
    -o Dir::State::lists="$state/lists" -o Dir::Cache="$state/cache" -o Dir::Cache::archives="$state/archives"
    -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=- -o Dir::Etc::preferencesparts=- -o APT::Sandbox::User=root
    -o Binary::apt-get::APT::Keep-Downloaded-Packages=true -o APT::Get::List-Cleanup=0)
  echo "aarch64: fetching packages"
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends --download-only libc6-dev "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion | cut -d. -f1)-dev" \
    libgomp1 libopenmpi-dev libhdf5-openmpi-dev libdnnl-dev ocl-icd-opencl-dev libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev \
    libgtest-dev libgmock-dev
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  # One tree of libraries, as on an installed system, and what the packages' scripts would have linked.
  cp -a "$sysroot/lib/." "$sysroot/usr/lib/" && rm -rf "$sysroot/lib" && ln -s usr/lib "$sysroot/lib"
  find "$libraries" -maxdepth 1 -type l -lname '/*' | while read -r link; do ln -sfn "$sysroot$(readlink "$link")" "$link"; done
  rm -rf "$state"
  touch "$sysroot/complete"
fi

launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S . -B $build/build -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" -DTRIREME_SYSROOT="$sysroot" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" -DTRIREME_CUDA=OFF "${launcher[@]}" >$build/configure.log 2>&1 ||
  { cat $build/configure.log >&2 && exit 3; }
cmake --build $build/build -j "${JOBS:-$(nproc)}" --target "${tests[@]/#/test_}"
[ "${1:-}" != --build ] || exit 0

emulator=(qemu-aarch64 -L "$sysroot")
export OMP_NUM_THREADS=1
status=0
for test in "${tests[@]}"; do
  echo "aarch64: test_$test"
  (cd tests/"$test" && "${emulator[@]}" "$OLDPWD/$build/build/test_$test" --gtest_brief=1) || status=1
done
exit $status
