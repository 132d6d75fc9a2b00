#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the launcher of Open MPI 4 or 5, MPICH or Intel MPI with the options that trireme needs on one machine. Ranks are not bound to
# single cores (Open MPI would bind one or two ranks to one core each, and their threads with them). More ranks than cores are allowed.
# Root may run it, as in a container.
#   usage: bash jobs/mpirun.sh -n 4 build/trireme input/quickstart.yaml [section.key=value …]
#          bash jobs/mpirun.sh --flags LAUNCHER       prints the options only; CMake uses this for the tests
# With parallel.on_lost_rank: shrink in the deck, the run continues after a rank or a host is lost: with Open MPI 5 in place, otherwise by a
# new start on the hosts that still answer, from the newest checkpoint.
# Environment variables:
#   TRIREME_MPIRUN     another launcher than the one that build/ was configured with
#   TRIREME_RESTARTS   number of new starts that fail in less than ten minutes before the script gives up; default: 3
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

# The program and what follows it, to ask for a value of its deck.
program=("$@")
while [ ${#program[@]} -gt 0 ] && [[ ! ${program[0]##*/} =~ ^trireme ]]; do program=("${program[@]:1}"); done
on_lost_rank=stop
if [[ ${program[1]:-} =~ \.ya?ml$ ]]; then
  # A mistake in the deck is reported by the run.
  on_lost_rank=$("${program[0]}" check "${program[@]:1}" --ranks "$ranks" --value parallel.on_lost_rank 2>/dev/null) || true
fi
[ "${on_lost_rank:-stop}" = shrink ] || exec "$mpirun" "${options[@]}" "$@"
# MPI_Finalize would sometimes wait for the lost ranks, without the second option.
case $("$mpirun" --version 2>&1) in *"Open MPI) "[5-9]*) options+=(--with-ft ulfm --mca async_mpi_finalize true) ;; esac

# The hosts of -H or --hostfile as HOST or HOST:SLOTS, one per line; the other arguments remain in `others`.
others=() hosts=()
while [ $# -gt 0 ]; do
  case $1 in
    "${program[0]}") break ;;
    -H | -host | --host) IFS=, read -ra hosts <<<"$2" && shift 2 ;;
    -hostfile | --hostfile | -machinefile | --machinefile)
      mapfile -t hosts < <(sed -E 's/#.*//; s/^ *([^ ]+).*slots *= *([0-9]+).*/\1:\2/; s/ .*//; /^$/d' "$2") && shift 2
      ;;
    -n | -np | --np | -c) shift 2 ;;
    *) others+=("$1") && shift ;;
  esac
done
keep_answering_hosts() {
  local all=${#hosts[@]} left=() host
  [ "$all" -gt 0 ] || return 0
  for host in "${hosts[@]}"; do
    if timeout 30 "$mpirun" "${options[@]}" "${others[@]}" -H "${host%%:*}" -n 1 true </dev/null >/dev/null 2>&1; then left+=("$host"); fi
  done
  [ ${#left[@]} -gt 0 ] || return 1
  ranks=$((ranks * ${#left[@]} / all))
  [ "$ranks" -gt 0 ] || ranks=1
  hosts=("${left[@]}")
}

ended='' failures=0
for name in INT TERM USR1 USR2; do
  trap "signalled=$name; [[ $name == USR* ]] || ended=1; kill -$name \$child 2>/dev/null || true" $name
done
while :; do
  started=$SECONDS code=0
  on=()
  [ ${#hosts[@]} -eq 0 ] || on=(-H "$(IFS=, && echo "${hosts[*]}")")
  "$mpirun" "${options[@]}" "${others[@]}" "${on[@]}" -n "$ranks" "${program[@]}" <&0 &
  child=$!
  while :; do
    signalled=''
    wait $child && code=0 || code=$?
    [ -n "$signalled" ] || break # otherwise a trap ended `wait`, not the run
  done
  # 0: finished; 2: a mistake of the user; 4: a bug; 75: checkpointed. After another code a rank or host was lost.
  case $code in 0 | 2 | 4 | 75) exit $code ;; esac
  [ -z "$ended" ] || exit $code
  [ $((SECONDS - started)) -lt 600 ] || failures=0
  if [ $((++failures)) -gt "${TRIREME_RESTARTS:-3}" ] || ! keep_answering_hosts; then
    echo "error: the run ended with exit code $code; starting it again did not help" >&2
    exit $code
  fi
  [ $failures -eq 1 ] || sleep $((1 << (failures - 2))) # a fault of the machine may pass
  echo "mpirun.sh: the run ended with exit code $code; it starts again on $ranks ranks${on:+ of ${hosts[*]}} from its newest checkpoint" >&2
done
