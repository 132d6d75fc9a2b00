#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs trireme from an unpacked bundle (jobs/bundle.sh). Needs bash and the C library, nothing else.
#   usage: run.sh -n RANKS DECK [section.key=value …]     under the bundle's mpirun, on this machine
#          run.sh WORD …                                  trireme alone: DECK, check, plan, sample, speed, bench, help, --version
#          run.sh --exec PROGRAM …                        another program with the bundle's libraries
# To train any deck on the text in the bundle, add data.train.text=[BUNDLE/text]. For a build with CUDA, set CUDA_LIBRARIES=DIR[:DIR…] to
# the folders of cuBLASLt, cuDNN and NCCL if this script does not find them. Under Slurm, start run.sh itself with srun (srun … run.sh DECK)
# and omit the option -n of run.sh.
set -euo pipefail
here=$(readlink -f "${BASH_SOURCE[0]}" 2>/dev/null) || here=${BASH_SOURCE[0]} # resolves symbolic links if readlink exists
[[ $here == */* ]] && here=${here%/*} || here=.
here=$(CDPATH='' cd "$here" && pwd)
[ -f "$here/cuda-libraries" ] || { echo "error: this script runs inside a bundle. Make one with bash jobs/bundle.sh" >&2; exit 2; }

# Search CUDA's libraries in this order: the bundle, the folders that the caller names, the usual system folders, and Python environments,
# where NVIDIA's wheels install cuDNN, NCCL and NVRTC.
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
      # $library is a pattern for the builtins of NVRTC: any minor version fits.
      if [ -n "$folder" ] && compgen -G "$folder/$library" >/dev/null; then
        # Do not add system folders: the loader searches them anyway, and they hold more than CUDA.
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
  # Under srun, only rank 0 prints this.
  [ ${#taken[@]} -eq 0 ] || [ "${SLURM_PROCID:-0}" != 0 ] || echo "libraries of CUDA: ${taken[*]}" >&2
fi
export LD_LIBRARY_PATH=$here/lib$cuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX=$here/mpi PATH=$here/mpi/bin:$PATH
export PMIX_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_pcompress_base_silence_warning=1 # the plugins of PMIx are not in the bundle
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS:--gl} # see jobs/mpirun.sh
# mpirun looks for ssh even when every rank is on this machine.
command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=bash
if [ "$EUID" -eq 0 ]; then # root is normal in a container; Open MPI requires both variables
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
# See jobs/mpirun.sh: the first signal is sent on as USR2 (save and end), because mpirun kills ranks soon after TERM. The second is TERM.
stop=USR2
for name in INT TERM HUP XCPU USR2; do trap 'signalled=1; kill -$stop $child 2>/dev/null || true; stop=TERM' $name; done
trap 'signalled=1; kill -USR1 $child 2>/dev/null || true' USR1
[ ! -t 0 ] || exec </dev/null
set -m # own process group for mpirun, so that Ctrl-C reaches only this script
mpirun "${options[@]}" -n "$2" "$here/bin/trireme" "${@:3}" <&0 &
child=$!
set +m
while :; do
  signalled=''
  wait $child && code=0 || code=$?
  [ -n "$signalled" ] || exit $code
done
