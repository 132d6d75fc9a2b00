#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: training beside the CPU in fp32 and bf16, the tests of devices, operations, model, engine, optimizer,
# sessions and collectives, ranks that share the GPU through NCCL, benches, compute-sanitizer on our kernels. The most telling items come
# first. Each has a time limit, and its verdict is in a file as soon as it is known, so that a limit from outside loses nothing.
#   usage: bash tests/gpu.sh [OPTIONS] [ITEM …]              in the source tree: builds with CUDA first
#          bash trireme-bundle/tests/gpu.sh [OPTIONS] [ITEM …]     in a bundle made with jobs/bundle.sh --tests; offline, without MPI,
#                                                             CMake or Python
#   ITEM               a name or a pattern of --list, as in 'train-*'; all of them where none is given
#   --list             the names, in their order
#   --executables      the test executables that items run, which are those that a bundle has
#   --minutes M        no item begins after M minutes, and none runs beyond them       default: no limit
#   --limit SECONDS    of each item                                                    default: 300
#   --results FILE     where verdicts are appended                                     default: gpu-results.txt
#   --tree DIR         a build tree to take as it is                                   default: build, built first
# OPTIONS="section.key=value …" goes into the deck of every training and bench, a smaller model for an emulated GPU, say.
# Exit code: 0 all passed, 1 some failed, 75 some had no time (the last line names them), 77 there is no GPU.
set -uo pipefail
usage() { sed -n '/^#   usage/,/^# Exit/s/^# *//p' "$0" >&2; exit 2; }
limit=300 minutes=0 results=gpu-results.txt tree='' list='' executables='' wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) list=1 && shift ;;
    --executables) executables=1 && shift ;;
    --minutes | --limit) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage; printf -v "${1#--}" %s "$2" && shift 2 ;;
    --results | --tree) [ -n "${2:-}" ] || usage; printf -v "${1#--}" %s "$2" && shift 2 ;;
    -*) usage ;;
    *) wanted+=("$1") && shift ;;
  esac
