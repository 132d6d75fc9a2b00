#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks on two ranks whether `trireme tune` reaches its goals on this machine, over a slow link between two hosts (network namespaces that
# tests/network/hosts.sh creates) and in shared memory. It tunes the deck, then runs the original and the tuned deck in alternation
# (own, tuned, tuned, own: a round of four runs). Writes a Markdown table and a JSON file with every value. Goals: compared with the
# original deck, a step of the tuned deck takes at most 0.95 of the time over a slow link, and at most 1.01 of it anywhere. Needs a build,
# h5py and, for a link, what hosts.sh needs; CPUs only. For results to publish, nothing else may run on the machine.
#   usage: bash dev/experiments/tune-goals.sh [--links shared,RATE,…] [--seconds N] [--rounds N] [--steps N] [--output FILE.json] [DECK [section.key=value …]]
# RATE: as tc writes it, 300mbit. --seconds: time limit of tune. The first three of the --steps are warm-up steps and are not measured.
# Exit code: 0: both goals hold; 1: a goal is missed; 2: wrong usage or input; 3: a command failed, or this machine has no such link.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

links=shared,300mbit seconds=100 rounds=4 steps=18 output=runs/tune-goals.json place=""
usage() { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
while [[ ${1:-} == --* ]]; do
  [[ $# -ge 2 ]] || usage
  case $1 in
    --seconds | --rounds | --steps)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || usage
      declare "${1#--}=$2"
      ;;
    --links)
      [[ $2 =~ ^(shared|[0-9.]+[a-z]+)(,(shared|[0-9.]+[a-z]+))*$ ]] || usage
      links=$2
      ;;
    --output) output=$2 ;;
    --place) place=$2 ;; # internal: the folder of one link; this script calls itself with it inside the hosts of the link
    *) usage ;;
  esac
  shift 2
done
[ "$steps" -gt 3 ] || usage
deck=${1:-input/quickstart.yaml}
trireme=$(realpath "${TRIREME:-build/trireme}")
# Half of the cores for each rank: both "hosts" are this machine, and with `auto` each rank would take all of its cores.
threads=$(($(nproc) / 2))
common=("run.threads=$((threads > 0 ? threads : 1))" run.precision=fp32 run.device=cpu "${@:2}")
python() { PYTHONPATH=postproc PYTHONDONTWRITEBYTECODE=1 "${TRIREME_PYTHON:-/usr/bin/python3}" "$@"; }

launch() { # command
  local start=(bash jobs/mpirun.sh -n 2)
  [ -z "${TRIREME_HOSTS_SH:-}" ] || start=(bash jobs/mpirun.sh -q -H north:1,south:1 -n 2) # inside hosts.sh
  "${start[@]}" "$@" </dev/null >"$place/log" 2>&1 || { cat "$place/log" >&2 && exit 3; }
}
train() { # deck, run directory
  launch "$trireme" "$1" "${common[@]}" run.directory="$place/$2" run.steps="$steps" data.cache="$place/tokens" \
    optimizer.schedule.warmup_steps=0 checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0
}
one_link() {
  mkdir "$place"
  echo "$(basename "$place"): tune" >&2
  launch "$trireme" tune "$deck" "${common[@]}" data.cache="$place/tokens" run.directory="$place/none" --seconds "$seconds" \
    --output "$place/tuned.yaml" --json "$place/tune.json"
  if grep -q '"chosen": 0$' "$place/tune.json"; then
    return # nothing to compare: the tuned deck has the same values as the original
  fi
  for ((round = 1; round <= rounds; ++round)); do
    echo "$(basename "$place"): round $round of $rounds" >&2
    train "$deck" "$round-own-1"
    train "$place/tuned.yaml" "$round-tuned-1"
    train "$place/tuned.yaml" "$round-tuned-2"
    train "$deck" "$round-own-2"
  done
}
if [ -n "$place" ]; then
  one_link
  exit
fi

for word in "${common[@]}"; do
  case $word in
    batch.micro_sequences=* | model.recompute=* | parallel.transport=* | parallel.bucket_*=*)
      echo "error: $word: tune chooses this key, and an override would hide its choice: write it into the deck" >&2
      exit 2
      ;;
  esac
done
mkdir -p "$(dirname "$output")"
folder=$(realpath "$(mktemp -d -p "$(dirname "$output")")")
trap 'rm -rf "$folder"' EXIT
began=$SECONDS
for link in ${links//,/ }; do
  start=()
  [ "$link" = shared ] || start=(bash tests/network/hosts.sh --rate "$link")
  status=0
  "${start[@]}" bash dev/experiments/tune-goals.sh --place "$folder/$link" --seconds "$seconds" --rounds "$rounds" --steps "$steps" "$deck" "${@:2}" >"$folder/said" || status=$?
  if [ $status -ne 0 ]; then
    cat "$folder/said" >&2
    [ $status -ne 77 ] || echo "error: no slow link here: --links shared leaves it out" >&2
    exit 3
  fi
done

processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
python -m trireme_postproc.tune_goals "$folder" "$output" "machine=${processor:-$(uname -m)}, $(nproc) CPUs, load $(cut -d ' ' -f 1 /proc/loadavg) at the end" \
  "deck=$deck ${common[*]}" "rounds=$rounds, $steps steps, $((SECONDS - began)) s in all" "trireme=$("$trireme" --version | head -n 1)"
