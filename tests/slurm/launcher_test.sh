#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks which launcher jobs/train.sbatch chooses, depending on the executable's MPI library, Slurm's plugins and TRIREME_MPIRUN, and which
# options jobs/mpirun.sh gives it. Also checks the scripts for other schedulers in the environment of their jobs. ldd, srun, scontrol,
# mpirun and flux are fakes, so no scheduler is needed.
#   usage: launcher_test.sh SOURCE_DIR
set -uo pipefail
script=$1/jobs/train.sbatch failures=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/bin" "$here/other"
printf '#!/bin/sh\nprintf "\\tlibc.so.6 => x\\n\\t%%s => x\\n" "$LIBRARY"\n' >"$here/bin/ldd"
printf '#!/bin/sh\n[ "$1" = --mpi=list ] || exec echo "srun exports ${SLURM_EXPORT_ENV-all}"\nprintf "%%s\\n" "MPI plugin types are..." $PLUGINS\n' \
  >"$here/bin/srun"
printf '#!/bin/sh\n[ "$1" != --version ] || echo "$LAUNCHER"\n' | tee "$here/bin/mpirun" >"$here/other/mpiexec"
printf '#!/bin/sh\n' | tee "$here/bin/scontrol" >"$here/bin/flux"
printf '#!/bin/sh\n' >"$here/program"
chmod +x "$here"/bin/* "$here/other/mpiexec" "$here/program"
export PATH=$here/bin:$PATH TRIREME=$here/program SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_SUBMIT_DIR=$here SLURM_JOB_END_TIME=0
unset TRIREME_LAUNCH TRIREME_MPIRUN TRIREME_MODULES SLURM_RESTART_COUNT

launched() { # arguments: expected command, then settings: LIBRARY=…, PLUGINS=…, LAUNCHER=…
  local expected=$1
  shift
  env "$@" bash "$script" deck.yaml >"$here/out" 2>&1
  grep -qF -- ": $expected $here/program deck.yaml" "$here/out" || {
    echo "not '$expected' with $*:" && cat "$here/out" && failures=$((failures + 1))
  }
}
open_mpi="LAUNCHER=mpirun (Open MPI) 4.1.4" hydra="LAUNCHER=HYDRA build details:" intel="LAUNCHER=Intel(R) MPI Library for Linux* OS, Version 2021.10"
with_own="--bind-to none"
launched "srun --mpi=pmix --kill-on-bad-exit=1" LIBRARY=libmpi.so.40 PLUGINS="none pmi2 pmix" "$open_mpi"
launched "mpirun $with_own" LIBRARY=libmpi.so.40 PLUGINS="none pmi2" "$open_mpi"
launched "$here/other/mpiexec $with_own" LIBRARY=libmpi.so.40 PLUGINS="none pmi2" "$open_mpi" TRIREME_MPIRUN="$here/other/mpiexec"
for library in libmpich.so.12 libmpi.so.12; do
  launched "mpirun" LIBRARY=$library PLUGINS="none pmi2 pmix" "$hydra"
  launched "$here/other/mpiexec" LIBRARY=$library PLUGINS="none pmi2 pmix" "$hydra" TRIREME_MPIRUN="$here/other/mpiexec"
done
launched "mpirun" LIBRARY=libmpi.so.12 PLUGINS="none pmi2 pmix" "$intel"
launched "srun --mpi=pmi2" LIBRARY=libmpi.so.12 PLUGINS="none pmi2 pmix" "$open_mpi"
launched "srun --mpi=pmi2" LIBRARY=libmpi_gnu_123.so.12 PLUGINS="none pmi2 pmix" LAUNCHER= TRIREME_MPIRUN=/usr/bin/srun
launched "srun --mpi=cray_shasta" LIBRARY=libmpi_gnu_123.so.12 PLUGINS="none cray_shasta pmi2 pmix" LAUNCHER=
launched "flux run -n 2" LIBRARY=libmpi_cray.so.12 PLUGINS=none LAUNCHER= TRIREME_LAUNCH="flux run -n 2"

given() { # arguments: source directory, LAUNCHER=…, expected options
  [ "$(env "$2" bash "$1/jobs/mpirun.sh" --flags mpirun)" = "$3" ] || { echo "not '$3' with $2" && failures=$((failures + 1)); }
}
given "$1" "$open_mpi" "--bind-to none --oversubscribe"
given "$1" "$hydra" "-bind-to none"
given "$1" "$intel" "-genv I_MPI_PIN off"
given "$1" LAUNCHER=another ""

# mpirun.sh in another tree, where CMake's cache names the launcher: called through a link, and with a CDPATH to another tree.
mkdir -p "$here/tree/jobs" "$here/tree/build" "$here/elsewhere/jobs"
cp "$1/jobs/mpirun.sh" "$here/tree/jobs/"
ln -s "$here/tree/jobs/mpirun.sh" "$here/elsewhere/"
printf 'MPIEXEC_EXECUTABLE:FILEPATH=%s\n' "$here/built-with" >"$here/tree/build/CMakeCache.txt"
for name in built-with bin/mpirun bin/mpiexec.other; do
  printf '#!/bin/sh\necho "%s $*"\n' "$name" >"$here/$name" && chmod +x "$here/$name"
done
started() { # arguments: expected output, exit code and folder, then settings and a command
  local expected=$1 code=$2 got=0
  (cd "$3" && shift 3 && env "$@") >"$here/out" 2>&1 || got=$?
  { [ $got -eq "$code" ] && grep -q -- "$expected" "$here/out"; } || {
    echo "not '$expected' with $code, but $got, with ${*:3}:" && cat "$here/out" && failures=$((failures + 1))
  }
}
started '^built-with -n 2 a$' 0 "$here/elsewhere" bash ./mpirun.sh -n 2 a
started '^built-with -n 2 a$' 0 "$here/tree" CDPATH="$here/elsewhere" bash jobs/mpirun.sh -n 2 a
started '^bin/mpiexec.other -n 2 a$' 0 "$here" TRIREME_MPIRUN=mpiexec.other bash tree/jobs/mpirun.sh -n 2 a
started 'error: no /none: ' 3 "$here" TRIREME_MPIRUN=/none bash tree/jobs/mpirun.sh -n 2 a
started '^usage: bash jobs/mpirun.sh' 2 "$here" bash tree/jobs/mpirun.sh
started '^usage: bash jobs/mpirun.sh' 2 "$here" bash tree/jobs/mpirun.sh --flags
mv "$here/tree/build/CMakeCache.txt" "$here/tree/build/none"
started '^bin/mpirun -n 2 a$' 0 "$here" bash tree/jobs/mpirun.sh -n 2 a
started 'error: no /none: ' 2 "$here" TRIREME=/none bash "$script" deck.yaml
started 'error: no nowhere: ' 3 "$here" TRIREME_LAUNCH=nowhere bash "$script" deck.yaml
printf '#!/bin/sh\n[ "$1" != --version ] || echo "$LAUNCHER"\n' >"$here/bin/mpirun"

env LIBRARY=libmpi.so.12 PLUGINS=none LAUNCHER= bash "$script" deck.yaml >"$here/out" 2>&1
{ [ $? -eq 3 ] && grep -q "set TRIREME_MPIRUN or TRIREME_LAUNCH" "$here/out"; } ||
  { echo "no error where there is no launcher:" && cat "$here/out" && failures=$((failures + 1)); }

module() { echo "loaded $2 $3 $UNSET_BY_ANYONE"; } # like a real module function, this fails under set -u
export -f module
launched "srun --mpi=pmix --kill-on-bad-exit=1" LIBRARY=libmpi.so.40 PLUGINS=pmix LAUNCHER= TRIREME_MODULES="one two" SLURM_EXPORT_ENV=NONE
grep -q "srun exports all" "$here/out" || { echo "ranks do not get the environment of the modules:" && cat "$here/out" && failures=$((failures + 1)); }
grep -q "loaded one two" "$here/out" || { echo "modules are not loaded:" && cat "$here/out" && failures=$((failures + 1)); }

# Other schedulers: the environment that they document for jobs.
printf '#!/bin/sh\n[ "$1 $2" != "getattr size" ] || echo 4\n' >"$here/bin/flux"
# The fakes use bash, because other shells may unblock signals.
printf '#!/usr/bin/env bash\n{ env && grep SigBlk /proc/self/status; } >%s/seen\nexit 75\n' "$here" >"$here/program"
printf '#!/usr/bin/env bash\n[ "$1" = --version ] && echo "$LAUNCHER" && exit\nfor last; do :; done\nexec "%s/program"\n' "$here" >"$here/bin/mpirun"
chmod +x "$here/bin/flux"
unset SLURM_JOB_ID SLURM_JOB_NODELIST SLURM_SUBMIT_DIR SLURM_JOB_END_TIME
elsewhere() { # arguments: script, expected line, settings
  local script=$1 expected=$2
  shift 2
  env HOSTNAME=n1 LIBRARY=libmpi.so.40 PLUGINS= "$open_mpi" TRIREME_ROOT= "$@" bash "$source/jobs/$script" ${words:-} >"$here/out" 2>&1
  local code=$?
  { [ $code -eq 75 ] || [ "$script" = train.flux ]; } && grep -qF -- "$expected" "$here/out" || {
    echo "not '$expected' by $script, or code $code:" && cat "$here/out" && failures=$((failures + 1))
  }
}
source=$(cd "$1" && pwd)
elsewhere train.pbs "job 12[3].server, start 1, on n1, " "PBS_JOBID=12[3].server" PBS_ARRAY_INDEX=3 PBS_O_WORKDIR="$source" PBS_NODEFILE=/pbs/nodes \
  DECK="deck.yaml run.seed={array}"
grep -qF "mpirun $with_own $here/program deck.yaml run.seed={array}" "$here/out" || { echo "the words of DECK are lost:" && cat "$here/out" && failures=$((failures + 1)); }
grep -qx OMPI_MCA_orte_default_hostfile=/pbs/nodes "$here/seen" || { echo "mpirun does not know the hosts of PBS" && failures=$((failures + 1)); }
# A SIGTERM to every process of a job must not reach mpirun and its daemons. It can be blocked from coreutils 8.31 on.
! env --block-signal=TERM true 2>/dev/null || {
  blocked=$(sed -n 's/^SigBlk:[[:space:]]*/0x/p' "$here/seen")
  [ $((blocked >> 14 & 1)) -eq 1 ] && grep -qx "OMPI_MCA_orte_launch_agent=env --block-signal=TERM orted" "$here/seen"
} || { echo "mpirun or its daemons are open to TERM" && failures=$((failures + 1)); }
grep -q "the same job again resumes" "$here/out" || { echo "PBS: no word on how to resume" && failures=$((failures + 1)); }
elsewhere train.lsf "job 12[3], start 1, on n1, " LSB_JOBID=12 LSB_JOBINDEX=3 LS_SUBCWD="$source" LSB_DJOB_HOSTFILE=/lsf/hosts DECK=deck.yaml
grep -qx HYDRA_HOST_FILE=/lsf/hosts "$here/seen" || { echo "mpirun does not know the hosts of LSF" && failures=$((failures + 1)); }
cd "$source" || exit 1
words=deck.yaml elsewhere train.flux ": flux run --exclusive -N 4 --tasks-per-node=2 $here/program deck.yaml" FLUX_ENCLOSING_ID=f1 RANKS_PER_NODE=2 SLURM_JOB_ID=5
cd "$here" || exit 1
for script in pbs lsf; do # submitted from another folder, without a module
  env PBS_O_WORKDIR="$here" LS_SUBCWD="$here" TRIREME_ROOT= DECK=deck.yaml bash "$source/jobs/train.$script" >"$here/out" 2>&1
  { [ $? -eq 2 ] && grep -q "submit from trireme's folder" "$here/out"; } || { echo "$script: no error" && cat "$here/out" && failures=$((failures + 1)); }
