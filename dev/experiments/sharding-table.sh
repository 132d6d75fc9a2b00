#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Calculates with `trireme plan` what a rank holds and sends for Llama 8B, 13B and 70B, for each number of ranks and each parallel.shard.
# Prints Markdown. Settings: one sequence per rank, one micro-step per step, bf16, recompute: block, eight ranks per host. Not included:
# activations, and the snapshot for checkpoints (in host memory on GPU nodes). Needs a build; one with CUDA plans for GPUs but needs none.
#   usage: bash dev/experiments/sharding-table.sh [RANKS …]      default: 8 64 512 4096
set -euo pipefail
[[ ${1:-} != -* ]] || { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
program=${TRIREME:-build/trireme}
ranks=("$@")
[ $# -gt 0 ] || ranks=(8 64 512 4096)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

planned() { # [argument of plan …]
  "$program" plan input/llama-small.yaml run.precision=bf16 checkpoint.every_steps=0 model.recompute=block model.rotary_theta=500000 \
    batch.micro_sequences=1 "$@" >"$work/log" 2>&1
}
device=cuda
planned batch.sequences=1 run.device=cuda || device=cpu

plan() { # NAME RANKS [section.key=value …]
  planned run.device=$device batch.sequences="$2" "${@:3}" --ranks "$2" --hosts $((($2 + 7) / 8)) --json "$work/$1-$2.json" || {
    cat "$work/log" >&2
    exit 1
  }
}
for n in "${ranks[@]}"; do
  plan 8B "$n" model.layers=32 model.channels=4096 model.heads=32 model.key_value_heads=8 model.mlp_channels=14336 model.vocabulary=128256 \
    model.context=8192
  plan 13B "$n" model.layers=40 model.channels=5120 model.heads=40 model.key_value_heads=40 model.mlp_channels=13824 model.vocabulary=32000 \
    model.context=4096
  plan 70B "$n" model.layers=80 model.channels=8192 model.heads=64 model.key_value_heads=8 model.mlp_channels=28672 model.vocabulary=128256 \
    model.context=8192
done

"${TRIREME_PYTHON:-python3}" dev/experiments/sharding_table.py "$work" $device "${ranks[@]}"
