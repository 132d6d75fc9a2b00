#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how many tokens the recipe input/recipe-llama-muon.yaml saves compared with input/recipe-gpt2-adamw.yaml. Tunes the learning rate
# of both in the same way (four rates each, the deck's number of steps, seed 1), then trains both with the best rate and three other seeds.
# Prints the losses, and the share of the baseline's tokens that the other recipe needs to reach the baseline's loss. Complete runs are not
# repeated. Needs a build; takes less than ten minutes on two cores.
#   usage: bash dev/experiments/compare-recipes.sh [FOLDER [RANKS [section.key=value …]]]      default: runs/recipes, 2 ranks
set -euo pipefail
[[ ${1:-} != -* ]] || { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
folder=${1:-runs/recipes} ranks=${2:-2} more=("${@:3}")
program=${TRIREME:-build/trireme} python=${TRIREME_PYTHON:-/usr/bin/python3}
recipes=(gpt2-adamw llama-muon) rates=(3e-3 6e-3 1.2e-2 2.4e-2) seeds=(1337 1338 1339)
mkdir -p "$folder"

train() { # RECIPE NAME [section.key=value …]
  local run=$folder/$1/$2
  echo "$(date +%T) $run"
  bash jobs/mpirun.sh -n "$ranks" "$program" "input/recipe-$1.yaml" run.directory="$run" run.threads=1 data.cache="$folder/tokens" \
    "${@:3}" "${more[@]}" </dev/null >"$folder/$1-$2.txt" 2>&1 || {
    grep "error: " "$folder/$1-$2.txt" >&2 || tail -n 20 "$folder/$1-$2.txt" >&2
    exit 1
  }
}
best() { # RECIPE: prints the rate whose run has the lowest final validation loss
  "$python" dev/experiments/compare_recipes.py best "$folder/$1" "${rates[@]}"
}

declare -A chosen
for recipe in "${recipes[@]}"; do
  for rate in "${rates[@]}"; do
    train "$recipe" "rate-$rate" run.seed=1 optimizer.learning_rate="$rate"
  done
  chosen[$recipe]=$(best "$recipe")
  echo "$recipe: learning rate ${chosen[$recipe]}"
done
for seed in "${seeds[@]}"; do
  for recipe in "${recipes[@]}"; do
    train "$recipe" "seed-$seed" run.seed="$seed" optimizer.learning_rate="${chosen[$recipe]}"
  done
done

"$python" dev/experiments/compare_recipes.py table "$folder" "${recipes[@]}" "${seeds[@]}"