done

# Signals between starts. The fake program requests restarts and fails at each start.
printf '#!/usr/bin/env bash\n[ "$1" = check ] && command sleep 0.5 && echo shrink && exit\necho begun && exit ${CODE:-3}\n' >"$here/program"
signalled() { # arguments: signal, number of starts before it, expected exit code and number of starts, settings
  local starts=$2 code=0 expected=$3 most=$4 running
  env TRIREME_LAUNCH=env PBS_JOBID=1 TRIREME_RESTARTS=4 "${@:5}" bash "$source/jobs/train.sbatch" deck.yaml >"$here/out" 2>&1 &
  running=$!
  for _ in {1..200}; do
    [ "$(grep -c ^begun "$here/out")" -lt "$starts" ] || ! grep -q "start 1" "$here/out" || break
    sleep 0.05
  done
  sleep 0.3
  kill -"$1" $running
  wait $running || code=$?
  { [ $code -eq "$expected" ] && [ "$(grep -c ^begun "$here/out")" -eq "$most" ] && ! grep -q ': line ' "$here/out"; } || {
    echo "$1 after $2 starts: not $3 after $4 starts, but $code:" && cat "$here/out" && failures=$((failures + 1))
  }
}
for code in 75 76; do # neither code leads to a restart
  env TRIREME_LAUNCH=env PBS_JOBID=1 CODE=$code bash "$source/jobs/train.sbatch" deck.yaml >"$here/out" 2>&1
  [ "$? $(grep -c ^begun "$here/out")" = "$code 1" ] || { echo "not $code after one start:" && cat "$here/out" && failures=$((failures + 1)); }
