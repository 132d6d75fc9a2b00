#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast this machine trains: tokens/s and the share of its matrix ceiling, for the quickstart model and for GPT-2 124M at context
# 1024, in fp32 and bf16. Needs a build and nothing else to do for the machine; about four minutes on two cores. Keeps no files.
#   usage: bash jobs/speed.sh [RANKS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ranks=${1:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

measure() { # deck, steps, sequences per rank and step, sequences at a time
  local deck=$1 steps=$2 sequences=$3 at_a_time=$4 precision
  for precision in fp32 bf16; do
    printf '%-24s %s  ' "$deck" "$precision"
    bash jobs/mpirun.sh -n "$ranks" build/trireme "$deck" run.directory="$folder/$precision" run.steps="$steps" \
      run.precision="$precision" batch.sequences=$((ranks * sequences)) batch.micro_sequences="$at_a_time" \
      optimizer.schedule.warmup_steps=0 checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0 </dev/null | sed -n 's/^.*\(the median step: \)/\1/p'
    rm -rf "${folder:?}/$precision"
  done
}

measure input/quickstart.yaml 60 24 4
measure input/gpt2-124m.yaml 3 8 4
