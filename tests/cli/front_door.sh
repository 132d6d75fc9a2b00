#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the executable and checks its standard output, standard error and exit code.
#   usage: front_door.sh TRIREME SOURCE_DIR
set -uo pipefail
trireme=$(realpath "$1") source=$(realpath "$2") failures=0
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here"

# expect CODE OUT ERR ARGUMENT…: OUT and ERR are parts of standard output and standard error. '' means that the stream is empty.
expect() {
  local code=$1 out=$2 err=$3
  shift 3
  "$trireme" "$@" >out 2>err </dev/null
  local got=$?
  for stream in out err; do
    local words=${!stream}
    if { [ -z "$words" ] && [ -s $stream ]; } || { [ -n "$words" ] && ! grep -qF -- "$words" $stream; }; then
      echo "trireme $*: standard ${stream} lacks '${words:-(nothing)}':"
      cat $stream
      failures=$((failures + 1))
    fi
  done
  if [ $got -ne "$code" ]; then
    echo "trireme $*: exit code $got, not $code"
    failures=$((failures + 1))
  fi
}

printf 'run: {directory: r, steps: -1, stpes: 3}\nmodel: {preset: gpt2-124m}\nbatch: {sequences: 9, micro_sequences: 2, equal_ranks: true}\n' >bad.yaml
: >empty.yaml
mkdir directory

expect 2 '' 'usage: trireme'
expect 2 '' 'usage: trireme' check
expect 2 '' 'usage: trireme' check bad.yaml --rankz 2
expect 2 '' 'usage: trireme' check bad.yaml --ranks 0
expect 2 '' 'usage: trireme' check bad.yaml --ranks two
expect 2 '' 'none.yaml: error: cannot read the deck: No such file or directory' check none.yaml
expect 2 '' 'directory: error: this is a directory' check directory
expect 2 '' 'empty.yaml: error: the deck is empty' check empty.yaml
expect 2 '' 'bad.yaml:1:28: error: run.steps: -1 is outside' check bad.yaml
expect 2 '' "bad.yaml:1:32: error: run.stpes: unknown key: did you mean 'steps'?" check bad.yaml
expect 2 '' 'bad.yaml:3:20: error: batch.sequences: 9 is not possible with batch.micro_sequences = 2: a step needs a multiple of 4' check bad.yaml --ranks 2
expect 2 '' 'bad.yaml: error: data.train: no data' check bad.yaml
expect 2 '' "command line:1:12: error: run.device: 'gpu' is not one of auto, cpu, cuda" check bad.yaml run.device=gpu
expect 2 '' "did you mean 'run.steps' or 'optimizer.schedule.steps' or 'optimizer.muon.steps'?" help deck steps
expect 0 'no mistakes found for 3 ranks' '' check "$source/input/quickstart.yaml" --ranks 3
expect 2 '' 'run.directory: is a file, not a directory' check "$source/input/quickstart.yaml" run.directory=empty.yaml
expect 0 '50 steps' '' check "$source/input/quickstart.yaml" run.steps=50 "data.train.text=[$source/README.md, $source/LICENSE]"
expect 0 'wte.weight' '' plan "$source/input/quickstart.yaml" --ranks 3 --json plan.json
expect 2 '' 'plan.json: error: this file exists already' plan "$source/input/quickstart.yaml" --json plan.json
expect 2 '' 'no/plan.json: error: this cannot be created: no: No such file or directory' plan "$source/input/quickstart.yaml" --json no/plan.json
expect 0 '{' '' plan "$source/input/quickstart.yaml" --json -
[ ! -e ./- ] || { echo 'plan --json - has written a file'; failures=$((failures + 1)); }
expect 0 '"rows"' '' bench matmul "$source/tests/integration/tiny.yaml" --repetitions 1 --json -
expect 0 '"suggested"' 'step     10/10' find-rate "$source/tests/integration/tiny.yaml" "data.train.text=[$source/README.md]" --steps 10 --json -
[ "$(head -c 1 out)" = '{' ] || { echo 'find-rate --json -: the log is on standard output'; failures=$((failures + 1)); }
expect 0 'optimizer.schedule.kind' '' help deck
expect 0 'Exit codes:' '' help
expect 0 'usage: trireme sample MODEL' '' help sample
expect 0 'usage: trireme bench ops' '' help bench ops
expect 2 '' "did you mean 'sample'" help sampel
expect 0 'Default: cosine.' '' help deck optimizer.schedule.kind
expect 0 'ranks have between 0 and 1 of the' '' plan "$source/input/gpt2-124m.yaml" --ranks 4096
expect 2 '' "'train' is neither a verb nor a deck. \`trireme DECK\` trains" train bad.yaml
expect 2 '' 'none.yaml: error: cannot read the deck' none.yaml
expect 2 '' "'chekc' is neither a verb nor a deck; did you mean 'check'?" chekc bad.yaml
expect 2 '' 'usage: trireme find-rate' find-rate bad.yaml --steps 1
expect 2 '' 'usage: trireme find-rate' find-rate bad.yaml --from 0
expect 2 '' '--from must be below --to, but they are 0.1 and 0.01' find-rate "$source/tests/integration/tiny.yaml" --from 0.1 --to 0.01
expect 2 '' 'bad.yaml: error: this file exists already' tune "$source/input/quickstart.yaml" --output bad.yaml
expect 2 '' 'usage: trireme tune' tune bad.yaml --memory 0
expect 2 '' 'not a number' sample directory --temperature nan
expect 2 '' 'must be above 0' sample directory --top-p 0
expect 2 '' 'directory: error: no weights in this directory' generate directory
expect 2 '' 'usage: trireme sample' generate directory --tokens none
expect 2 '' 'there is nothing to evaluate' evaluate directory
expect 2 '' 'usage: trireme evaluate' evaluate directory --multiple-choice q --format csv
expect 2 '' "did you mean 'generate'?" genrate directory
expect 2 '' 'error: --output: the value is empty. Is a shell variable not set?' tokenize --tokenizer bytes --text bad.yaml --output ''
expect 2 '' 'error: --json: the value is empty' plan "$source/input/quickstart.yaml" --json ''
expect 2 '' 'error: MODEL: the value is empty' sample ''
expect 2 '' '--bad-lines requires --field' tokenize --tokenizer bytes --text bad.yaml --output out --bad-lines skip
expect 2 '' "data.train.tokens: bad.yaml: is not a token shard" check "$source/input/quickstart.yaml" data.train.text=[] "data.train.tokens=[bad.yaml]"
expect 2 '' 'shared_memory' bench reduce --transport foo
expect 2 '' 'bad.yaml' bench matmul --json bad.yaml
expect 0 'oneDNN' '' --version
expect 0 'usage: trireme' '' --help
expect 0 'usage: trireme' '' bench matmul --help