done
grep -q 'stopped by `trireme stop`, so it is not requeued' "$here/out" || { echo "no word on 76" && cat "$here/out" && failures=$((failures + 1)); }
started '^begun$' 76 "$here" CODE=76 TRIREME_MPIRUN="$here/bin/mpirun" bash "$source/jobs/mpirun.sh" "$here/program" "$here/out"
signalled USR1 0 0 1 CODE=0
signalled USR2 0 75 0 CODE=0
signalled TERM 0 143 0 CODE=0
signalled USR2 4 75 4 # there is a wait of 4 s before the fifth start
signalled TERM 4 143 4

# Flux does not forward signals to ranks, so the script sends them. Here SIGUSR2 ends the rank.
cp "$(command -v sleep)" "$here/program-of-a-long-name"
printf '#!/bin/sh\nshift\nexec "$@"\n' >"$here/bin/flux"
env TRIREME_LAUNCH="flux run" TRIREME="$here/program-of-a-long-name" PBS_JOBID=1 bash "$source/jobs/train.sbatch" 20 >"$here/out" 2>&1 &
for _ in {1..100}; do
  ! grep -qs '^program-of-a-l' /proc/[0-9]*/comm || break
  sleep 0.05
done
kill -USR2 $!
wait $!
[ $? -eq 75 ] || { echo "a rank under flux gets no signal" && cat "$here/out" && failures=$((failures + 1)); }

