#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs trireme from an unpacked bundle (jobs/bundle.sh). Needs bash and the C library, nothing else.
#   usage: run.sh -n RANKS DECK [section.key=value …]     under the bundle's mpirun, on this machine
#          run.sh WORD …                                  trireme alone: DECK, check, plan, sample, speed, bench, help, --version
#          run.sh --exec PROGRAM …                        another program with the bundle's libraries
# A deck that reads text from somewhere else can read the bundle's: data.train.text=[BUNDLE/text]. For a build with CUDA,
# CUDA_LIBRARIES=DIR[:DIR…] names the folders of cuBLASLt, cuDNN and NCCL where this script does not find them. Under srun, give srun
# run.sh as its program, without -n.
set -euo pipefail
here=$(readlink -f "${BASH_SOURCE[0]}" 2>/dev/null) || here=${BASH_SOURCE[0]} # of a link to it, where readlink is
[[ $here == */* ]] && here=${here%/*} || here=.
here=$(CDPATH='' cd "$here" && pwd)
[ -f "$here/cuda-libraries" ] || { echo "error: this script runs inside a bundle. Make one with bash jobs/bundle.sh" >&2; exit 2; }

# Folders with CUDA's libraries: the bundle's own, what the caller names, the usual ones, then those of Python environments, where wheels
# of NVIDIA's put cuDNN, NCCL and NVRTC.
mapfile -t needed <"$here/cuda-libraries"
cuda=
if [ ${#needed[@]} -gt 0 ]; then
  folders=("$here/cuda")
  IFS=: read -ra named <<<"${CUDA_LIBRARIES:-}:${LD_LIBRARY_PATH:-}:${CUDA_HOME:+$CUDA_HOME/lib64}"
  folders+=("${named[@]}" /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/local/lib)
  IFS=: read -ra programs <<<"$PATH"
  shopt -s nullglob
  for environment in "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}" "${programs[@]%/*}" /usr/local "${HOME:-}/.local"; do
    [ -z "$environment" ] || folders+=("$environment"/lib/python3*/{site,dist}-packages/nvidia/*/lib)
  done
  shopt -u nullglob
  taken=()
  for library in "${needed[@]}"; do
    for folder in "${folders[@]}"; do
      # The builtins of NVRTC are given as a pattern: any minor version.
      if [ -n "$folder" ] && compgen -G "$folder/$library" >/dev/null; then
        # The system's folder holds more than CUDA, and the loader looks there anyway.
        case $folder in
          /usr/lib*) ;;
          *) [[ :$cuda: == *":$folder:"* ]] || { cuda+=:$folder && taken+=("$folder"); } ;;
        esac
        continue 2
      fi
    done
    echo "error: this bundle was built for CUDA and needs $library; set CUDA_LIBRARIES=DIR[:DIR] to its place" >&2
    exit 3
  done
  # Once per job, not from every rank under srun.
  [ ${#taken[@]} -eq 0 ] || [ "${SLURM_PROCID:-0}" != 0 ] || echo "libraries of CUDA: ${taken[*]}" >&2
fi
export LD_LIBRARY_PATH=$here/lib$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX=$here/mpi PATH=$here/mpi/bin:$PATH
export PMIX_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_pcompress_base_silence_warning=1 # its plugins are left out
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--gl} # as jobs/mpirun.sh
# mpirun looks for ssh even when every rank is on this machine.
command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=bash
if [ "$EUID" -eq 0 ]; then # root is normal in a container, and Open MPI asks twice
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

case ${1:-} in
  --exec) shift && exec "$@" ;;
  -n) ;;
  *) exec "$here/bin/trireme" "$@" ;;
esac
[[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "usage: run.sh -n RANKS DECK [section.key=value …]" >&2; exit 2; }
cores=0
while read -r word _; do
  [ "$word" != processor ] || cores=$((cores + 1))
done </proc/cpuinfo
options=(--bind-to none --oversubscribe)
[ "$2" -le "$cores" ] || options+=(--mca mpi_yield_when_idle 1)
# As jobs/mpirun.sh: after an INT or a TERM, mpirun kills the ranks in a second, whatever they save. The second signal ends the run at once.
stop=USR2
for name in INT TERM HUP XCPU USR2; do trap 'signalled=1; kill -$stop $child 2>/dev/null || true; stop=TERM' $name; done
trap 'signalled=1; kill -USR1 $child 2>/dev/null || true' USR1
[ ! -t 0 ] || exec </dev/null
set -m # a process group of its own: Ctrl-C reaches this script alone
mpirun "${options[@]}" -n "$2" "$here/bin/trireme" "${@:3}" <&0 &
child=$!
set +m
while :; do
  signalled=''
  wait $child && code=0 || code=$?
  [ -n "$signalled" ] || exit $code
done
