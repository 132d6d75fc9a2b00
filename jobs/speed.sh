#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast this machine trains: tokens/s and the share of its matrix ceiling, for the quickstart model and for GPT-2 124M at context
# 1024, in fp32 and bf16. Needs a build and nothing else to do for the machine; about four minutes on two cores. Keeps no files but the
# table, where one is named.
#   usage: bash jobs/speed.sh [RANKS [TABLE.h5]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ranks=${1:-2} table=(${2:+--h5 "$2"})
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

runs=()
measure() { # deck, steps, sequences per rank and step, sequences at a time
  local deck=$1 steps=$2 sequences=$3 at_a_time=$4 precision run
  for precision in fp32 bf16; do
    run=$folder/$(basename "$deck" .yaml)-$precision
    echo "$deck $precision" >&2
    bash jobs/mpirun.sh -n "$ranks" build/trireme "$deck" run.directory="$run" run.steps="$steps" \
      run.precision="$precision" batch.sequences=$((ranks * sequences)) batch.micro_sequences="$at_a_time" \
      optimizer.schedule.warmup_steps=0 checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0 </dev/null >"$folder/log" ||
      { cat "$folder/log" && exit 1; }
    runs+=("$run")
  done
}

measure input/quickstart.yaml 60 24 4
measure input/gpt2-124m.yaml 3 8 4
build/trireme speed "${runs[@]}" "${table[@]}"
