#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the launcher of Open MPI 4 or 5, MPICH or Intel MPI with the options that trireme needs on one machine. Ranks are not bound to
# single cores (Open MPI would bind one or two ranks to one core each, and their threads with them). More ranks than cores are allowed.
# Root may run it, as in a container.
#   usage: bash jobs/mpirun.sh -n 4 build/trireme input/quickstart.yaml [section.key=value …]
#          bash jobs/mpirun.sh --flags LAUNCHER       prints the options only; CMake uses this for the tests
# TRIREME_MPIRUN names another launcher than the one that build/ was configured with.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

options_of() { # launcher
  case $("$1" --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) echo --bind-to none --oversubscribe ;;
    *"Intel(R) MPI"*) echo -genv I_MPI_PIN off ;;
    *HYDRA*) echo -bind-to none ;;
    *) ;; # another launcher's own defaults
  esac
}
if [ "${1:-}" = --flags ]; then
  options_of "${2:?"usage: mpirun.sh --flags LAUNCHER"}"
  exit
fi

# The launcher must belong to the library that the program was linked with: CMake's cache names it.
mpirun=${TRIREME_MPIRUN:-$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$here/build/CMakeCache.txt" 2>/dev/null)} || true
[ -x "${mpirun:-}" ] || mpirun=$(command -v mpirun) || {
  echo "error: no mpirun: build first (bash jobs/quickstart.sh), or load an MPI module" >&2
  exit 3
}

if [ "$(id -u)" -eq 0 ]; then # root is normal in a container, and Open MPI asks twice
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# hwloc would look for X displays and ask for the address of localhost: seconds, on a machine whose name service is slow.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--gl}
# A rank that waits gives its core to the one that computes, should there be more ranks than cores.
ranks=1 arguments=("$@")
for ((i = 0; i + 1 < $#; ++i)); do
  case ${arguments[i]} in -n | -np | --np | -c) ranks=${arguments[i + 1]} ;; esac
done
cores=$(nproc)
read -ra options <<<"$(options_of "$mpirun")"
if [[ $ranks =~ ^[0-9]+$ ]] && [ "$ranks" -gt "$cores" ]; then
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1} MPIR_CVAR_POLLS_BEFORE_YIELD=${MPIR_CVAR_POLLS_BEFORE_YIELD:-1}
fi
exec "$mpirun" "${options[@]}" "$@"
