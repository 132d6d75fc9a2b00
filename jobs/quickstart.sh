#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Goes from a fresh Debian to a trained model: installs missing packages, builds into build/, trains input/quickstart.yaml on two ranks, and
# shows the run as a table and a picture.
#   usage: bash jobs/quickstart.sh [section.key=value …]
set -euo pipefail
for word in "$@"; do
  [[ $word == *.*=* ]] || { sed -n 's/^# *usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }
done
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
deck=input/quickstart.yaml

bash modules/packages/setup.sh
bash jobs/build.sh trireme

bash jobs/mpirun.sh -n 2 build/trireme "$deck" "$@" </dev/null

# A finished run is kept, and the next one gets a numbered directory (run.when_finished: new). The newest record belongs to this run.
run=$(build/trireme check "$deck" "$@" --ranks 2 --value run.directory)
run=$(dirname "$(ls -t "$run"/run.h5 "$run"-[0-9]*/run.h5 2>/dev/null | head -n 1)")

post=build/postproc
if [ ! -x "$post/bin/trireme-postproc" ] || [ -n "$(find postproc/trireme_postproc -type f -not -name '*.pyc' -newer "$post/bin/trireme-postproc" -print -quit)" ]; then
  # Use Debian's Python, for which setup.sh installed h5py, numpy and matplotlib. Nothing is downloaded.
  python=/usr/bin/python3
  [ -x "$python" ] || python=$(command -v python3)
  "$python" -m venv --system-site-packages "$post"
  "$post/bin/python" -m pip install -q --no-index --no-deps --no-build-isolation --force-reinstall ./postproc
fi
echo
"$post/bin/trireme-postproc" summary "$run"
"$post/bin/trireme-postproc" plot "$run"

echo
echo "the run, its record and its checkpoints: $run"
echo "train on:     bash jobs/mpirun.sh -n 2 build/trireme DECK [section.key=value …]    (all keys: build/trireme help deck)"
echo "sample again: build/trireme sample $run --prompt 'template <class T>' --tokens 200"
echo "analyse:      $post/bin/trireme-postproc --help"
