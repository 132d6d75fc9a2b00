#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks the output of modules/packages/setup.sh where it installs nothing: on unsupported systems and with TRIREME_SETUP=skip. Also checks
# that cudnn_frontend.sh and Spack's recipe have the same version of cuDNN's front end, and runs spack_test.py.
#   usage: setup_test.sh SOURCE_DIR
set -uo pipefail
setup=$1/modules/packages/setup.sh failures=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

fail() {
  echo "$1:"
  cat "$here/out"
  failures=$((failures + 1))
}

printf 'ID=fedora\nVERSION_ID=41\nPRETTY_NAME="Fedora Linux 41"\n' >"$here/fedora"
TRIREME_OS_RELEASE=$here/fedora bash "$setup" >"$here/out" 2>&1
[ $? -eq 3 ] || fail "exit code on Fedora is not 3"
for words in "Fedora Linux 41" "module load mpi/openmpi-x86_64" openmpi4-devel gcc-toolset-12 python3-wheel openmpi-devel onednn-devel "MPICH 4" "HDF5 1.10.7 (or 1.12.1)" TRIREME_ONEDNN=OFF "TRIREME_SETUP=skip bash jobs/quickstart.sh"; do
  grep -qF -- "$words" "$here/out" || fail "nothing about $words on Fedora"
done

printf 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID=22.04\n' >"$here/jammy"
TRIREME_OS_RELEASE=$here/jammy bash "$setup" >"$here/out" 2>&1
[ $? -eq 3 ] || fail "exit code on Ubuntu 22.04 is not 3"
grep -q 'apt-get install .*ninja-build.*libcli11-dev.*libhdf5-openmpi-dev' "$here/out" || fail "no command for apt on Ubuntu 22.04"

for script in quickstart tokens; do # a bad override must be rejected before anything is installed or built
  TRIREME_OS_RELEASE=$here/fedora bash "$1/jobs/$script.sh" steps=3 >"$here/out" 2>&1
  [ $? -eq 2 ] && grep -q "^usage: bash jobs/$script.sh" "$here/out" || fail "no usage of $script.sh"
done

TRIREME_OS_RELEASE=$here/fedora TRIREME_SETUP=skip bash "$setup" >"$here/out" 2>&1 || fail "TRIREME_SETUP=skip is an error"
TRIREME_OS_RELEASE=$here/none bash "$setup" >"$here/out" 2>&1
[ $? -eq 3 ] || fail "exit code without os-release is not 3"

# Without any package and without the right to install: the missing packages are listed. Formatters are not among them.
mkdir "$here/bin"
printf '#!/bin/sh\nexit 1\n' | tee "$here/bin/dpkg-query" "$here/bin/apt-get" >"$here/bin/sudo"
printf '#!/bin/sh\necho 1000\n' >"$here/bin/id"
chmod +x "$here"/bin/*
for system in debian-12 debian-13 ubuntu-24.04; do
  printf 'ID=%s\nVERSION_ID=%s\n' "${system%%-*}" "${system#*-}" >"$here/os"
  PATH=$here/bin:$PATH TRIREME_OS_RELEASE=$here/os bash "$setup" >"$here/out" 2>&1
  [ $? -eq 3 ] || fail "missing packages on $system, and the exit code is not 3"
  for package in libdnnl-dev libopenmpi-dev libhdf5-openmpi-dev; do
    grep -q "are missing, .*$package" "$here/out" || fail "$package is not asked for on $system"
  done
  ! grep -q 'clang' "$here/out" || fail "a developer's tool is asked for on $system"
done
PATH=$here/bin:$PATH TRIREME_MPI=mpich TRIREME_OS_RELEASE=$here/os bash "$setup" >"$here/out" 2>&1
{ grep -q libmpich-dev "$here/out" && ! grep -q openmpi "$here/out"; } || fail "TRIREME_MPI=mpich does not ask for MPICH alone"

# If the release lacks one of the packages for tests, the others are installed one by one, and the missing one is named.
printf '#!/bin/sh\nshift 2\nfor name; do grep -qx -- "$name" "%s" || echo "ii  $name"; done\n' "$here/absent" >"$here/bin/dpkg-query"
cat >"$here/bin/apt-get" <<END
#!/bin/sh
case " \$* " in *" install "*) ;; *) exit 0 ;; esac
case " \$* " in *" lmod "*) echo "E: Unable to locate package lmod" && exit 100 ;; esac
for name; do grep -vx -- "\$name" "$here/absent" >"$here/rest"; mv "$here/rest" "$here/absent"; done
END
printf '#!/bin/sh\n[ "$1" != -n ] || shift\n[ "$1" != env ] || exec "$@"\n[ "$1" != tee ] || cat >/dev/null\n' >"$here/bin/sudo"
printf 'ID=debian\nVERSION_ID=12\n' >"$here/os"
printf '%s\n' strace lmod qemu-user >"$here/absent"
PATH=$here/bin:$PATH CUDA_HOME= CUDA_PATH= TRIREME_OS_RELEASE=$here/os bash "$setup" tests >"$here/out" 2>&1 </dev/null || fail "a missing package for tests is an error"
[ "$(cat "$here/absent")" = lmod ] || fail "not all but lmod are installed, but missing are $(xargs <"$here/absent")"
grep -qx "apt-get could not install: lmod" "$here/out" || fail "lmod is not named"
grep -q "Unable to locate package lmod" "$here/out" || fail "apt's reason is not told"

bash "$setup" libraries >"$here/out" 2>&1 || fail "the libraries are an error"
for package in libdnnl-dev libhdf5-openmpi-dev libgmock-dev; do
  grep -qx $package "$here/out" || fail "$package is not among the libraries"
done
! grep -qE 'python|cmake|openmpi-bin' "$here/out" || fail "a program is among the libraries"

version=$(sed -n 's/^version=\([0-9.]*\) .*/\1/p' "$1/modules/packages/cudnn_frontend.sh")
recipes=$1/modules/spack/repo/packages
grep -qF "version(\"${version:-none}\"" "$recipes/cudnn-frontend/package.py" || fail "Spack's cudnn-frontend is not ${version:-(no version)}"
python3 "$1/tests/modules/spack_test.py" "$recipes" >"$here/out" 2>&1 || fail "Spack's recipes"

[ $failures -eq 0 ] && echo "setup: as expected"
exit $((failures > 0))
