#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures how many tokens the recipe input/recipe-llama-muon.yaml saves, compared with input/recipe-gpt2-adamw.yaml. Tunes the learning rate
# of both alike (four rates each, at the deck's own length, seed 1), trains both with the best rate and three other seeds, and prints the
# losses and the share of the baseline's tokens after which its loss is reached. Steps that are done already are skipped. Needs a build;
# takes less than ten minutes on two cores.
#   usage: bash dev/experiments/compare-recipes.sh [FOLDER [RANKS [section.key=value …]]]      default: runs/recipes, 2 ranks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
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
best() { # RECIPE: the rate whose run has the lowest validation loss at its end
  "$python" - "$folder/$1" "${rates[@]}" <<'PYTHON'
import sys
import h5py
def loss(rate):
    with h5py.File(f"{sys.argv[1]}/rate-{rate}/run.h5", "r") as file:
        return file["validation/loss"][-1]
found = {rate: loss(rate) for rate in sys.argv[2:]}
print(*(f"{rate}: {value:.4f}" for rate, value in found.items()), sep="  ", file=sys.stderr)
print(min(found, key=found.get))
PYTHON
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

"$python" - "$folder" "${#seeds[@]}" "${recipes[@]}" "${seeds[@]}" <<'PYTHON'
import statistics, sys
import h5py, numpy
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
folder, count = sys.argv[1], int(sys.argv[2])
recipes, seeds = sys.argv[3:-count], sys.argv[-count:]
curves = {}
for recipe in recipes:
    for seed in seeds:
        with h5py.File(f"{folder}/{recipe}/seed-{seed}/run.h5", "r") as file:
            tokens = dict(zip(file["steps/step"][:], file["steps/tokens"][:]))
            steps, losses = file["validation/step"][:], file["validation/loss"][:]
        curves[recipe, seed] = numpy.array([tokens.get(step, 0) for step in steps]), losses
for recipe in recipes:
    ends = [curves[recipe, seed][1][-1] for seed in seeds]
    print(f"{recipe:<12} {int(curves[recipe, seeds[0]][0][-1]):>9} tokens  validation loss {statistics.mean(ends):.4f} "
          f"(seeds: {', '.join(f'{end:.4f}' for end in ends)}; standard deviation {statistics.stdev(ends):.4f})")
base, other = recipes
for seed in seeds:
    goal, (tokens, losses) = curves[base, seed][1][-1], curves[other, seed]
    share = numpy.interp(-goal, -losses, tokens) / curves[base, seed][0][-1] if losses.min() <= goal else float("nan")
    print(f"seed {seed}: {other} reaches {goal:.4f} of {base} after {share:.3f} of its tokens (between two evaluations: a straight line)")
for index, recipe in enumerate(recipes):
    for seed in seeds:
        tokens, losses = curves[recipe, seed]
        pyplot.plot(tokens / 1e6, losses, f"C{index}", marker="o", markersize=3, label=recipe if seed == seeds[0] else None)
pyplot.xlabel("tokens / 10⁶")
pyplot.ylabel("validation loss / nat")
pyplot.yscale("log")
pyplot.legend()
pyplot.savefig(f"{folder}/recipes.png", dpi=150)
print(f"picture: {folder}/recipes.png")
PYTHON
