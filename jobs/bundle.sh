#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the built executable for nodes without MPI, HDF5, yaml-cpp and oneDNN. The archive also has shared libraries, Open MPI's launcher
# and plugins, the decks, some text to train on, and run.sh. It can be unpacked anywhere:
#
#     tar -xJf trireme-bundle.tar.xz && trireme-bundle/run.sh -n 2 trireme-bundle/input/quickstart.yaml
#
# The node needs bash and a C library of this machine's version or later. A build with CUDA also needs cuBLASLt, cuDNN and NCCL on the node,
# where run.sh searches for them. --with-cuda packs them instead, which makes the archive gigabytes larger.
#   usage: bash jobs/bundle.sh [--tests] [--with-cuda] [ARCHIVE]     default: build/trireme-bundle.tar.xz
# --tests packs tests/gpu_session.sh and the test executables that it runs.
set -euo pipefail
tests=0 with_cuda=0 archive=build/trireme-bundle.tar.xz
for argument in "$@"; do
  case $argument in
    --tests) tests=1 ;;
    --with-cuda) with_cuda=1 ;;
    -*) echo "usage: bash jobs/bundle.sh [--tests] [--with-cuda] [ARCHIVE]" >&2 && exit 2 ;;
    /*) archive=$argument ;;
    *) archive=$PWD/$argument ;;
  esac
done
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
mkdir -p "$(dirname "$archive")"
[ ! -d "$archive" ] || { echo "error: $archive is a directory: name the archive in it" >&2; exit 2; }
if [ ! -x build/trireme ]; then
  echo "error: no build/trireme: build first (bash jobs/build.sh)" >&2
  exit 3
fi
mpirun=$(sed -n 's/^MPIEXEC_EXECUTABLE:[A-Z]*=//p' build/CMakeCache.txt)
[ -x "$mpirun" ] || { echo "error: the launcher of the build is gone: $mpirun" >&2; exit 3; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
top=$scratch/trireme-bundle
mkdir -p "$top/bin" "$top/lib" "$top/mpi/bin"

# Not packed: the C library and its loader, which must match each other and the node, and the drivers.
of_the_node='^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|mvec|BrokenLocale|thread_db|nss_.*|cuda|nvidia-.*))\.so'
of_cuda='^lib(cublas|cublasLt|cudnn.*|nccl|cudart|nvrtc.*|nvJitLink|cupti)\.so'

# Copies the direct and indirect dependencies of the given files, as ldd finds them with the present LD_LIBRARY_PATH.
: >"$scratch/cuda"
collect() {
  local name path
  while read -r name path; do
    [[ $name =~ $of_the_node ]] && continue
    if [ "$path" = not ]; then
      echo "error: $name is not found on this machine, and the bundle needs it" >&2
      exit 3
    fi
    if [[ $name =~ $of_cuda ]]; then
      echo "$name $path" >>"$scratch/cuda"
      continue
    fi
    [ -e "$top/lib/$name" ] || cp -L "$path" "$top/lib/$name"
  done < <(ldd "$@" 2>/dev/null | awk '$2 == "=>" { print $1, $3 }' | sort -u)
}

cp build/trireme "$top/bin/"
collect build/trireme

# Pack Open MPI with the folder structure below its prefix; run.sh sets OPAL_PREFIX to the new place. Plugins for HPC fabrics, tools and
# debuggers are omitted: GPUs communicate through NCCL, and the ranks of one host through shared memory.
# The output of ompi_info is "path:pkglibdir:/usr/lib/…".
where() { "${mpirun%/*}/ompi_info" --parsable --path "$1" | sed -n "s/^path:$1://p"; }
prefix=$(where prefix) plugins=$(where pkglibdir) data=$(where pkgdatadir)
compgen -G "$plugins/mca_*.so" >/dev/null || {
  echo "error: no plugins in $plugins: the bundle supports the launcher and plugins of Open MPI 4 (Debian 12) only, not $("$mpirun" --version | head -n 1)" >&2
  exit 3
}
for folder in "$plugins" "$data"; do
  [[ $folder == "$prefix"/* ]] || { echo "error: $folder is not below Open MPI's prefix $prefix" >&2; exit 3; }
  mkdir -p "$top/mpi${folder#"$prefix"}"
done
for plugin in "$plugins"/mca_*.so; do
  case ${plugin##*/} in *_ofi.* | *_psm.* | *_psm2.* | *_ucx.* | *_openib.* | *_monitoring.* | *_flux.* | mca_spml_* | mca_scoll_* | mca_sshmem_* | mca_memheap_* | mca_atomic_*) continue ;; esac
  cp -L "$plugin" "$top/mpi${plugins#"$prefix"}/"
  collect "$plugin"
