#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains each GPT-2 size for a few steps on one GPU (bf16, context 1024, synthetic tokens, nothing recomputed) and prints tokens per second
# beside the goals for an H200 and the share of the ceiling measured in the same run; then every operation of a step of the smallest,
# beside the ceilings measured on the same GPU. The first table lies in runs/gpu-bench/table.h5 afterwards, the second in ops.json, and
# each run's record in runs/gpu-bench/SIZE/run.h5.
#   usage: bash jobs/gpu-bench.sh [SIZE …]     sizes: 124m 350m 774m 1558m; in the source tree, which it builds with CUDA first, or in
#          a bundle (jobs/bundle.sh), on a machine without compiler and MPI. OPTIONS="section.key=value …" goes into every run.
# It has not been run yet: no GPU was at hand when it was written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -f CMakeLists.txt ]; then
  PRESET=cuda bash jobs/build.sh trireme
  trireme=build/trireme
else
  trireme=./run.sh
fi
"$trireme" --version | grep -E 'CUDA|cuDNN|NCCL'
read -ra options <<<"${OPTIONS:-}"

[ $# -gt 0 ] || set -- 124m 350m 774m 1558m
folders=() goals=()
mkdir -p runs/gpu-bench
rm -f runs/gpu-bench/table.h5 runs/gpu-bench/ops.json
for size in "$@"; do
  case $size in # sequences at a time, per step; tokens/s aimed at
    124m) micro=32 sequences=512 goal=555000 ;;
    350m) micro=32 sequences=256 goal=205000 ;;
    774m) micro=16 sequences=128 goal=94000 ;;
    1558m) micro=16 sequences=128 goal=50000 ;;
    *) echo "error: no size $size; there are 124m 350m 774m 1558m" >&2 && exit 2 ;;
  esac
  folder=runs/gpu-bench/$size
  rm -rf "$folder"
  "$trireme" input/gpt2-124m.yaml "model.preset=gpt2-$size" data.train.text=[] data.train.synthetic=20000000 data.validation_fraction=0 \
    run.directory="$folder" run.name="gpt2-$size" run.steps=12 run.device=cuda run.precision=bf16 optimizer.schedule.warmup_steps=2 \
    "batch={sequences: $sequences, micro_sequences: $micro}" checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0 \
    "${options[@]}"
  folders+=("$folder")
  goals+=(--goal "gpt2-$size=$goal")
done
echo
"$trireme" speed "${folders[@]}" "${goals[@]}" --warmup 2 --h5 runs/gpu-bench/table.h5
echo
"$trireme" bench ops input/gpt2-124m.yaml data.train.text=[] data.train.synthetic=20000000 run.device=cuda run.precision=bf16 \
  'batch={sequences: 512, micro_sequences: 32}' "${options[@]}" --json runs/gpu-bench/ops.json
