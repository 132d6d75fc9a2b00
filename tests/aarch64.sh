#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds trireme for aarch64 on Debian x86-64 and runs it under user-mode emulation. It uses the distribution's cross compiler, arm64
# packages unpacked into build-aarch64/sysroot (not installed) and qemu-user. It runs unit tests and, on one rank without a launcher, the
# tiny deck of tests/integration for twelve steps and the quickstart for QUICKSTART_STEPS (default 3; a step takes a minute or more). The
# fp32 losses of all steps must agree with those of this machine's executable within 1e-5.
#   usage: bash tests/aarch64.sh [--build|--list]    --list: prints the unit tests; JOBS: number of compilers; exit code 77: skipped, with the reason
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
build=build-aarch64 triple=aarch64-linux-gnu
sysroot=$PWD/$build/sysroot libraries=$PWD/$build/sysroot/usr/lib/$triple
left_out=(model record) # unit tests that take too long under emulation

for tool in aarch64-linux-gnu-g++ qemu-aarch64 apt-get dpkg-deb; do
  command -v $tool >/dev/null || {
    echo "skipped: no $tool (Debian: apt-get install g++-aarch64-linux-gnu qemu-user, and bash modules/packages/setup.sh)"
    exit 77
  }
done

# A separate apt state, as on an arm64 machine with nothing installed.
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
  mapfile -t packages < <(TRIREME_MPI=openmpi bash modules/packages/setup.sh libraries)
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends --download-only libc6-dev "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion | cut -d. -f1)-dev" \
    libgomp1 "${packages[@]}"
  for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  # Merge /lib into /usr/lib, as on an installed system, and make absolute links point into the sysroot.
  cp -a "$sysroot/lib/." "$sysroot/usr/lib/" && rm -rf "$sysroot/lib" && ln -s usr/lib "$sysroot/lib"
  find "$libraries" -maxdepth 1 -type l -lname '/*' | while read -r link; do ln -sfn "$sysroot$(readlink "$link")" "$link"; done
  rm -rf "$state"
  touch "$sysroot/complete"
fi

launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S . -B $build/build -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" -DTRIREME_SYSROOT="$sysroot" \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1 -DNDEBUG" -DCMAKE_UNITY_BUILD=ON -DTRIREME_CUDA=OFF "${launcher[@]}" >$build/configure.log 2>&1 ||
  { cat $build/configure.log >&2 && exit 3; }
# Unit tests of ctest that have their own executable.
programs=" $(ninja -C $build/build -t targets all | sed -n 's/^test_\([a-z0-9_]*\): .*/\1/p' | xargs) "
tests=()
while read -r test; do
  [[ $programs != *" $test "* || " ${left_out[*]} " == *" $test "* ]] || tests+=("$test")
done < <(ctest --test-dir $build/build -N -L '^unit$' 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: //p')
[ ${#tests[@]} -gt 0 ] || { echo "aarch64: FAILED: ctest lists no unit test" && exit 1; }
[ "${1:-}" != --list ] || { printf '%s\n' "${tests[@]}" && exit 0; }
cmake --build $build/build -j "${JOBS:-$(nproc)}" --target "${tests[@]/#/test_}" trireme

# The loops of operations and optimizers must use NEON vector instructions.
status=0
vectors() { # number of instructions of an object that compute on whole vectors (fmla, umax, …); moves do not count
  aarch64-linux-gnu-objdump -d "$1" | grep -cE '[[:space:]][fus][a-z]+[0-9]*[[:space:]]+v[0-9]+\.(4s|2d|8h)' || true
}
# All objects in ops/cpu but those for x86 and oneDNN.
objects=$build/build/src/compute/ops/CMakeFiles/trireme_ops.dir/cpu
mapfile -t bodies < <(find $objects -name '*.cpp.o' -printf '%P\n' | sed 's/\.cpp\.o$//' | grep -vE '^x86/|^onednn/' | sort)
[ ${#bodies[@]} -gt 0 ] || { echo "aarch64: FAILED: no objects in $objects" && status=1; }
for body in "${bodies[@]}"; do
  count=$(vectors "$objects/$body.cpp.o")
  echo "aarch64: $count vector instructions in ops/cpu/$body.cpp"
  [ "$count" -gt 0 ] || { echo "aarch64: FAILED: the loops of ops/cpu/$body.cpp are not vectorized" && status=1; }
done
[ "${1:-}" != --build ] || exit $status
bash jobs/build.sh trireme # for the losses to compare with

emulator=(qemu-aarch64 -L "$sysroot")
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
for test in "${tests[@]}"; do
  echo "aarch64: test_$test"
  (cd $build/build && "${emulator[@]}" "./test_$test" --gtest_brief=1) || status=1
done

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
mkdir "$runs/text"
seq -f '%g: the quick brown fox jumps over lazy dogs' 400 >"$runs/text/a.txt"
losses_agree() { # arguments: a name, then deck and overrides
  local name=$1 its=$runs/$1-aarch64 mine=$runs/$1-here
  shift
  local deck=("$@" run.precision=fp32 run.threads=1 checkpoint.every_steps=0 sample.every_steps=0)
  echo "aarch64: $name"
  "${emulator[@]}" $build/build/trireme "${deck[@]}" run.directory="$its" >"$its.log" 2>&1 || { cat "$its.log" >&2 && return 1; }
  build/trireme "${deck[@]}" run.directory="$mine" >"$mine.log" 2>&1 || { cat "$mine.log" >&2 && return 1; }
  /usr/bin/python3 - "$its/run.h5" "$mine/run.h5" <<'PYTHON'
import sys, h5py
its, mine = (list(h5py.File(name)["steps/loss"][:]) for name in sys.argv[1:])
worst = max((abs(a - b) for a, b in zip(its, mine)), default=None)
print(f"  {len(its)} steps, last loss {its[-1]:.7f} there and {mine[-1]:.7f} here, losses differ by {worst:.1e} at most")
sys.exit(len(its) != len(mine) or not worst < 1e-5)
PYTHON
}
losses_agree tiny tests/integration/tiny.yaml "data.train.text=[$runs/text]" || status=1
losses_agree quickstart input/quickstart.yaml "run.steps=${QUICKSTART_STEPS:-3}" optimizer.schedule.warmup_steps=0 evaluate.every_steps=0 || status=1
exit $status