done
[[ $results == /* ]] || results=$PWD/$results
[[ -z $tree || $tree == /* ]] || tree=$PWD/$tree
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 3

items=(one-step train-cuda-fp32 train-cuda-bf16 test-ops test-device train-again train-without-graphs test-model test-reduce test-optim
  test-session test-train nccl-reduce-2 nccl-comm-2 train-nccl-2 train-nccl-2-unsharded nccl-optim-2 nccl-reduce-3 nccl-comm-3 train-nccl-3
  train-gelu-apart train-gelu-backward-apart train-bias-in-products train-timed-products train-unordered-attention train-loss-rows
  train-dropout bench-reduce bench-pool bench-matmul bench-ops memcheck racecheck initcheck)
if [ -n "$list" ]; then
  printf '%s\n' "${items[@]}"
  exit 0
fi
# item: the test executable that it runs; nothing for those that run none
executable_of() {
  local name=${1#nccl-}
  case $1 in
    test-*) echo "test_${1#test-}" ;;
    nccl-*) echo "test_${name%-*}_nccl" ;;
    *check) echo test_ops ;;
  esac
}
if [ -n "$executables" ]; then
  for item in "${items[@]}"; do executable_of "$item"; done | sort -u
  exit 0
fi
selected=()
for item in "${items[@]}"; do
  [ ${#wanted[@]} -gt 0 ] || selected+=("$item")
  for pattern in "${wanted[@]}"; do
    # shellcheck disable=SC2053 # a pattern
    [[ $item == $pattern ]] && selected+=("$item") && break
  done
done
[ ${#selected[@]} -gt 0 ] || { echo "error: no item is called ${wanted[*]}; --list prints their names" >&2; exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ -f CMakeLists.txt ]; then
  [ -n "$tree" ] || { PRESET=cuda bash jobs/build.sh || exit 3; }
  tests=${tree:-$PWD/build}
  text=src program=$tests/trireme alone=("$tests/trireme") with_libraries=() launch=(bash jobs/mpirun.sh)
else
  tests=tests/bin text=text program=$PWD/bin/trireme alone=(./run.sh) with_libraries=(./run.sh --exec)
  launch=(./run.sh --exec mpirun --bind-to none --oversubscribe)
fi

ran=0 failed=0 left=()
# item, verdict, remark
verdict() {
  printf '%-28s %-8s %s\n' "$@" | tee -a "$results"
  [ "$2" != FAILED ] || failed=$((failed + 1))
}
# Seconds that an item may take now; 0: none is left.
seconds_left() {
  local rest=$limit
  if [ "$minutes" -gt 0 ] && [ $((minutes * 60 - SECONDS)) -lt "$rest" ]; then
    rest=$((minutes * 60 - SECONDS))
  fi
  echo $((rest > 0 ? rest : 0))
}
# words… : runs them under the limit; what they print goes to the file `out`, and its end to the terminal when they fail.
out=$scratch/out reason=''
limited() {
  local code=0 most
  most=$(seconds_left)
  [ "$most" -gt 0 ] || { reason='no time is left'; return 1; }
  ran=$((ran + 1))
  timeout --kill-after=10 "$most" "$@" >"$out" 2>&1 || code=$?
  [ $code -ne 0 ] || return 0
  tail -n 40 "$out"
  reason="exit $code"
  [ $code -ne 124 ] && [ $code -ne 137 ] || reason="no end within $most s"
  return 1
}
# item, words… : the verdict of a command
try() {
  local item=$1 from=$SECONDS
  shift
  if limited "$@"; then
    verdict "$item" passed "$((SECONDS - from)) s"
  else
    verdict "$item" FAILED "$reason"
  fi
}

deck=(input/quickstart.yaml "data.train.text=[$text]" "data.cache=$scratch/tokens" run.threads=1 checkpoint.every_steps=0
  sample.every_steps=0 evaluate.every_steps=0 optimizer.schedule.warmup_steps=1)
read -ra options <<<"${OPTIONS:-}"
deck+=("${options[@]}")
# name, ranks, overrides… : 20 steps; what they print is kept in NAME.out.
train() {
  local name=$1 ranks=$2 words
  shift 2
  words=("${deck[@]}" run.steps=20 run.directory="$scratch/$name" "$@")
  out=$scratch/$name.out
  local code=0
  if [ "$ranks" -eq 1 ]; then
    limited "${alone[@]}" "${words[@]}" || code=1
  else # every rank claims a host of its own, or NCCL would refuse to share the GPU
    limited env NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_RAS_ENABLE=0 \
      CUDA_MODULE_LOADING=EAGER "${launch[@]}" -n "$ranks" \
      bash -c 'export NCCL_HOSTID=rank${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-$PMI_RANK}}; exec "$@"' - "$program" "${words[@]}" || code=1
  fi
  out=$scratch/out
  [ $code -eq 0 ] || mv "$scratch/$name.out" "$scratch/$name.failed"
  return $code
}
# As above, once for all items that compare with it.
reference() { [ -e "$scratch/$1.out" ] || train "$@"; }
cpu=(cpu 1 run.device=cpu run.precision=fp32)
fp32=(cuda-fp32 1 run.device=cuda run.precision=fp32)
bf16=(cuda-bf16 1 run.device=cuda run.precision=bf16)
small=(parallel.bucket_elements=200000)

# The losses of 20 steps, as the log shows them every other step.
losses() { sed -n 's/.*step *\([0-9]*\)\/20 *loss \([0-9.]*\).*/\1 \2/p' "$scratch/$1.out"; }
# item, name of a run, name of the run it is compared with, largest difference
agree() {
  local worst
  worst=$(paste -d ' ' <(losses "$2") <(losses "$3") |
    awk 'NF == 4 && $1 == $3 { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d; n++ } END { if (n == 0) exit 1; printf "%.6f", w }') || {
    verdict "$1" FAILED "no losses of $2 and $3 to compare"
    return
  }
  if awk -v worst="$worst" -v most="$4" 'BEGIN { exit !(worst <= most) }'; then
    verdict "$1" passed "losses of $2 and $3 differ by $worst at most, $4 allowed"
  else
    verdict "$1" FAILED "losses of $2 and $3 differ by $worst, more than $4"
  fi
}
# item, largest difference, the name of the run it is compared with, and of this one its name, ranks and overrides
compared() {
  local item=$1 most=$2 other=$3
  shift 3
  case $other in cpu) reference "${cpu[@]}" ;; cuda-fp32) reference "${fp32[@]}" ;; cuda-bf16) reference "${bf16[@]}" ;;
    cpu-dropout) reference cpu-dropout 1 "${cpu[@]:2}" model.dropout=0.1 ;;
    nccl-2) reference nccl-2 2 run.device=cuda run.precision=fp32 "${small[@]}" ;;
  esac || { verdict "$item" FAILED "the run $other: $reason"; return; }
  reference "$@" || { verdict "$item" FAILED "$reason"; return; }
  agree "$item" "$1" "$other" "$most"
}