done
cp -L "$data"/*.txt "$top/mpi${data#"$prefix"}/" 2>/dev/null || true
for tool in orterun orted; do
  path=${mpirun%/*}/$tool
  [ -x "$path" ] || { echo "error: $path is missing; the bundle needs the whole installation of Open MPI" >&2; exit 3; }
  cp -L "$path" "$top/mpi/bin/"
  collect "$path"
done
ln -s orterun "$top/mpi/bin/mpirun"

if [ $tests = 1 ]; then
  mkdir -p "$top/tests/bin"
  while read -r test; do
    if [ ! -x "build/$test" ]; then
      [[ $test != *_nccl ]] || continue # exists only in builds with CUDA
      echo "error: no build/$test: build the tests first (bash jobs/build.sh)" >&2
      exit 3
    fi
    cp "build/$test" "$top/tests/bin/"
    collect "build/$test"
  done < <(bash tests/gpu_session.sh all --executables)
  cp tests/gpu_session.sh tests/gpu_session.py tests/gpu_items.py tests/torch_gpt2.py "$top/tests/"
fi

# ldd does not see libraries that are loaded with dlopen: cuBLASLt, NVRTC (by cuDNN) and its builtins. NVRTC is next to cuBLASLt.
cublaslt=$(sed -n 's/^CUDA_cublasLt_LIBRARY:FILEPATH=//p' build/CMakeCache.txt)
if [ -s "$scratch/cuda" ]; then
  for library in "${cublaslt%/*}"/libcublasLt.so.[0-9]* "${cublaslt%/*}"/libnvrtc.so.[0-9]* "${cublaslt%/*}"/libnvrtc-builtins.so.[0-9]*; do
    name=${library##*/}
    [[ $name == lib@(cublasLt|nvrtc).so.*.* ]] || echo "$name $library" >>"$scratch/cuda"
  done
fi
sort -u "$scratch/cuda" >"$scratch/cuda.unique"
if [ $with_cuda = 1 ]; then
  # cuDNN loads its parts with dlopen, so ldd does not see them either.
  while read -r name path; do
    mkdir -p "$top/cuda"
    cp -L "$path" "$top/cuda/$name"
    case $name in libcudnn.*) cp -L "${path%/*}"/libcudnn_*.so.9 "$top/cuda/" ;; esac
  done <"$scratch/cuda.unique"
fi
# Any minor version of NVRTC is accepted, with the builtins of that version.
cut -d' ' -f1 "$scratch/cuda.unique" | sed 's/^\(libnvrtc-builtins\.so\.[0-9]*\)\..*/\1.*/' >"$top/cuda-libraries"

cp -r input "$top/input"
mkdir "$top/text"
find src -name '*.[ch]pp' -exec cp --parents -t "$top/text" {} + # trireme's own sources: about a megabyte
install -m 755 jobs/bundle-run.sh "$top/run.sh"
cp LICENSE "$top/"
build/trireme --version >"$top/VERSION"
find "$top/bin" "$top/lib" "$top/mpi" "$top/tests" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} + 2>/dev/null || true

# The test executables contain the same code of trireme, so a dictionary larger than all of them makes the archive a quarter as large.
# Compared with preset 2, preset 0 takes a third of the time and makes the archive 5 % larger.
case $archive in *.xz) pack=(xz --lzma2=preset=0,dict=96MiB) ;; *) pack=(gzip -6) ;; esac
tar -C "$scratch" --sort=name --owner=0 --group=0 -cf - trireme-bundle | "${pack[@]}" >"$scratch/packed"
mv "$scratch/packed" "$archive"
printf 'bundle: %s, %d libraries, %.1f MB\n' "$archive" "$(find "$top/lib" -type f | wc -l)" \
  "$(awk -v bytes="$(stat -c %s "$archive")" 'BEGIN { print bytes / 1e6 }')"