# A failure to write standard output is an error.
for words in "help deck" "plan $source/input/quickstart.yaml" "--version"; do
  "$trireme" $words >/dev/full 2>err
  if [ $? -ne 3 ] || ! grep -q 'write standard output' err; then
    echo "trireme $words into a full device:"
    cat err
    failures=$((failures + 1))
  fi
done

# An error in the options of a verb shows only the usage of that verb. `VERB --help` explains the options.
"$trireme" bench matmul --repetitions none 2>err
if [ "$(grep -c 'trireme bench matmul' err)" -ne 2 ] || grep -q 'bench reduce' err; then
  echo "trireme bench matmul --repetitions none:"
  cat err
  failures=$((failures + 1))
fi
expect 0 '--repetitions' '' bench matmul --help
expect 2 '' 'trireme bench reduce' bench
expect 0 'trireme bench ops' '' bench --help
expect 2 '' 'error: bench takes one of these words after it' bench none
if grep -q 'trireme plan' err; then
  echo 'trireme bench none: all verbs are listed'
  failures=$((failures + 1))
fi

# All errors in a deck are reported at once, sorted by line, and nothing else is printed.
"$trireme" check bad.yaml 2>err
if [ "$(wc -l <err)" -ne 5 ] || ! sort -s -t : -k 2,2n err | cmp -s - err; then
  echo "the findings of bad.yaml are not the five, in order:"
  cat err
  failures=$((failures + 1))
fi
[ $failures -eq 0 ]
