#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains under Flux; train.sbatch explains the environment variables. Shortly before the time limit, trireme saves a checkpoint and the job
# ends with exit code 75. The same job again resumes: submit a chain.
#   usage: flux batch [OPTIONS] jobs/train.flux DECK [section.key=value …]
#          first=$(flux batch -N 4 --exclusive -t 4h jobs/train.flux input/gpt2-124m.yaml)
#          flux batch --dependency=afternotok:$first -N 4 --exclusive -t 4h jobs/train.flux input/gpt2-124m.yaml
# `trireme stop RUN_DIR` ends the job with exit code 76, and the next job of the chain resumes: flux cancel that one first.
# RANKS_PER_NODE is the number of ranks on each node; default: 1.
#flux: --job-name=trireme
unset SLURM_JOB_ID SLURM_ARRAY_JOB_ID # of a Slurm job in which Flux runs
export TRIREME_LAUNCH=${TRIREME_LAUNCH:-flux run --exclusive -N $(flux getattr size) --tasks-per-node=${RANKS_PER_NODE:-1}}
for jobs in jobs "${TRIREME_ROOT:-}/share/trireme/jobs"; do
  [ ! -r "$jobs/train.sbatch" ] || exec bash "$jobs/train.sbatch" "$@"
done
echo "error: no jobs/train.sbatch: submit from trireme's folder, or load its module" >&2
exit 2