# item, ranks
unit() {
  local executable
  executable=$(executable_of "$1")
  if [ ! -x "$tests/$executable" ]; then
    verdict "$1" skipped "$executable was not built"
  elif [ "$2" -eq 1 ]; then
    try "$1" env TRIREME_REQUIRE_CUDA=1 "${with_libraries[@]}" "$tests/$executable" --gtest_brief=1
  else # tests of NCCL set what lets ranks share the GPU by themselves
    try "$1" env TRIREME_REQUIRE_CUDA=1 "${launch[@]}" -n "$2" "$tests/$executable" --gtest_brief=1
  fi
}
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
# Of cuDNN's kernels: those cases of attention in bf16 that take some.
theirs='*AttentionTest.A*bf16*:*AttentionTest.Se*bf16*:*AttentionTest.Sh*bf16*:*AttentionTest.DoesNot*bf16*:*AttentionTest.Takes*bf16*'
# item: of the kernels that are ours
sanitize() {
  if [ -z "$sanitizer" ]; then
    verdict "$1" skipped 'compute-sanitizer is not on this machine'
  else
    try "$1" env TRIREME_REQUIRE_CUDA=1 "${with_libraries[@]}" "$sanitizer" --tool "$1" --error-exitcode 9 \
      "$tests/$(executable_of "$1")" \
      --gtest_brief=1 --gtest_filter="*cuda*:-*Matmul*:$theirs"
  fi
}

run_item() {
  case $1 in
    one-step) try "$1" "${alone[@]}" "${deck[@]}" run.device=cuda run.steps=2 run.directory="$scratch/probe" ;;
    train-cuda-fp32) compared "$1" 0.001 cpu "${fp32[@]}" ;;
    train-cuda-bf16) compared "$1" 0.05 cpu "${bf16[@]}" ;;
    train-again) compared "$1" 0 cuda-fp32 cuda-fp32-again 1 "${fp32[@]:2}" ;;
    train-without-graphs) compared "$1" 0 cuda-fp32 cuda-fp32-without-graphs 1 "${fp32[@]:2}" gpu.graphs=false ;;
    train-gelu-apart) compared "$1" 0.05 cuda-bf16 gelu-apart 1 "${bf16[@]:2}" gpu.fused_gelu=false ;;
    train-gelu-backward-apart) compared "$1" 0.05 cuda-bf16 gelu-backward-apart 1 "${bf16[@]:2}" gpu.fused_gelu_backward=false ;;
    train-bias-in-products) compared "$1" 0.05 cuda-bf16 bias-in-products 1 "${bf16[@]:2}" gpu.fused_bias_gradients=true ;;
    train-loss-rows) compared "$1" 0.05 cuda-bf16 loss-rows 1 "${bf16[@]:2}" model.loss_rows=256 ;;
    train-dropout) compared "$1" 0.05 cpu-dropout dropout 1 "${bf16[@]:2}" model.dropout=0.1 ;;
    train-timed-products) compared "$1" 0.05 cuda-bf16 timed-products 1 "${bf16[@]:2}" gpu.timed_products=true parallel.product_blocks=64 ;;
    train-unordered-attention) compared "$1" 0.05 cuda-bf16 unordered-attention 1 "${bf16[@]:2}" gpu.deterministic_attention=false ;;
    train-nccl-2-unsharded) compared "$1" 0 nccl-2 nccl-2-unsharded 2 "${fp32[@]:2}" "${small[@]}" parallel.shard=none ;;
    train-nccl-*) compared "$1" 0.001 cpu "${1#train-}" "${1##*-}" "${fp32[@]:2}" "${small[@]}" ;;
    test-*) unit "$1" 1 ;;
    nccl-*) unit "$1" "${1##*-}" ;;
    bench-reduce) try "$1" "${alone[@]}" bench reduce --transport nccl --bytes 67108864 --repetitions 5 ;;
    bench-pool) try "$1" "${alone[@]}" bench pool --device cuda --repetitions 5 ;;
    bench-*) try "$1" "${alone[@]}" bench "${1#bench-}" "${deck[@]}" run.device=cuda --repetitions 2 ;;
    *check) sanitize "$1" ;;
  esac
}

{
  echo "# $(date -u +%FT%TZ), $("${alone[@]}" --version 2>/dev/null | head -n 1)"
  command -v nvidia-smi >/dev/null && nvidia-smi -L 2>&1 | sed 's/^/# /'
} | tee -a "$results"
# The program decides what a GPU is: asked for one, it says at once why it has none.
if ! limited "${alone[@]}" "${deck[@]}" run.device=cuda run.steps=2 run.directory="$scratch/first" >"$scratch/said" &&
  grep -q 'run.device: cuda' "$out"; then
  verdict 'all of it' skipped "$(grep -m 1 'run.device: cuda' "$out")"
  exit 77
fi
for item in "${selected[@]}"; do
  if [ "$(seconds_left)" -lt 5 ]; then
    left+=("$item")
  else
    run_item "$item"
  fi
done
[ $failed -eq 0 ] || exit 1
if [ ${#left[@]} -gt 0 ]; then
  echo "# no time was left for: ${left[*]}" | tee -a "$results"
  exit 75
fi
[ $ran -gt 1 ]
