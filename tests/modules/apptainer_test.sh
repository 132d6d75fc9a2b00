#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the files that modules/apptainer/trireme.def copies are sufficient to configure with its preset and to install, and that they
# include no build folder, run or git history.
#   usage: apptainer_test.sh SOURCE_DIR
set -euo pipefail
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mapfile -t pairs < <(sed -n '/^%files/,/^$/s/^  *//p' "$1/modules/apptainer/trireme.def")
[ ${#pairs[@]} -gt 5 ] || { echo "FAILED: %files has ${#pairs[@]} lines" && exit 1; }
mkdir "$here/tree"
for pair in "${pairs[@]}"; do
  read -r from to <<<"$pair"
  case $from in . | .git | build* | runs | '*') echo "FAILED: %files copies $from" && exit 1 ;; esac
  [ "$to" = "/opt/trireme-source/$from" ] || { echo "FAILED: $from goes to $to" && exit 1; }
  cp -a "$1/$from" "$here/tree/"
done
cmake -S "$here/tree" --preset cpu -DTRIREME_CUDA=OFF -DTRIREME_ONEDNN=OFF >"$here/out" 2>&1 || { cat "$here/out" && exit 1; }
# Every file that is installed from the source tree must have been copied.
installed=0
while read -r path; do
  [ -e "$path" ] || { echo "FAILED: $path is installed, and not copied" && exit 1; }
  installed=$((installed + 1))
done < <(grep -oE "\"$here/tree/[^\"]*\"" "$here/tree/build/cmake_install.cmake" | tr -d '"' | grep -v "/tree/build/")
[ $installed -gt 5 ] || { echo "FAILED: only $installed paths are installed" && exit 1; }
echo "the image's files: as expected"
