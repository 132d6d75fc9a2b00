#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Starts the launcher of Open MPI 4 or 5, MPICH or Intel MPI with the options that trireme needs on one machine. Ranks are not bound to
# single cores (Open MPI would bind one or two ranks to one core each, and their threads with them). More ranks than cores are allowed.
# Root may run it, as in a container.
#   usage: bash jobs/mpirun.sh -n 4 build/trireme input/quickstart.yaml [section.key=value …]
#          bash jobs/mpirun.sh --flags LAUNCHER       prints the options only; CMake uses this for the tests
# With parallel.on_lost_rank: shrink in the deck, the run continues after a rank or a host is lost. With Open MPI 5 the remaining ranks
# continue. With other launchers, this script restarts the run from the newest checkpoint on the hosts that still answer.
# INT, TERM, HUP, XCPU and USR2 save a checkpoint and end the run; a second such signal ends it at once. USR1 only saves a checkpoint.
# Environment variables:
#   TRIREME_MPIRUN     launcher to use instead of the one that build/ was configured with
#   TRIREME_RESTARTS   number of consecutive restarts without a new checkpoint after which the script gives up; default: 3
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)

options_of() { # launcher
  case $("$1" --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) echo --bind-to none --oversubscribe ;;
    *"Intel(R) MPI"*) echo -genv I_MPI_PIN off ;;
    *HYDRA*) echo -bind-to none ;;
    *) ;; # keep the defaults of any other launcher
  esac
}
if [ $# -eq 0 ] || [ "$*" = --flags ]; then
  sed -n 's/^# *usage: /usage: /p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [ "$1" = --flags ]; then
  options_of "$2"
  exit
fi

# The launcher must match the MPI library that the program was linked with. CMake's cache has its path.
mpirun=${TRIREME_MPIRUN:-$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' "$here/build/CMakeCache.txt" 2>/dev/null)} || true
mpirun=$(command -v "${mpirun:-mpirun}" || command -v "${TRIREME_MPIRUN:-mpirun}") || {
  echo "error: no ${TRIREME_MPIRUN:-mpirun}: build first (bash jobs/quickstart.sh), load an MPI module, or set TRIREME_MPIRUN" >&2
  exit 3
}

if [ "$(id -u)" -eq 0 ]; then # root is normal in a container; Open MPI requires both variables
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Otherwise hwloc searches for X displays and resolves localhost, which takes seconds if the name service is slow.
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--gl}
# With more ranks than cores, a rank that waits yields its core to a rank that computes.
ranks=1 arguments=("$@")
for ((i = 0; i + 1 < $#; ++i)); do
  case ${arguments[i]} in -n | -np | --np | -c) ranks=${arguments[i + 1]} ;; esac
done
cores=$(nproc)
read -ra options <<<"$(options_of "$mpirun")"
if [[ $ranks =~ ^[0-9]+$ ]] && [ "$ranks" -gt "$cores" ]; then
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1} MPIR_CVAR_POLLS_BEFORE_YIELD=${MPIR_CVAR_POLLS_BEFORE_YIELD:-1}
fi

# The program and its arguments, with which value_of() reads a key of the deck. Mistakes in the deck are reported by the run.
program=("$@")
while [ ${#program[@]} -gt 0 ] && ! { [[ ${program[0]} == */* || ${program[0]} == trireme ]] && [ -x "$(command -v "${program[0]}")" ]; }; do
  program=("${program[@]:1}")
done
value_of() { "${program[0]}" check "${program[@]:1}" --ranks "$ranks" --value "$1" 2>/dev/null || true; }
[ -f "${program[1]:-}" ] || exec "$mpirun" "${options[@]}" "$@"
on_lost_rank=$(value_of parallel.on_lost_rank)
# After INT or TERM, Open MPI's launcher kills the ranks within a second, before they can save. It only forwards USR2, which Hydra does not.
stop=TERM in_place='' version=$("$mpirun" --version 2>&1) || true
[[ $version != *"Open MPI"* && $version != *OpenRTE* ]] || stop=USR2
# Without the second option, MPI_Finalize sometimes waits for the lost ranks.
[[ $on_lost_rank != shrink || $version != *"Open MPI) "[5-9]* ]] || { in_place=1 && options+=(--with-ft ulfm --mca async_mpi_finalize true); }
watch='' # see end_after_loss
[[ $on_lost_rank != shrink || ! $version =~ (Open\ MPI|OpenRTE)\)\ [1-4]\. ]] || { watch=1 && options+=(--leave-session-attached); }
command=("$@")

# Removes the hosts that no longer answer, and their share of the ranks, from the command.
leave_out_lost_hosts() {
  local others=() all=() left=() option=-H number='' slots=0 left_slots=0 host answer
  set -- "${command[@]}"
  while [ $# -gt ${#program[@]} ]; do
    case $1 in
      -H | -host | --host | -hosts) [ "$1" != -hosts ] || option=-hosts; IFS=, read -ra all <<<"$2" && shift ;;
      -hostfile | --hostfile | -machinefile | --machinefile | -f)
        mapfile -t all < <(awk '{ sub(/#.*/, "") } NF { s = 0
          for (i = 2; i <= NF; i++) if ($i ~ /^slots=/) s = substr($i, 7)
          print $1 (s ? ":" s : "") }' "$2") && shift
        ;;
      -n | -np | --np | -c) number=$2 && shift ;;
      *) others+=("$1") ;;
    esac
    shift
  done
  for host in ${all[@]+"${all[@]}"}; do
    [[ $host == *:* ]] || host+=:1
    slots=$((slots + ${host##*:}))
    # Just after a loss, the launcher may fail on a healthy host. Try once more, unless the first attempt timed out (124).
    for _ in 1 2; do
      answer=0
      timeout 30 "$mpirun" "${options[@]}" ${others[@]+"${others[@]}"} $option "${host%:*}" -n 1 true </dev/null >/dev/null 2>&1 || answer=$?
      [ $answer -ne 0 ] || left+=("$host") left_slots=$((left_slots + ${host##*:}))
      case $answer in 0 | 124) break ;; esac
    done
  done
  [ ${#left[@]} -lt ${#all[@]} ] || return 0
  [ ${#left[@]} -gt 0 ] || return 1
  number=$((${number:-$slots} * left_slots / slots))
  command=(${others[@]+"${others[@]}"} $option "$(IFS=, && echo "${left[*]}")" -n $((number > 0 ? number : 1)) "${program[@]}")
  on=" on ${left[*]}"
}

# Prints the child processes. pgrep is not always installed, and not every kernel has /proc/PID/task/*/children.
children() { # PID
  local at told
  for at in /proc/[0-9]*; do
    { read -r told <"$at/stat"; } 2>/dev/null || continue # the process has ended
    told=${told##*) } && told=${told#* }                  # remove PID, (name) and state
    [ "${told%% *}" != "$1" ] || echo "${at#/proc/}"
  done
}
# Kills the launcher if one of its child processes has been missing for 30 s, because after the loss of a host, Open MPI 4 sometimes waits
# forever. In normal operation the launcher has a child for each local rank and, with --leave-session-attached, for each remote daemon.
end_after_loss() { # PID
  local most=0 now missing=0 looks=0 pause=1 # check often at first: a host may be lost in the first seconds
  while sleep $pause && kill -0 "$1" 2>/dev/null; do
    mapfile -t now < <(children "$1")
    if [ ${#now[@]} -ge $most ]; then most=${#now[@]} missing=0; elif [ $((missing += pause)) -ge 30 ]; then kill -KILL "$1" ${now[@]+"${now[@]}"}; fi
    [ $((++looks)) -lt 10 ] || pause=5
  done
}

ended='' early='' failures=0 child='' on=''
directory=$(value_of run.directory) && directory=${directory%/}
# The newest checkpoints of the run in this directory and of the runs in DIRECTORY-2, … (run.when_finished: new).
newest_checkpoints() { cat -- "$directory"/checkpoints/latest "$directory"-[0-9]*/checkpoints/latest 2>/dev/null || true; }
steps=$(value_of run.steps)
# Whether a run that ended with exit code 0 is incomplete: Open MPI 5's launcher exits with 0 when it loses a host. The log of a finished
# run ends with the line "all files are in", unless a rank was lost after the checkpoint of the last step.
was_cut() {
  local log latest
  [ -n "$in_place" ] || return 1
  log=$(ls -t -- "$directory"/log.txt "$directory"-[0-9]*/log.txt 2>/dev/null | head -n 1)
  latest=$(cat "${log%/*}/checkpoints/latest" 2>/dev/null) || true
  [[ ! $latest =~ ([0-9]+)$ || 10#${BASH_REMATCH[1]} -lt ${steps:-0} ]] && ! tail -n 1 "$log" 2>/dev/null | grep -q ' all files are in '
}
# Sleeps, but returns early on a signal.
pause() { # seconds
  sleep "$1" &
  wait $! || true
  kill $! 2>/dev/null || true
}
# The first signal asks for a checkpoint and the end; the second ends the run at once.
for name in INT TERM HUP XCPU USR2; do
  trap 'signalled=1; if [ -n "$child" ]; then kill -${ended:-$stop} $child 2>/dev/null || true; else early=1; fi; ended=TERM' $name
done
trap 'signalled=1; kill -USR1 $child 2>/dev/null || true' USR1
[ ! -t 0 ] || exec </dev/null # a background process may not read the terminal
while :; do
  newest=$(newest_checkpoints) child=''
  set -m # own process group for the launcher, so that Ctrl-C reaches only this script
  "$mpirun" "${options[@]}" "${command[@]}" <&0 &
  child=$!
  set +m
  [ -z "$early" ] || kill -$stop $child 2>/dev/null || true # a signal that arrived before the launcher was started
  watcher=
  if [ -n "$watch" ]; then
    end_after_loss $child </dev/null >/dev/null 2>&1 &
    watcher=$!
  fi
  while :; do
    signalled=''
    wait $child && code=0 || code=$?
    [ -n "$signalled" ] || break # a signal interrupts `wait` while the run continues
  done
  [ -z "$watcher" ] || kill $watcher 2>/dev/null || true
  [ "$on_lost_rank" = shrink ] || exit $code
  # 0: finished; 2: user error; 4: bug; 75: checkpointed; 76: `trireme stop`. Any other code means that a rank or host was lost.
  [ $code -ne 0 ] || ! was_cut || code=3
  case $code in 0 | 2 | 4 | 75 | 76) exit $code ;; esac
  [ -z "$ended" ] || exit $code
  [ "$newest" = "$(newest_checkpoints)" ] || failures=0
  if [ $((++failures)) -gt "${TRIREME_RESTARTS:-3}" ]; then
    echo "error: the run was restarted $((failures - 1)) times without a new checkpoint (limit: TRIREME_RESTARTS)" >&2
    exit $code
  fi
  leave_out_lost_hosts || { echo "error: no host answers" >&2 && exit $code; }
  [ $failures -eq 1 ] || pause $((failures > 7 ? 60 : 1 << (failures - 2))) # growing pause: the fault may be temporary
  [ -z "$ended" ] || exit $code
  echo "mpirun.sh: the run ended with exit code $code; it starts again$on from its newest checkpoint" >&2
done
