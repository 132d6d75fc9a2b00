#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures each optimization on this machine by running with and without it in alternation (off, on, on, off). Writes a Markdown table, an
# HDF5 file with every value, and a picture, and shows next to each result what the literature claims. docs/results/README.md explains the
# rows. Needs a build, h5py and matplotlib; takes less than ten minutes on two cores. The deck may have any model. Runs use CPUs and fp32.
# In a Slurm job: sbatch -n 8 dev/experiments/ablation.sh --ranks 8 DECK, from the top folder of the project.
#   usage: bash dev/experiments/ablation.sh [--ranks N | --hosts NAME,…] [--steps N] [--rounds N] [--output FILE.h5] [DECK [section.key=value …]]
# A round is four runs of every pair. The first three of the --steps are warm-up steps and are not measured.
# --hosts: starts one rank on each host, for example inside tests/network/hosts.sh, which creates hosts and a slow link:
#   bash tests/network/hosts.sh --rate 1gbit bash dev/experiments/ablation.sh --hosts north,south tests/network/overlap.yaml …
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")/../..
[ -f "$here/dev/experiments/ablation.sh" ] || here=${SLURM_SUBMIT_DIR:?} # sbatch runs a copy of this file
cd "$here"
unsharded="parallel.shard=none" sharded="parallel.shard=optimizer"

ranks="" hosts="" steps=16 rounds=2 output=runs/ablation.h5
usage() { sed -n 's/^#   usage: //p' "$0" >&2 && exit 2; }
while [[ ${1:-} == --* ]]; do
  [[ $# -ge 2 ]] || usage
  case $1 in
    --ranks | --steps | --rounds)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || usage
      declare "${1#--}=$2"
      ;;
    --hosts)
      [[ $2 =~ ^[^,]+(,[^,]+)+$ ]] || usage
      hosts=$2
      ;;
    --output) output=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[[ -z $hosts || -z $ranks ]] || usage
[[ -z $hosts ]] || ranks=$(tr , '\n' <<<"$hosts" | wc -l)
ranks=${ranks:-2}
launch=(bash jobs/mpirun.sh ${hosts:+-q -H "${hosts//,/:1,}:1"} -n "$ranks")
deck=${1:-input/quickstart.yaml}
common=("${@:2}" run.device=cpu run.precision=fp32)
mkdir -p "$(dirname "$output")"
folder=$(mktemp -d -p "$(dirname "$output")") # must be readable by every host of the job
trap 'rm -rf "$folder"' EXIT
trireme=${TRIREME:-build/trireme}
parts=${TRIREME_PARTS:-$(dirname "$trireme")/bench_parts} # must be from the same build
[ -x "$parts" ] || { echo "error: $parts is missing: build the target bench_parts" >&2 && exit 3; }
python() { PYTHONPATH=postproc PYTHONDONTWRITEBYTECODE=1 "${TRIREME_PYTHON:-/usr/bin/python3}" "$@"; }

nodes=${SLURM_JOB_NUM_NODES:-1}
[[ -z $hosts ]] || nodes=$ranks
plan() { # file, ranks, overrides
  "$trireme" plan "$deck" "${common[@]}" "${@:3}" --ranks "$2" --hosts $((nodes < $2 ? nodes : $2)) --json "$1" >"$folder/log" ||
    { cat "$folder/log" >&2 && exit 1; }
}
row() { # key, source, quantity, title, claim, ratio claimed, off, on
  (IFS=$'\t' && echo "$*") >>"$folder/rows.tsv"
}
pairs=() last=()
pair() { # key, title, claim, ratio claimed, off: overrides, on: overrides, both: overrides
  row "$1" "$1" step "$2" "$3" "$4" "$5" "$6"
  pairs+=("$1|$5|$6|${7:-}")
  last=("$1" "$2" "$5" "$6")
}
also() { # adds a row for another quantity of the last pair's runs: suffix of the key, quantity, claim, ratio claimed
  row "${last[0]}_$1" "${last[0]}" "$2" "${last[1]}" "$3" "$4" "${last[2]}" "${last[3]}"
}
planned() { # key, quantity, title, claim, ratio claimed, off, on, ranks
  mkdir -p "$folder/$1"
  plan "$folder/$1/off-0.json" "$8" $6
  plan "$folder/$1/on-0.json" "$8" $7
  row "$1" "$1" "$2" "$3, $8 ranks" "$4" "$5" "$6" "$7"
}

# Get from plans: a bucket size of a twentieth of the model (for the pairs about buckets), the parameter at which the parameters that may
# share a bucket are cut in half (embeddings may not share one), and the number of micro-steps per step.
plan "$folder/parameters.json" "$ranks" parallel.bucket_elements=1
plan "$folder/shared.json" "$ranks" parallel.bucket_elements=1000000000000
plan "$folder/step.json" "$ranks" parallel.reduce_every=step
plan "$folder/micro.json" "$ranks" parallel.reduce_every=micro_step
read -r twentieth middle micro_steps < <(python dev/experiments/ablation_settings.py "$folder")
small="parallel.bucket_elements=$twentieth"

