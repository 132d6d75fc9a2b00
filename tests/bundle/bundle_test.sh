#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs the build with its tests; the bundle and the source together must fit into a transfer of 64 MiB. Unpacks the bundle elsewhere and
# trains the quickstart's deck on two ranks in a root directory that contains only bash and the C library of this system (and, for a build
# with CUDA, CUDA's libraries in the layout of a Python environment).
#   usage: bundle_test.sh SOURCE_DIR BUILD_DIR     exit code 77: skipped, this user may not change the root directory
set -euo pipefail
source=$(realpath "$1") build=$(realpath "$2")
most_bytes=$((64 << 20))

if [ "${BUNDLE_TEST_INSIDE:-}" != 1 ]; then
  # Use a private mount namespace, so that the mounts end with it. Root does not need a user namespace.
  user=()
  [ "$(id -u)" -eq 0 ] || user=(--map-root-user)
  if ! unshare "${user[@]}" --mount true 2>/dev/null; then
    echo "skipped: no mount name space for this user"
    exit 77
  fi
  BUNDLE_TEST_INSIDE=1 exec unshare "${user[@]}" --mount bash "$0" "$@"
fi

if [ "$build" != "$source/build" ]; then
  echo "skipped: jobs/bundle.sh packs build/, and this is $build"
  exit 77
fi
scratch=$(mktemp -d)
mount -t tmpfs none "$scratch" # the mount disappears with the namespace
said=$(cd "$scratch" && bash "$source/jobs/bundle.sh" --tests bundle.tar.xz 2>&1) || {
  echo "$said"
  [[ $said == "error: no plugins in "* && ! -e $scratch/bundle.tar.xz ]] || exit 1
  echo "skipped: jobs/bundle.sh supports Open MPI 4 only"
  exit 77
}
echo "$said"
code=0
bash "$source/jobs/bundle.sh" "$scratch" >"$scratch/said" 2>&1 || code=$?
{ [ $code -eq 2 ] && grep -q "is a directory" "$scratch/said"; } || { echo "a directory as the archive:" && cat "$scratch/said" && exit 1; }
bytes=$(stat -c %s "$scratch/bundle.tar.xz")
# The source is the last commit or, without git, the files in the folder.
source_bytes=$({ git -C "$source" archive HEAD 2>/dev/null || tar -C "$source" --exclude='./build*' --exclude=./runs -cf - .; } | xz -6 | wc -c)
if [ $((bytes + source_bytes)) -gt $most_bytes ]; then
  echo "the bundle has $bytes bytes and the source $source_bytes, more than $most_bytes together"
  exit 1
fi

root=$scratch/root
mkdir -p "$root"/{bin,dev/shm,etc,lib64,lib/x86_64-linux-gnu,proc,sys,tmp,env/bin,env/lib/python3.11/site-packages/nvidia,"some where"}
echo 'root:x:0:0::/:/bin/bash' >"$root/etc/passwd"
cp /bin/bash "$root/bin/"
ln -s bash "$root/bin/sh"
ldd /bin/bash | awk '$2 == "=>" { print $3 } $1 ~ /^\// { print $1 }' | while read -r library; do
  cp -L "$library" "$root/lib/x86_64-linux-gnu/"
done
# Other parts of the C library, which bash does not use.
for library in libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libutil.so.1; do
  cp -L "/lib/x86_64-linux-gnu/$library" "$root/lib/x86_64-linux-gnu/"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
tar -xJf "$scratch/bundle.tar.xz" -C "$root/some where"
folder="/some where/trireme-bundle"
ln -s "$root$folder/run.sh" "$scratch/link"
! "$scratch/link" --version 2>&1 | grep "runs inside a bundle"
put() { # arguments: wheel, file
  local at=$wheels/$1/lib/${2##*/}
  mkdir -p "${at%/*}"
  [ -e "$at" ] || { : >"$at" && mount --bind "$(realpath "$2")" "$at"; }
}
# Arrange CUDA's libraries as NVIDIA's wheels do, each in a folder of its own. Files are bind-mounted, because a link would lead back to the
# folder that also contains the other libraries.
wheels=$root/env/lib/python3.11/site-packages/nvidia
while read -r library path; do
  case $library in
    libcudnn*) wheel=cudnn also=("${path%/*}"/libcudnn_*.so.9) ;; # cuDNN opens these by name
    libnccl*) wheel=nccl also=() ;;
  esac
  for file in "$path" "${also[@]}"; do put $wheel "$file"; done
  with_cuda=1
