#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how fast this machine trains: tokens/s and the share of its matrix ceiling, for the quickstart model and for GPT-2 124M with a
# context of 1024, in fp32 and bf16. Needs a build and an otherwise idle machine; takes about four minutes on two cores. Keeps no files
# except TABLE.h5, if it is given.
#   usage: bash dev/experiments/speed.sh [RANKS [TABLE.h5]]
#          bash dev/experiments/speed.sh --against COMMIT|FOLDER [--rounds N] [RANKS]
# --against: compares this build with COMMIT, which is built in a temporary folder, or with FOLDER, a working tree that has a build/trireme.
# The runs alternate, and the side that runs first changes each round (3 rounds, about eight minutes each). Prints the ratio of the median
# steps. Each side uses the decks in its own input/. Needs h5py.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
usage() { sed -n 's/^#   usage: //p; s/^#          bash/bash/p' "$0" >&2 && exit 2; }
against='' rounds=3
while [[ ${1:-} == --* ]]; do
  [[ $# -ge 2 ]] || usage
  case $1 in
    --against) against=$2 ;;
    --rounds)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || usage
      rounds=$2
      ;;
    *) usage ;;
  esac
  shift 2
done
ranks=${1:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"; git worktree prune' EXIT

# Deck, precision, steps, sequences per rank and step, sequences per micro-batch.
decks=("quickstart fp32 60 24 4" "quickstart bf16 60 24 4" "gpt2-124m fp32 3 8 4" "gpt2-124m bf16 3 8 4")
train() { # project, run directory, fields of a row of `decks`
  local project=$1 run=$2 deck=$3 precision=$4 steps=$5 sequences=$6 at_a_time=$7
  (cd "$project" && bash jobs/mpirun.sh -n "$ranks" build/trireme "input/$deck.yaml" run.directory="$run" run.steps="$steps" \
    run.precision="$precision" batch.sequences=$((ranks * sequences)) batch.micro_sequences="$at_a_time" data.cache="$run-tokens" \
    optimizer.schedule.warmup_steps=0 checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0) </dev/null >"$folder/log" 2>&1 ||
    { cat "$folder/log" >&2 && exit 1; }
}

if [[ -z $against ]]; then
  runs=()
  for row in "${decks[@]}"; do
    read -ra fields <<<"$row"
    echo "${fields[@]:0:2}" >&2
    runs+=("$folder/${fields[0]}-${fields[1]}")
    train . "${runs[-1]}" "${fields[@]}"
  done
  build/trireme speed "${runs[@]}" ${2:+--h5 "$2"}
  exit
fi

if [[ -d $against ]]; then
  other=$(cd "$against" && pwd)
  [[ -x $other/build/trireme ]] || { echo "dev/experiments/speed.sh: no build/trireme in $against" >&2 && exit 2; }
  name=$(git -C "$other" rev-parse --short HEAD)
else
  commit=$(git rev-parse --verify --quiet "$against^{commit}") || { echo "dev/experiments/speed.sh: git has no commit '$against'" >&2 && exit 2; }
  other=$folder/other name=${commit:0:7}
  git worktree add --quiet --detach "$other" "$commit"
  echo "building $name" >&2
  bash "$other/jobs/build.sh" trireme >"$folder/log" 2>&1 || { tail -n 20 "$folder/log" >&2 && exit 3; }
fi
for ((round = 1; round <= rounds; ++round)); do
  for row in "${decks[@]}"; do
    read -ra fields <<<"$row"
    echo "round $round of $rounds: ${fields[*]:0:2}" >&2
    turns=(here other)
    ((round % 2)) || turns=(other here)
    for side in "${turns[@]}"; do
      project=.
      [[ $side == here ]] || project=$other
      train "$project" "$folder/${fields[0]}-${fields[1]}-$side-$round" "${fields[@]}"
    done
  done
done
echo "ratio of the median step here to that of $name, $ranks ranks; under 1: here is faster"
"${TRIREME_PYTHON:-/usr/bin/python3}" dev/experiments/compare_speed.py "$folder" "$rounds" "${decks[@]}"
