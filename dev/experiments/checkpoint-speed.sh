#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how fast checkpoints are written to a disk, in alternation with `dd conv=fsync` of the same number of random bytes. Prints the
# medians of four times: writing during steps, writing while the run waits, dd, and the pause of the run in addition to the copy.
# Needs a build and an otherwise idle machine; takes about two minutes on two cores. Keeps no files.
#   usage: bash dev/experiments/checkpoint-speed.sh [FOLDER [RANKS [TURNS]]]      measures the disk of FOLDER; default: runs/
set -euo pipefail
[[ ${1:-} != -* ]] || { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
mkdir -p "${1:-runs}"
folder=$(mktemp -d "${1:-runs}/checkpoint-speed-XXXXXX")
source=$(mktemp /dev/shm/trireme-XXXXXX) # in memory, so that dd only waits for the disk it writes to
trap 'rm -rf "$folder" "$source"' EXIT
ranks=${2:-2} turns=${3:-4}

bytes=0
for ((turn = 0; turn < turns; ++turn)); do
  bash jobs/mpirun.sh -n "$ranks" build/trireme input/quickstart.yaml run.directory="$folder/run$turn" run.steps=33 run.threads=1 \
    run.precision=fp32 model.layers=9 model.channels=512 model.heads=8 batch.sequences=$((4 * ranks)) batch.micro_sequences=4 \
    checkpoint.every_steps=8 checkpoint.keep=1 evaluate.every_steps=0 sample.every_steps=0 \
    optimizer.schedule.warmup_steps=0 </dev/null >/dev/null
  if [ $bytes -eq 0 ]; then
    bytes=$(find "$folder/run$turn/checkpoints/step-00000033" -type f -printf '%s\n' | awk '{all += $1} END {print all}')
    head -c "$bytes" /dev/urandom >"$source"
  fi
  rm -rf "$folder/run$turn/checkpoints" "$folder/run$turn/tokens"
  for _ in 1 2 3 4; do
    dd if="$source" of="$folder/dd" bs=8M conv=fsync 2>&1 | sed -n 's/.* copied, \([0-9.e-]*\) s.*/\1/p' >>"$folder/dd.txt"
    rm "$folder/dd"
  done
done

"${TRIREME_PYTHON:-/usr/bin/python3}" dev/experiments/checkpoint_speed.py "$folder"
