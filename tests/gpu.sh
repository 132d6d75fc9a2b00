#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU, in one go: the tests of devices, operations, model, engine, optimizer, sessions and collectives,
# compute-sanitizer on our kernels, training in fp32 and bf16 beside the CPU, and two and three ranks that share the GPU through NCCL.
# Ends with a table of what ran, what was skipped and why. Exit code: 0, 1 when something failed, 77 when there is no GPU.
#   usage: bash tests/gpu.sh              in the source tree: builds with CUDA first
#          bash trireme-bundle/tests/gpu.sh     in a bundle made with jobs/bundle.sh --tests; offline, without MPI, CMake or Python
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
results=() status=0 ran=0

note() { results+=("$(printf '%-46s %-8s %s' "$1" "$2" "${3:-}")"); }
finish() {
  echo
  printf '%-46s %-8s %s\n' what verdict remark
  printf '%s\n' "${results[@]}"
  exit "$1"
}
# name, words… : runs the words; the last lines of what they print stand in the log of a failure.
try() {
  local name=$1 from=$SECONDS
  shift
  echo "== $name"
  ran=$((ran + 1))
  if "$@" >"$scratch/log" 2>&1; then
    note "$name" passed "$((SECONDS - from)) s"
  else
    local code=$?
    tail -n 40 "$scratch/log"
    note "$name" FAILED "exit $code"
    status=1
  fi
}

if [ -f "$here/../CMakeLists.txt" ]; then
  cd "$here/.."
  PRESET=cuda bash jobs/build.sh || exit 3
  tests=build input=input text=src
  alone() { build/trireme "$@"; }
  program=build/trireme
  with_libraries() { "$@"; }
  mpirun() { bash jobs/mpirun.sh "$@"; }
else
  cd "$here/.."
  tests=tests/bin input=input text=text
  alone() { ./run.sh "$@"; }
  program=$PWD/bin/trireme
  with_libraries() { ./run.sh --exec "$@"; }
  mpirun() { ./run.sh --exec mpirun --bind-to none --oversubscribe "$@"; }
fi

driver=$(command -v nvidia-smi >/dev/null && nvidia-smi -L 2>&1 || echo 'no nvidia-smi')
echo "$driver"
# The program decides what a GPU is: asked for one, it says at once why it has none.
deck=("$input/quickstart.yaml" "data.train.text=[$text]" "data.cache=$scratch/tokens" run.threads=1 checkpoint.every_steps=0
  sample.every_steps=0 evaluate.every_steps=0 optimizer.schedule.warmup_steps=1)
if ! alone "${deck[@]}" run.device=cuda run.steps=2 run.directory="$scratch/probe" >"$scratch/log" 2>&1; then
  if grep -q 'run.device: cuda' "$scratch/log"; then
    note 'all of it' skipped "$(grep -m 1 'run.device: cuda' "$scratch/log")"
    finish 77
  fi
  note 'one step on the GPU' FAILED "$(tail -n 1 "$scratch/log")"
  status=1
fi

export TRIREME_REQUIRE_CUDA=1 # a skip inside is a failure from here on
# name, ranks: those that mean a GPU, or run on one where there is one
unit() {
  local program=$tests/test_$1
  if [ ! -x "$program" ]; then
    note "test_$1" skipped 'not built'
  elif [ "$2" -eq 1 ]; then
    try "test_$1" with_libraries "$program" --gtest_brief=1
  else # tests of NCCL set what lets ranks share the GPU by themselves
    try "test_$1, $2 ranks" mpirun -n "$2" "$program" --gtest_brief=1
  fi
}
for name in device ops model reduce optim train; do unit $name 1; done
for name in comm_nccl reduce_nccl; do
  for ranks in 2 3; do unit $name $ranks; done
done
unit optim_nccl 2

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for tool in memcheck racecheck initcheck; do
  if [ -z "$sanitizer" ]; then
    note "$tool" skipped 'compute-sanitizer is not on this machine'
  else # of the kernels that are ours
    try "$tool" with_libraries "$sanitizer" --tool "$tool" --error-exitcode 9 "$tests/test_ops" --gtest_brief=1 \
      --gtest_filter='*cuda*:-*Matmul*:*Attention*bf16*'
  fi