# The launcher of Open MPI 4 is killed when one of its children has ended, but not if it never had one. sleep is shortened to 0.1 s.
sleep() { command sleep 0.1; }
for script in mpirun.sh train.sbatch; do
  eval "$(sed -n '/^children() {/,/^}/p; /^end_after_loss() {/,/^}/p' "$source/jobs/$script")"
  watched() { # arguments: expected exit code of a launcher, and the commands that it runs
    local code=0
    bash -c "$2" &
    local launcher=$!
    end_after_loss $launcher &
    wait $launcher 2>/dev/null || code=$?
    [ $code -eq "$1" ] || { echo "$script: not $1, but $code for a launcher that runs $2" && failures=$((failures + 1)); }
  }
  watched 0 "exec sleep 3"
  watched 0 "sleep 4 & exec sleep 3"
  watched 137 "sleep 30 & sleep 1 & wait"
done

# Exit code 0 of Open MPI 5's launcher means that the run has finished, or that a host was lost.
for script in mpirun.sh train.sbatch; do
  eval "$(sed -n '/^was_cut() {/,/^}/p' "$source/jobs/$script")"
  directory=$here/run-$script steps=12
  ended_with() { # arguments: cut or finished, in_place, newest checkpoint, last line of the log; no log if it is empty
    local verdict=finished in_place=$2
    rm -rf "$directory" && mkdir -p "$directory/checkpoints"
    [ -z "$3" ] || echo "$3" >"$directory/checkpoints/latest"
    [ -z "$4" ] || printf 'first\n%s\n' "$4" >"$directory/log.txt"
    ! was_cut 2>"$here/out" || verdict=cut
    { [ $verdict = "$1" ] && [ ! -s "$here/out" ]; } || {
      echo "$script: $verdict instead of $1 after '$3' and '$4'" && cat "$here/out" && failures=$((failures + 1))
    }
  }
  ended_with finished 1 step-0000000012 "12.0 s  all files are in run"
  ended_with finished 1 step-0000000012 "step 12/12"
  ended_with finished 1 "" "12.0 s  all files are in run"
  ended_with cut 1 step-0000000008 "step 8/12"
  ended_with cut 1 "" "step 8/12"
  ended_with cut 1 "" ""
  ended_with finished "" step-0000000008 "step 8/12"
done

[ $failures -eq 0 ] && echo "launchers: as expected"
exit $((failures > 0))