pair buckets "buckets" "" "" parallel.bucket_elements=1 parallel.bucket_elements=auto
pair boundaries "buckets by size, not two halves" "" "" "parallel.bucket_boundaries=[$middle] parallel.bucket_elements=auto" parallel.bucket_elements=auto
pair order "reverse order of buckets" "" "" parallel.bucket_order=registration parallel.bucket_order=reverse "$small"
for padding in aligned megatron megatron_high_bandwidth; do
  pair "padding_$padding" "$padding padding" "" "" parallel.padding=none "parallel.padding=$padding" "$small"
  also bandwidth "bandwidth of reductions" "20–30 % more bandwidth" 1.25
  also memory "gradients in memory" "less than 1 % of memory" ""
  planned "padding_${padding}_bytes" "gradient buckets per rank" "$padding padding" "less than 1 % of memory" "" \
    parallel.padding=none "parallel.padding=$padding" 7
done
pair overlap_gradients "overlap of gradients" "about 1.3 times" 1.3 parallel.overlap_gradients=false parallel.overlap_gradients=true "$small"
pair overlap_parameters "overlap of parameters" "about 1.3 times" 1.3 parallel.overlap_parameters=false parallel.overlap_parameters=true "$small"
pair accumulation "reduction once per step" "" "" parallel.reduce_every=micro_step parallel.reduce_every=step
planned accumulation_bytes "gradients sent per rank and step" "reduction once per step" "K micro-steps: 1/K (here K = $micro_steps)" "$micro_steps" \
  parallel.reduce_every=micro_step parallel.reduce_every=step "$ranks"
pair shards "cached shards" "about 1 ms less per step with 20 buckets" "" parallel.cached_shards=false parallel.cached_shards=true "$small"
row shards_operation bench_shards "shard address" "cached shards" "slicing costs 10–50 µs" "" searched cached
row shards_step bench_shards "shard addresses of a step" "cached shards" "about 1 ms less per step with 20 buckets" "" searched cached
pair pool "memory pool" "" "" memory.pool=false memory.pool=true
also allocations "allocations of a step" "" ""
also scratch "scratch, high-water mark" "" ""
also resident "resident memory of the largest rank" "halves fragmentation" ""
row pool_growth bench_pool "fragmentation, mean" "memory pool that grows by half, not double" "halves fragmentation" 2 "factor 2" "factor 1.5"
row pool_growth_worst bench_pool "fragmentation, worst" "memory pool that grows by half, not double" "halves fragmentation" 2 "factor 2" "factor 1.5"
row pool_lease bench_pool lease "memory pool, 256 KiB" "100 µs become 1 µs" 100 allocated leased
row pool_touched bench_pool "lease, every page written" "memory pool, 256 KiB" "100 µs become 1 µs" 100 allocated leased
pair sharded "sharded optimizer" "" "" "$unsharded" "$sharded"
planned sharded_bytes "optimizer state per rank" "sharded optimizer" "4 ranks: a quarter" 4 "$unsharded" "$sharded" 4
pair bf16 "gradients in bf16" "" "" parallel.gradient_dtype=fp32 parallel.gradient_dtype=bf16
planned bf16_bytes "gradients sent per rank and step" "gradients in bf16" "" "" parallel.gradient_dtype=fp32 parallel.gradient_dtype=bf16 "$ranks"
if [ "$nodes" -eq 1 ]; then
  pair transport "shared memory, not MPI" "" "" parallel.transport=mpi parallel.transport=shared_memory
else
  pair transport "sums inside hosts first, not MPI" "" "" parallel.transport=mpi parallel.transport=hierarchical
fi

train() { # run directory, overrides
  "${launch[@]}" "$trireme" "$deck" "${common[@]}" run.directory="$1" run.steps="$steps" data.cache="$folder/tokens" \
    optimizer.schedule.warmup_steps=0 checkpoint.every_steps=0 evaluate.every_steps=0 sample.every_steps=0 "${@:2}" \
    </dev/null >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && exit 1; }
}
mkdir "$folder/bench_shards" "$folder/bench_pool"
for ((round = 0; round < rounds; ++round)); do
  for entry in "${pairs[@]}"; do
    IFS='|' read -r key off on both <<<"$entry"
    echo "round $((round + 1)) of $rounds: $key" >&2
    mkdir -p "$folder/$key"
    first=$((2 * round + 1)) second=$((2 * round + 2))
    train "$folder/$key/off-$first" $both $off
    train "$folder/$key/on-$first" $both $on
    train "$folder/$key/on-$second" $both $on
    train "$folder/$key/off-$second" $both $off
  done
  for turn in $((2 * round + 1)) $((2 * round + 2)); do
    "$parts" shards "$ranks" "$deck" "${common[@]}" "$small" >"$folder/bench_shards/both-$turn.json"
    "$parts" pool 262144 >"$folder/bench_pool/both-$turn.json"
  done
done

processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
python -m trireme_postproc.ablation_record "$folder" "$output" "machine=${processor:-$(uname -m)}, $(nproc) CPUs, load $(cut -d ' ' -f 1 /proc/loadavg) at the end" \
  "deck=$deck ${*:2}" "link=${TRIREME_LINK:-${hosts:-shared memory}}" "ranks=$ranks" "steps=$steps" "rounds=$rounds" "trireme=$("$trireme" --version | head -n 1)"
python -m trireme_postproc.cli ablation "$output" | tee "${output%.h5}.md"