done < <(ldd "$build/trireme" | awk '$1 ~ /^lib(cudnn|nccl)/ { print $1, $3 }')
if [ "${with_cuda:-0}" = 1 ]; then # opened by name: cuBLASLt by trireme, and NVRTC by cuDNN
  toolkit=$(sed -n 's|^CUDA_cublasLt_LIBRARY:FILEPATH=\(.*\)/.*|\1|p' "$build/CMakeCache.txt")
  for file in "$toolkit"/libcublasLt.so.[0-9]*; do put cublas "$file"; done
  for file in "$toolkit"/libnvrtc.so.[0-9]* "$toolkit"/libnvrtc-builtins.so.[0-9]*; do put cuda_nvrtc "$file"; done
fi
# The bundle contains exactly the tests that tests/gpu_session.sh runs.
packed=$(ls "$root$folder/tests/bin")
[ "$packed" = "$(bash "$source/tests/gpu_session.sh" all --executables | while read -r test; do [ ! -x "$build/$test" ] || echo "$test"; done)" ] ||
  { echo "packed are $packed" && exit 1; }
for needed in dev proc sys; do mount --rbind "/$needed" "$root/$needed"; done

chroot=$(command -v chroot || echo /usr/sbin/chroot)
inside() { env -i PATH="/bin${2:-:/env/bin}" HOME=/ TMPDIR=/tmp "$chroot" "$root" /bin/bash -c "cd /tmp && $1"; }
if inside 'command -v mpirun || command -v ls'; then
  echo "the system's programs are not hidden"
  exit 1
fi
if [ "${with_cuda:-0}" = 1 ]; then
  code=0
  inside "'$folder/run.sh' --version" ":" >"$scratch/said" 2>&1 || code=$?
  cat "$scratch/said"
  [ "$code" -eq 3 ]
  grep -q 'CUDA_LIBRARIES=DIR' "$scratch/said"
  grep -q '^libnvrtc-builtins.so.' "$root$folder/cuda-libraries"
  inside "'$folder/run.sh' --version" >"$scratch/said" 2>&1
  for wheel in cublas cudnn nccl cuda_nvrtc; do
    grep -q "libraries of CUDA: .*/env/lib/python3.11/site-packages/nvidia/$wheel/lib" "$scratch/said" || { cat "$scratch/said" && exit 1; }
  done
  inside "'$folder/run.sh' --exec '$folder/tests/bin/test_ops' --gtest_filter='CublasLtLibrary.*'"
  # Compile a program with NVRTC, which needs its builtins, as cuDNN does for attention.
  compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
  "$compiler" -std=c++20 -O1 -o "$root/tmp/nvrtc_probe" "$source/tests/bundle/nvrtc_probe.cpp" -ldl
  nvrtc=$(grep '^libnvrtc.so.' "$root$folder/cuda-libraries")
  inside "'$folder/run.sh' --exec ./nvrtc_probe $nvrtc libcudnn.so.9" 2>/dev/null
  # Replace the builtins with an empty file. Now it must fail, which proves that this file was the one loaded.
  umount "$wheels"/cuda_nvrtc/lib/libnvrtc-builtins.so.*
  ! inside "'$folder/run.sh' --exec ./nvrtc_probe $nvrtc libcudnn.so.9" >/dev/null 2>&1 || { echo "NVRTC needs no builtins of the environment" && exit 1; }
fi
inside "'$folder/run.sh' --version"
for test in $packed; do
  inside "'$folder/run.sh' --exec '$folder/tests/bin/$test' --gtest_list_tests >/dev/null"
done
inside "'$folder/run.sh' check '$folder/input/quickstart.yaml' 'data.train.text=[$folder/text]' --ranks 2"
inside "'$folder/run.sh' -n 2 '$folder/input/quickstart.yaml' run.steps=4 optimizer.schedule.warmup_steps=1 run.threads=1 run.device=cpu evaluate.every_steps=2 \
  'data.train.text=[$folder/text]' run.directory=/tmp/run"
[ -s "$root/tmp/run/run.h5" ]
[ -e "$root/tmp/run/checkpoints/step-00000004/manifest.h5" ]
inside "'$folder/run.sh' sample /tmp/run --prompt int --tokens 5"
# Exit codes of user errors are passed through.
code=0
inside "'$folder/run.sh' -n 2 '$folder/input/quickstart.yaml' run.stpes=3" || code=$?
[ "$code" -eq 2 ]
echo "bundle: $bytes bytes with its tests, the source $source_bytes; trained on two ranks with the system hidden"
