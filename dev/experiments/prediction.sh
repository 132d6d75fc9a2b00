#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares predicted with measured times on this machine. In every round and for each number of ranks, `bench reduce --fit` measures the
# machine, `plan --machine` predicts the times of a step and of a checkpoint, and two runs are timed, one with overlap and one without.
# Each run writes about five checkpoints during its steps, at most one every 5 steps. Writes a Markdown table, a JSON file with every value,
# and a picture. Needs a build, h5py and matplotlib; CPUs only.
#   usage: bash dev/experiments/prediction.sh [--ranks N,…] [--hosts NAME,…] [--per-rank N] [--steps N] [--rounds N] [--output FILE.json] [DECK [section.key=value …]]
# --per-rank: weak scaling with batch.sequences = N times the number of ranks. Default: strong scaling, which divides the deck's batch.
# --hosts: starts one rank on each of the first hosts, for example inside tests/network/hosts.sh, which creates hosts and a slow link:
#   bash tests/network/hosts.sh --rate 1gbit bash dev/experiments/prediction.sh --hosts north,south --ranks 2 tests/network/overlap.yaml …
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")/../..
[ -f "$here/dev/experiments/prediction.sh" ] || here=${SLURM_SUBMIT_DIR:?} # sbatch runs a copy of this file
cd "$here"

ranks=1,2,4 hosts="" per_rank="" steps=40 rounds=3 output=runs/prediction.json
usage() { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
while [[ ${1:-} == --* ]]; do
  [[ $# -ge 2 ]] || usage
  case $1 in
    --steps | --rounds | --per-rank)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || usage
      name=${1#--}
      declare "${name//-/_}=$2"
      ;;
    --ranks)
      [[ $2 =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]] || usage
      ranks=$2
      ;;
    --hosts) hosts=$2 ;;
    --output) output=$2 ;;
    *) usage ;;
  esac
  shift 2
done
deck=${1:-input/quickstart.yaml}
common=("${@:2}" run.device=cpu)
every=$((steps >= 25 ? steps / 5 : 5)) # rare enough for the median to ignore the steps that a checkpoint slows
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d -p "$(dirname "$output")") # must be readable by every host of the job
trap 'rm -rf "$folder"' EXIT
trireme=${TRIREME:-build/trireme}
python() { PYTHONPATH=postproc PYTHONDONTWRITEBYTECODE=1 "${TRIREME_PYTHON:-/usr/bin/python3}" "$@"; }
quietly() { "$@" </dev/null >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && exit 1; }; }

launch() { # number of ranks, command
  if [[ -z $hosts ]]; then
    quietly bash jobs/mpirun.sh -n "$1" "${@:2}"
  else
    quietly bash jobs/mpirun.sh -q -H "$(cut -d , -f "1-$1" <<<"$hosts" | sed 's/,\|$/:1&/g')" -n "$1" "${@:2}"
  fi
}
settings=("overlap|" "no overlap|parallel.overlap_gradients=false parallel.overlap_parameters=false")
for ((round = 1; round <= rounds; ++round)); do
  for count in ${ranks//,/ }; do
    echo "round $round of $rounds: $count ranks" >&2
    place=$folder/$round/$count
    mkdir -p "$place"
    words=("${common[@]}" ${per_rank:+"batch.sequences=$((per_rank * count))"})
    launch "$count" "$trireme" bench reduce "$deck" "${words[@]}" run.directory="$folder" data.cache="$folder/tokens" --fit "$place/machine.yaml"
    for setting in "${settings[@]}"; do
      IFS='|' read -r name overrides <<<"$setting"
      quietly "$trireme" plan "$deck" "${words[@]}" run.directory="$folder" $overrides --ranks "$count" --hosts "$([[ $hosts ]] && echo "$count" || echo 1)" \
        --machine "$place/machine.yaml" --json "$place/$name.json"
      launch "$count" "$trireme" "$deck" "${words[@]}" run.directory="$place/$name" run.steps="$steps" data.cache="$folder/tokens" \
        optimizer.schedule.warmup_steps=0 checkpoint.every_steps="$every" evaluate.every_steps=0 sample.every_steps=0 $overrides
    done
  done
done

processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
python -m trireme_postproc.prediction_record "$folder" "$output" "machine=${processor:-$(uname -m)}, $(nproc) CPUs, load $(cut -d ' ' -f 1 /proc/loadavg) at the end" \
  "deck=$deck ${common[*]}" "link=${TRIREME_LINK:-${hosts:-shared memory}}" ${per_rank:+"sequences per rank=$per_rank"} "steps=$steps" "rounds=$rounds" "trireme=$("$trireme" --version | head -n 1)"
python -m trireme_postproc.cli prediction "$output" | tee "${output%.json}.md"
