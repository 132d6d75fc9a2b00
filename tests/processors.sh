#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a build on other x86-64 processors, emulated by qemu-user: the operations' tests, and the tiny deck of tests/integration for three
# steps, whose last loss must be close to this machine's. The emulated processors lack AVX-512 and AMX: their instructions would end the
# process.
#   usage: bash tests/processors.sh BUILD_DIR avx2|portable [short]        exit code 77: skipped, with the reason
#          avx2: Haswell (x86-64-v3: AMD Zen 2 and 3, Intel clients; skipped on one of those); portable: Nehalem (x86-64-v2)
#          short: a minute instead of half an hour, for tests/run.sh. It leaves out attention with windows, documents and groups of heads;
#          attention, norms and rotations in bf16, which differ from fp32 only in their loads and stores; large products; the longest sums
#          and rows; and comparisons of numbers of threads
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd) build=$(cd "$1" && pwd)
usage() { echo "usage: bash tests/processors.sh BUILD_DIR avx2|portable [short]" >&2 && exit 2; }
case ${2:-} in
  avx2) processor=Haswell ;;
  portable) processor=Nehalem ;;
  *) usage ;;
esac
case ${3:-} in
  '') left_out= ;;
  short)
    left_out=':*Window*:*Document*:*GroupsOfHeads*:*OnLongSums/*:*DependOn*:*RowsAndThreads*:*Attention*/cpu_bf16:*Norm*/cpu_bf16'
    left_out+=':*CapsLogits*:*LargeResults*:*EveryKernel*/cpu_fp32:*FuseAdditions*:*FollowsTheReferenceInDouble*'
    left_out+=':*MatmulTest.AgreesWithReferenceAtAwkwardSizes/cpu_bf16:*WhenItNeedNotRepeat*:CublasLt*:*Rotary*/cpu_bf16:*LongRows*' ;;
  *) usage ;;
esac
if [ "$2" = avx2 ] && ! grep -q -w avx512f /proc/cpuinfo; then
  echo "skipped: this processor has no AVX-512 itself, so the other tests prove it" && exit 77
fi
command -v qemu-x86_64 >/dev/null || { echo "skipped: no qemu-x86_64 (Debian: qemu-user)" && exit 77; }
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_COMPONENTS=-gl
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

on_it() { # arguments: a program and its arguments; hides qemu's warnings about features that it does not emulate
  qemu-x86_64 -cpu "$processor" "$@" 2> >(grep -v "TCG doesn't support" >&2)
}

on_it "$build/test_base" --gtest_brief=1
# Without bf16 instructions, attention with windows or documents runs the code of fp32. Each case would take a quarter of the total time.
on_it "$build/test_ops" --gtest_brief=1 --gtest_filter="-*cuda*:*SeesAWindow/cpu_bf16:*StaysInsideOfDocuments/cpu_bf16$left_out"

mkdir "$folder/text"
seq -f '%g: the quick brown fox jumps over lazy dogs' 400 >"$folder/text/a.txt"
loss() { # arguments: a name, then the command prefix
  local at=$folder/$1
  shift
  "$@" "$build/trireme" "$here/integration/tiny.yaml" run.directory="$at" data.train.text="[$folder/text]" run.steps=3 run.precision=fp32 \
    run.device=cpu model.dropout=0 optimizer.schedule.warmup_steps=0 evaluate.every_steps=0 checkpoint.every_steps=0 </dev/null >"$at.log" 2>&1 || { cat "$at.log" >&2; return 1; }
  sed -n 's/^step *3\/3  loss \([0-9.]*\).*/\1/p' "$at.log"
}
mine=$(loss native env) its=$(loss emulated on_it)
echo "$processor: loss $its after three steps, $mine on this machine"
awk -v a="$mine" -v b="$its" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 0.001 && d > -0.001) }'
