#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains each GPT-2 size for a few steps on one GPU (bf16, context 1024, synthetic tokens, nothing recomputed) and prints tokens per second
# beside the goals for an H200 and the share of the ceiling measured in the same run; then every operation of a step of the smallest,
# beside the ceilings measured on the same GPU. The first table lies in runs/gpu-bench/table.h5 afterwards, the second in ops.json, and
# each run's record in runs/gpu-bench/SIZE/run.h5.
#   usage: bash jobs/gpu-bench.sh [--switches] [SIZE …]     sizes: 124m 350m 774m 1558m; in the source tree, which it builds with CUDA
#          first, or in a bundle (jobs/bundle.sh), on a machine without compiler and MPI. OPTIONS="section.key=value …" goes into every run.
# --switches trains the sizes (default: 124m) once with each switch turned that may be faster or slower there, in place of the operations.
# The first run is repeated at the end: what it differs by is noise. A run that fails or takes more than 300 s is left out, and named.
# It has not been run yet: no GPU was at hand when it was written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
switches=''
[ "${1:-}" != --switches ] || { switches=1 && shift; }
if [ $# -eq 0 ]; then
  set -- 124m 350m 774m 1558m
  [ -z "$switches" ] || set -- 124m
fi
for size in "$@"; do
  case $size in 124m | 350m | 774m | 1558m) ;; *) echo "error: no size $size; there are 124m 350m 774m 1558m" >&2 && exit 2 ;; esac
done
if [ -f CMakeLists.txt ]; then
  PRESET=cuda bash jobs/build.sh trireme
  trireme=build/trireme
else
  trireme=./run.sh
fi
"$trireme" --version | grep -E 'CUDA|cuDNN|NCCL'
read -ra options <<<"${OPTIONS:-}"

folders=() goals=() failed=()
mkdir -p runs/gpu-bench
rm -f runs/gpu-bench/table.h5 runs/gpu-bench/ops.json
# size, name of the run, what is otherwise than usual
train() {
  local size=$1 name=$2 folder=runs/gpu-bench/$2 micro sequences
  case $size in # sequences at a time, per step
    124m) micro=32 sequences=512 ;;
    350m) micro=32 sequences=256 ;;
    *) micro=16 sequences=128 ;;
  esac
  shift 2
  rm -rf "$folder"
  if timeout --kill-after=10 300 "$trireme" input/gpt2-124m.yaml "model.preset=gpt2-$size" data.train.text=[] \
    data.train.synthetic=20000000 data.validation_fraction=0 run.directory="$folder" run.name="$name" run.steps=12 run.device=cuda \
    run.precision=bf16 optimizer.schedule.warmup_steps=2 batch.sequences=$sequences batch.micro_sequences=$micro checkpoint.every_steps=0 \
    evaluate.every_steps=0 sample.every_steps=0 "${options[@]}" "$@"; then
    folders+=("$folder")
  else
    failed+=("$name")
  fi
}
for size in "$@"; do
  case $size in 124m) goal=555000 twice=64 ;; 350m) goal=205000 twice=64 ;; 774m) goal=94000 twice=32 ;; 1558m) goal=50000 twice=32 ;; esac
  train "$size" "gpt2-$size"
  goals+=(--goal "gpt2-$size=$goal")
  [ -n "$switches" ] || continue
  train "$size" "$size-timed-products" gpu.timed_products=true
  train "$size" "$size-product-workspace-128" gpu.product_workspace=128
  train "$size" "$size-gelu-apart" gpu.fused_gelu=false
  train "$size" "$size-gelu-backward-apart" gpu.fused_gelu_backward=false
  train "$size" "$size-unordered-attention" gpu.deterministic_attention=false
  train "$size" "$size-bias-in-products" gpu.fused_bias_gradients=true
  train "$size" "$size-loss-rows-256" model.loss_rows=256
  train "$size" "$size-without-graphs" gpu.graphs=false
  train "$size" "$size-micro-$twice" "batch.micro_sequences=$twice"
  train "$size" "$size-micro-$twice-recompute-gelu" "batch.micro_sequences=$twice" model.recompute=gelu
  train "$size" "$size-again"
done
echo
"$trireme" speed "${folders[@]}" "${goals[@]}" --warmup 2 --h5 runs/gpu-bench/table.h5
if [ -z "$switches" ]; then
  echo
  "$trireme" bench ops input/gpt2-124m.yaml data.train.text=[] data.train.synthetic=20000000 run.device=cuda run.precision=bf16 \
    batch.sequences=512 batch.micro_sequences=32 "${options[@]}" --json runs/gpu-bench/ops.json
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "error: no end of ${failed[*]}" >&2
  exit 1
fi