done

# The losses of 20 steps, as the log tells them every other step.
losses() { sed -n 's/.*step *\([0-9]*\)\/20 *loss \([0-9.]*\).*/\1 \2/p' "$1"; }
# name of a run, name of the run it is compared with, largest difference
agree() {
  local worst
  worst=$(paste -d ' ' <(losses "$scratch/$1.out") <(losses "$scratch/$2.out") |
    awk 'NF == 4 && $1 == $3 { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d; n++ } END { if (n == 0) exit 1; printf "%.6f", w }') || {
    note "$1 against $2" FAILED 'no losses to compare'
    status=1
    return
  }
  if awk -v worst="$worst" -v most="$3" 'BEGIN { exit !(worst <= most) }'; then
    note "$1 against $2" passed "losses differ by $worst at most, $3 allowed"
  else
    note "$1 against $2" FAILED "losses differ by $worst, more than $3"
    status=1
  fi
}
# name, ranks, overrides…
train() {
  local name=$1 ranks=$2 out=$scratch/$1.out
  shift 2
  local words=("${deck[@]}" run.steps=20 run.directory="$scratch/$name" "$@")
  run() {
    if [ "$ranks" -eq 1 ]; then
      alone "${words[@]}" >"$out" 2>&1
    else # every rank claims a host of its own, or NCCL would refuse to share the GPU
      NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_RAS_ENABLE=0 \
        CUDA_MODULE_LOADING=EAGER mpirun -n "$ranks" bash -c 'export NCCL_HOSTID=rank${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$PMI_RANK}}; exec "$@"' - \
        "$program" "${words[@]}" >"$out" 2>&1
    fi || { cat "$out"; return 1; }
  }
  try "training: $name" run
}
unset TRIREME_REQUIRE_CUDA
train cpu 1 run.device=cpu run.precision=fp32
train cuda-fp32 1 run.device=cuda run.precision=fp32
train cuda-fp32-again 1 run.device=cuda run.precision=fp32
train cuda-fp32-without-graphs 1 run.device=cuda run.precision=fp32 run.graphs=false
train cuda-bf16 1 run.device=cuda run.precision=bf16
agree cuda-fp32 cpu 0.001
agree cuda-fp32-again cuda-fp32 0
agree cuda-fp32-without-graphs cuda-fp32 0
agree cuda-bf16 cpu 0.05
train cuda-bf16-plain-gelu 1 run.device=cuda run.precision=bf16 run.fused_gelu=false
train cuda-bf16-timed-products 1 run.device=cuda run.precision=bf16 run.timed_products=true parallel.product_blocks=64
train cuda-bf16-unordered-attention 1 run.device=cuda run.precision=bf16 run.deterministic_attention=false
agree cuda-bf16-plain-gelu cuda-bf16 0.05
agree cuda-bf16-unordered-attention cuda-bf16 0.05
agree cuda-bf16-timed-products cuda-bf16 0.05
for ranks in 2 3; do
  train "nccl-$ranks" $ranks run.device=cuda run.precision=fp32 parallel.bucket_elements=200000
  agree "nccl-$ranks" cpu 0.001
done
train nccl-2-unsharded 2 run.device=cuda run.precision=fp32 parallel.bucket_elements=200000 optimizer.sharded=false
agree nccl-2-unsharded nccl-2 0

try 'bench reduce, nccl, one rank' alone bench reduce --transport nccl --bytes 67108864 --repetitions 5
try 'bench pool on the GPU' alone bench pool --device cuda --repetitions 5
for bench in matmul ops; do
  try "bench $bench on the GPU" alone bench $bench "${deck[@]}" run.device=cuda --repetitions 2
done
note 'test_comm' skipped 'transports of the host: they carry memory of the CPU'

[ $status -eq 0 ] && [ $ran -gt 0 ]
finish $?
