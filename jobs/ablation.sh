#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each optimization of a deck's step against its absence, on this machine or in the allocation of a job. The two sides of a row are runs
# that take turns, first one side, then the other, so that a disturbance of the machine hits both; a run's figure is its median step, the
# ratio of a row is the median over the turns. Writes ablation.h5 and ablation.md into OUTPUT, a new folder, and prints the table.
#   usage: [RANKS=2] [TURNS=3] [STEPS=20] bash jobs/ablation.sh [DECK [OUTPUT [section.key=value …]]]
# TRIREME names another executable than build/trireme. Under sbatch the ranks are the job's.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}"
deck=${1:-input/quickstart.yaml} output=${2:-runs/ablation}
shift $(($# > 2 ? 2 : $#))
if [ -e "$output" ]; then
  echo "error: $output is there already: name another folder for the results" >&2
  exit 2
fi
mkdir -p "$output"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

export RANKS=${RANKS:-${SLURM_NTASKS:-2}} TURNS=${TURNS:-3} STEPS=${STEPS:-20}
"${TRIREME_PYTHON:-/usr/bin/python3}" - "$deck" "$output" "$folder" "$@" <<'END'
import datetime, json, os, platform, statistics, subprocess, sys
import h5py
deck, output, folder, *overrides = sys.argv[1:]
ranks, turns, steps = (int(os.environ[name]) for name in ("RANKS", "TURNS", "STEPS"))
trireme = os.environ.get("TRIREME", "build/trireme")
warmup = 3
if steps <= warmup or turns < 1:
    sys.exit(f"error: STEPS={steps} TURNS={turns}: more than {warmup} steps and at least one turn are needed")

# What is compared, what is known of it from elsewhere, the keys without it, the keys with it.
small = "parallel.bucket_elements=100000"  # several buckets, also of a small model
ROWS = [
    ("buckets instead of a collective per parameter", "-", ["parallel.bucket_elements=1"], []),
    ("padding: aligned instead of none", "< 1 % of memory, 1.2 to 1.3 x bandwidth", ["parallel.padding=none"], ["parallel.padding=aligned"]),
    ("padding: megatron_high_bandwidth instead of none", "as above", ["parallel.padding=none"],
     ["parallel.padding=megatron_high_bandwidth"]),
    ("buckets in reverse instead of registration order", "-", [small, "parallel.bucket_order=registration"],
     [small, "parallel.bucket_order=reverse"]),
    ("overlap of gradients", "1.3 x, both overlaps", [small, "parallel.overlap_gradients=false"], [small, "parallel.overlap_gradients=true"]),
    ("overlap of parameters", "as above", [small, "parallel.overlap_parameters=false"], [small, "parallel.overlap_parameters=true"]),
    ("one reduction per step instead of one per micro-step", "K micro-steps: 1/K of the bytes", ["parallel.reduce_every=micro_step"],
     ["parallel.reduce_every=step"]),
    ("cached shards", "1 ms per step of 20 buckets", ["parallel.cached_shards=false"], ["parallel.cached_shards=true"]),
    ("pooled scratch", "100 us to 1 us per lease", ["memory.pool=false"], ["memory.pool=true"]),
    ("sharded optimizer", "4 ranks: a quarter of the state", ["optimizer.sharded=false"], ["optimizer.sharded=true"]),
    ("gradients travel in bf16 instead of fp32", "half of the bytes", ["parallel.gradient_dtype=fp32"], ["parallel.gradient_dtype=bf16"]),
    ("shared memory instead of MPI messages", "-", ["parallel.transport=mpi"], ["parallel.transport=shared_memory"]),
]

def said_by(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr

def step_of(keys):
    """The median step of a run, in seconds; or why there is none."""
    directory = os.path.join(folder, "run")
    subprocess.run(["rm", "-rf", directory], check=True)
    launcher = ["srun"] if "SLURM_JOB_ID" in os.environ else ["bash", "jobs/mpirun.sh", "-n", str(ranks)]
    code, said = said_by([*launcher, trireme, deck, *overrides, f"run.directory={directory}", f"run.steps={steps}",
                          "optimizer.schedule.warmup_steps=0", "checkpoint.every_steps=0", "evaluate.every_steps=0",
                          "sample.every_steps=0", *keys])
    if code == 2:  # a switch that does not fit this deck or placement
        return None, next((line for line in said.splitlines() if "error: " in line), said)
    if code != 0:
        sys.exit(f"error: the run with {' '.join(keys) or 'the deck alone'} ended with code {code}\n{said}")
    with h5py.File(os.path.join(directory, "run.h5"), "r") as file:
        return statistics.median(file["steps/seconds"][warmup:]), ""

def rows_of(*bench):
    path = os.path.join(folder, "rows.json")
    if os.path.exists(path):
        os.remove(path)
    code, said = said_by([trireme, *bench, "--json", path])
    if code != 0:
        sys.exit(f"error: trireme {' '.join(bench)} ended with code {code}\n{said}")
    with open(path, encoding="utf-8") as file:
        return json.load(file)

def state_bytes(keys):
    held = rows_of("plan", deck, *overrides, *keys, "--ranks", str(ranks))["per_rank"]["fp32"]
    return held["moment1_bytes"] + held.get("moment2_bytes", 0)

table, left_out = [], []
def add(name, claim, unit, off, on, ratios):
    table.append((name, claim, unit, off, on, statistics.median(ratios), min(ratios), max(ratios)))
    print(f"{name:<54}{unit:>6}{off:>12.4g}{on:>12.4g}{table[-1][5]:>8.3f}  {min(ratios):.3f} to {max(ratios):.3f}", flush=True)

print(f"{'optimization':<54}{'unit':>6}{'off':>12}{'on':>12}{'off/on':>8}  over {turns} turns")
load = os.getloadavg()[0]
for name, claim, off_keys, on_keys in ROWS:
    sides, problem = {False: [], True: []}, ""
    for turn in range(turns):
        for on in (False, True) if turn % 2 == 0 else (True, False):
            seconds, why = step_of(on_keys if on else off_keys)
            problem = problem or why
            sides[on].append(seconds)
        if problem:
            break
    if problem:
        left_out.append((name, problem))
        continue
    add(name, claim, "ms", *(1e3 * statistics.median(sides[on]) for on in (False, True)), [a / b for a, b in zip(sides[False], sides[True])])

shards = {row["operation"]: row["seconds"] for row in rows_of("bench", "shards", deck, *overrides, "--ranks", str(ranks))["rows"]}
add("cached shards: all addresses of a step", "10 to 50 us per slice", "ns", *(1e9 * shards[key] for key in ("searched", "cached")),
    [shards["searched"] / shards["cached"]])
pool = {row["operation"]: row["seconds"] for row in rows_of("bench", "pool", "--bytes", "4194304")["rows"] if not row["touched"]}
add("pooled scratch: a lease of 4 MiB", "100 us to 1 us", "ns", *(1e9 * pool[key] for key in ("allocate", "lease")),
    [pool["allocate"] / pool["lease"]])
state = [state_bytes([f"optimizer.sharded={word}"]) for word in ("false", "true")]
add(f"sharded optimizer: moments per rank on {ranks}", "4 ranks: a quarter", "byte", *map(float, state), [state[0] / state[1]])
for name, why in left_out:
    print(f"left out: {name}: {why}")

facts = {"deck": deck, "overrides": " ".join(overrides), "ranks": ranks, "turns": turns, "steps": steps, "warmup_steps": warmup,
         "host": platform.node(), "cpus": os.cpu_count(), "load_before": load, "load_after": os.getloadavg()[0],
         "program": " ".join(said_by([trireme, "--version"])[1].split("\n")[0].split()),
         "date_and_time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
columns = [("optimization", "", "What is compared."), ("claim", "", "What is known of it from elsewhere."), ("unit", "", "Of off and on."),
           ("off", "unit", "Without it: the median over the turns."), ("on", "unit", "With it."),
           ("ratio", "1", "off / on: the median over the turns."), ("lowest_ratio", "1", "Of a turn."), ("highest_ratio", "1", "Of a turn.")]
with h5py.File(os.path.join(output, "ablation.h5"), "x") as file:
    file.attrs.update({"filetype": "trireme-ablation", "version": [1, 0], **facts})
    for (name, unit, text), values in zip(columns, zip(*table)):
        column = file.create_dataset(f"ablation/{name}", data=list(values), dtype=h5py.string_dtype() if unit == "" else "f8")
        column.attrs.update({"unit": unit, "help": text})
with open(os.path.join(output, "ablation.md"), "x", encoding="utf-8") as file:
    file.write("".join(f"- {name}: {value}\n" for name, value in facts.items() if value != ""))
    file.write("\n| optimization | what is known of it | off | on | off / on | spread |\n|---|---|---|---|---|---|\n")
    for name, claim, unit, off, on, ratio, low, high in table:
        spread = f"{low:.3f} to {high:.3f}" if low != high else "-"
        file.write(f"| {name} | {claim} | {off:.4g} {unit} | {on:.4g} {unit} | {ratio:.3f} | {spread} |\n")
    file.write("".join(f"\nLeft out: {name}: {why}\n" for name, why in left_out))
print(f"{output}/ablation.h5, {output}/ablation.md")
END
