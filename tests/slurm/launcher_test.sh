#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which launcher jobs/train.sbatch takes, by the MPI library of the executable, what Slurm offers and TRIREME_MPIRUN, and the options that
# jobs/mpirun.sh gives to each. ldd, srun, scontrol and mpirun are stand-ins: no Slurm is needed.
#   usage: launcher_test.sh SOURCE_DIR
set -uo pipefail
script=$1/jobs/train.sbatch failures=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/bin" "$here/other"
printf '#!/bin/sh\nprintf "\\tlibc.so.6 => x\\n\\t%%s => x\\n" "$LIBRARY"\n' >"$here/bin/ldd"
printf '#!/bin/sh\n[ "$1" != --mpi=list ] || printf "%%s\\n" "MPI plugin types are..." $PLUGINS\n' >"$here/bin/srun"
printf '#!/bin/sh\n[ "$1" != --version ] || echo "$LAUNCHER"\n' | tee "$here/bin/mpirun" >"$here/other/mpiexec"
printf '#!/bin/sh\n' >"$here/bin/scontrol"
printf '#!/bin/sh\n' >"$here/program"
chmod +x "$here"/bin/* "$here/other/mpiexec" "$here/program"
export PATH=$here/bin:$PATH TRIREME=$here/program SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1 SLURM_SUBMIT_DIR=$here SLURM_JOB_END_TIME=0
unset TRIREME_LAUNCH TRIREME_MPIRUN TRIREME_MODULES SLURM_RESTART_COUNT

launched() { # what is expected, then settings: LIBRARY=…, PLUGINS=…, LAUNCHER=…
  local expected=$1
  shift
  env "$@" bash "$script" deck.yaml >"$here/out" 2>&1
  grep -qF -- ": $expected $here/program deck.yaml" "$here/out" || {
    echo "not '$expected' with $*:" && cat "$here/out" && failures=$((failures + 1))
  }
}
open_mpi="LAUNCHER=mpirun (Open MPI) 4.1.4" hydra="LAUNCHER=HYDRA build details:" intel="LAUNCHER=Intel(R) MPI Library for Linux* OS, Version 2021.10"
with_own="--bind-to none --mca odls_base_sigkill_timeout 3600"
launched "srun --mpi=pmix" LIBRARY=libmpi.so.40 PLUGINS="none pmi2 pmix" "$open_mpi"
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

given() { # source directory, LAUNCHER=…, options
  [ "$(env "$2" bash "$1/jobs/mpirun.sh" --flags mpirun)" = "$3" ] || { echo "not '$3' with $2" && failures=$((failures + 1)); }
}
given "$1" "$open_mpi" "--bind-to none --oversubscribe"
given "$1" "$hydra" "-bind-to none"
given "$1" "$intel" "-genv I_MPI_PIN off"
given "$1" LAUNCHER=another ""

env LIBRARY=libmpi.so.12 PLUGINS=none LAUNCHER= bash "$script" deck.yaml >"$here/out" 2>&1
{ [ $? -eq 3 ] && grep -q "set TRIREME_MPIRUN or TRIREME_LAUNCH" "$here/out"; } ||
  { echo "no error where there is no launcher:" && cat "$here/out" && failures=$((failures + 1)); }

module() { echo "loaded $2 $3 $UNSET_BY_ANYONE"; } # as module functions do
export -f module
launched "srun --mpi=pmix" LIBRARY=libmpi.so.40 PLUGINS=pmix LAUNCHER= TRIREME_MODULES="one two"
grep -q "loaded one two" "$here/out" || { echo "modules are not loaded:" && cat "$here/out" && failures=$((failures + 1)); }

[ $failures -eq 0 ] && echo "launchers: as expected"
exit $((failures > 0))
