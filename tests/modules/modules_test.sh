#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build, moves it, and uses it as a cluster user would: module load trireme, then a run.
#   usage: modules_test.sh BUILD_DIR        exit code 77: skipped, neither Lmod nor Environment Modules is installed
set -euo pipefail
build=$1
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"
tree=$work/moved
! grep -rlF "$work/first" "$tree" || { echo "FAILED: these contain the place of their installation"; exit 1; }
for i in $(seq 400); do echo "$i: the quick brown fox jumps over $((i * 7 % 31)) lazy dogs"; done >"$work/text.txt"

# This runs in a clean shell, after the file that defines the module command.
cat >"$work/session.sh" <<'EOF'
set -e
tree=$1 text=$2 deck=$3 run=$4
module use "$tree/share/modulefiles"
module avail 2>&1 | grep -q trireme/
module help trireme 2>&1 | grep -q "trireme help deck"
before=$PATH
module load trireme
[ "$TRIREME_ROOT" = "$tree" ] || { echo "TRIREME_ROOT is $TRIREME_ROOT"; exit 1; }
[ "$(command -v trireme)" = "$tree/bin/trireme" ]
[ -x "$TRIREME_MPIRUN" ]
module list 2>&1 | grep -q trireme/
trireme --version | grep -q '^trireme '
trireme check "$TRIREME_ROOT/share/trireme/input/gpt2-124m.yaml" --ranks 8
bash "$TRIREME_ROOT/share/trireme/jobs/mpirun.sh" -n 2 trireme "$deck" run.directory="$run" data.train.text="[$text]" >"$run.log"
trireme-postproc summary "$run" | grep -q .
module unload trireme
[ -z "${TRIREME_ROOT:-}${TRIREME_MPIRUN:-}" ] && [ "$PATH" = "$before" ]
EOF

tried=0
use() { # arguments: a name, and the file that defines the module command
  [ -r "$2" ] || { echo "$1: not here, not tried"; return 0; }
  env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin TRIREME_PYTHON="${TRIREME_PYTHON:-python3}" OMP_NUM_THREADS=1 \
    bash --noprofile --norc -c '. "$1"; shift; . "$0" "$@"' "$work/session.sh" "$2" "$tree" "$work/text.txt" \
    "$here/../integration/tiny.yaml" "$work/run-$1" || { echo "FAILED: $1"; exit 1; }
  echo "$1: module load trireme, a run, module unload: all well"
  tried=$((tried + 1))
}
use lmod "${LMOD_INIT:-/usr/share/lmod/lmod/init/bash}"
use environment-modules "${MODULES_INIT:-/usr/share/modules/init/bash}"
if [ $tried -eq 0 ]; then
  echo "skipped: no module command (bash modules/packages/setup.sh tests installs Lmod on Debian)"
  exit 77
fi
