#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains each GPT-2 size for a few steps on one GPU (bf16, context 1024, synthetic tokens, nothing recomputed) and prints tokens per second
# beside the goals for an H200; then every operation of a step of the smallest, beside the ceilings measured on the same GPU. What was
# measured lies in the runs' records: runs/gpu-bench/SIZE/run.h5.
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
rows=()
mkdir -p runs/gpu-bench
for size in "$@"; do
  case $size in # sequences at a time, per step; tokens/s aimed at
    124m) micro=32 sequences=512 goal=555000 ;;
    350m) micro=16 sequences=256 goal=205000 ;;
    774m) micro=8 sequences=128 goal=94000 ;;
    1558m) micro=8 sequences=64 goal=50000 ;;
    *) echo "error: no size $size; there are 124m 350m 774m 1558m" >&2 && exit 2 ;;
  esac
  folder=runs/gpu-bench/$size
  rm -rf "$folder"
  "$trireme" input/gpt2-124m.yaml "model.preset=gpt2-$size" data.train.text=[] data.train.synthetic=20000000 data.validation_fraction=0 \
    run.directory="$folder" run.name="gpt2-$size" run.steps=12 run.device=cuda run.precision=bf16 optimizer.schedule.warmup_steps=2 \
    "batch={sequences: $sequences, micro_sequences: $micro}" checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0 \
    "${options[@]}" |
    tee "$folder.log"
  # The last step's line: "… 555 k tokens/s  …".
  rate=$(sed -n 's/^.*  \([0-9.]* *[kM]*\) tokens\/s .*$/\1/p' "$folder.log" | tail -n 1 |
    awk '{ print $1 * ($2 == "k" ? 1e3 : $2 == "M" ? 1e6 : 1) }')
  rows+=("$(awk -v size="gpt2-$size" -v rate="${rate:-0}" -v goal="$goal" \
    'BEGIN { printf "%-14s %12.0f %12.0f %9.1f %%", size, rate, goal, 100 * rate / goal }')")
done
echo
printf '%-14s %12s %12s %11s\n' model 'tokens/s' goal 'of goal'
printf '%s\n' "${rows[@]}"
echo
"$trireme" bench ops input/gpt2-124m.yaml data.train.text=[] data.train.synthetic=20000000 run.device=cuda run.precision=bf16 \
  'batch={sequences: 512, micro_sequences: 32}' "${options[@]}"
