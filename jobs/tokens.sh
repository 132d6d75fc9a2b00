#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Goes from text to a sample with byte-pair tokens: builds trireme, trains a tokenizer on the C++ headers, writes token shards, trains
# input/tokens.yaml on two ranks and prints a sample. A tokenizer and token shards that are complete are used again.
#   usage: bash jobs/tokens.sh [section.key=value …]     TEXT=DIR uses other text
set -euo pipefail
for word in "$@"; do
  [[ $word == *.*=* ]] || { sed -n 's/^# *usage: /usage: /p' "${BASH_SOURCE[0]}" >&2; exit 2; }
done
text=${TEXT:-/usr/include/c++} corpus=runs/tokens-corpus
[[ $text == /* ]] || text=$PWD/$text
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."

bash modules/packages/setup.sh
bash jobs/build.sh trireme

mkdir -p "$corpus"
if [ ! -e "$corpus/tokenizer/tokenizer.json" ]; then
  bash jobs/mpirun.sh -n 2 build/trireme tokenizer train --text "$text" --vocabulary 4096 --output "$corpus/tokenizer"
fi
bash jobs/mpirun.sh -n 2 build/trireme tokenize --tokenizer "$corpus/tokenizer" --text "$text" --output "$corpus/headers" \
  --validation-fraction 0.05 --shard-bytes 4000000
bash jobs/mpirun.sh -n 2 build/trireme input/tokens.yaml "$@" </dev/null

echo
echo "a sample from the newest checkpoint, which holds the tokenizer as well:"
run=$(build/trireme check input/tokens.yaml "$@" --ranks 2 --value run.directory)
run=$(dirname "$(ls -t "$run"/run.h5 "$run"-[0-9]*/run.h5 2>/dev/null | head -n 1)")
build/trireme sample "$run" --prompt 'template <class T>' --tokens 120
