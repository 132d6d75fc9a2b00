# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster with CUDA GPUs and environment modules: an example to copy, not tried on any one site. To be sourced.
# Every name below may differ at yours: `module avail` shows them. What the compiler links must be what jobs load.

# Compiler with C++20, CMake 3.25 or newer, an MPI built for the fabric, and the libraries that trireme links. A site without oneDNN leaves
# it out and builds with -DTRIREME_ONEDNN=OFF: only bench matmul uses it.
TRIREME_SITE_MODULES=${TRIREME_SITE_MODULES:-gcc/12 cmake ninja openmpi hdf5-parallel onednn yaml-cpp cli11 nlohmann-json zlib zstd bzip2 xz fmt cuda cudnn nccl}
for name in $TRIREME_SITE_MODULES; do
  module load "$name" || { echo "profile.sh: this site has no module $name: set TRIREME_SITE_MODULES" >&2; return 3; }
done
unset name

export TRIREME_SETUP=skip              # the libraries come from modules
export TRIREME_MODULES=$TRIREME_SITE_MODULES # jobs/train.sbatch loads the same
export HDF5_USE_FILE_LOCKING=FALSE     # parallel file systems often have no locks; trireme keeps its own
export OMPI_MCA_mpi_warn_on_fork=0     # postproc and h5py start processes
# One task per GPU; each rank takes the GPU of its number on the node:
#   sbatch -N 2 --ntasks-per-node=4 --gpus-per-node=4 --cpus-per-task=8 -t 4:00:00 jobs/train.sbatch DECK
