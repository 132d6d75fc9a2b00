# SPDX-License-Identifier: Apache-2.0
"""Creates hundreds of hostile cases: a small run resumes after its files were damaged, or runs while its system calls fail.

    TRIREME=build/trireme python3 tests/faults/mutate.py --seconds 600 --seed 7       # or --only files,calls,modes,limits,decks,hdf5,foreign,purge,signals
    TRIREME=build/trireme python3 tests/faults/mutate.py --seed 7 --case 123          # one of them again, with what it said
    TRIREME=build/trireme python3 tests/faults/mutate.py --sweep fsync,write          # every call of these fails once, with each error
    TRIREME=build/trireme python3 tests/faults/mutate.py --sweep fsync --ranks 2      # on each of two ranks

The verdict on a case:
    right    the run ended with the numbers of the undisturbed run; if rows of its record are missing or changed, it said so
    reported it stopped with an error line and exit code 2, 3 or 75, and reached the right numbers once the cause was removed
    silent   wrong numbers, or rows that are missing or changed, without a message
    hang     no end within the limit          crash     a signal, a bug's exit code, an uncaught exception
    lost     nothing was damaged (a call failed or was not permitted), but the record was given up, or earlier rows are gone; or a file of
             others was changed; or a run whose checkpoints were away started from step 0
    advice   nothing was damaged, but the run advised to remove something
    dead end it stopped, and did not reach the right numbers after the cause was removed
"""
import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import subprocess
import sys
import time

import numpy

from hostile_bench import MORE, TRIREME, Bench
from hostile_cases import KINDS, SHARES, Decks, Foreign, Hdf5, Purge, Sweep

VERDICTS = ("right", "reported", "silent", "hang", "crash", "lost", "advice", "dead end")
BAD = VERDICTS[2:]
RANKS, SHARE_OF_RANKS = 2, 0.15
# Messages of a run about changes to its record, cache or checkpoints.
WORDS = re.compile(r"damaged|rebuil(?:t|ding)|are missing|is not here|was changed by another|can be read|from step 0|names \"")
ADVICE = re.compile(r"\b(remove|delete|rm)\b")


def is_right(case, old_rows, outcome):
    """Whether the numbers equal those of the undisturbed run, and the record is complete or a message says that it is not."""
    reference = case.reference
    if not reference.has_numbers(case.run):
        return False
    if WORDS.search(outcome.out + outcome.err):
        return True
    return reference.has_rows(case.run) and (not old_rows or reference.has_old_rows(case.run))


def is_lost(case):
    """Whether an undamaged file was given up."""
    if isinstance(case, Foreign) and case.changed():
        return True
    moved = any("damaged-" in name for name in os.listdir(case.run))
    return case.passing and (moved or case.resumed and not case.reference.has_old_rows(case.run))


def judge_finished(case, outcome):
    """The verdict on a run with exit code 0."""
    if isinstance(case, Decks):  # numbers change with the deck, and the record shows the deck
        return "right"
    verdict = "right"
    if is_lost(case) or isinstance(case, Purge) and case.needed:
        verdict = "lost"
    elif not is_right(case, case.resumed, outcome):
        verdict = "silent"
    case.undo()
    return "silent" if "VICTIM" in case.what else verdict


def judge(case, bench):
    """The verdict and the outcome that it is based on."""
    outcome = bench.start(case.run, MORE, *case.overrides, ranks=case.ranks, environment=case.environment, after=case.after)
    stopped = case.after is not None and case.stopped(outcome)
    if outcome.hung:
        return "hang", outcome
    if outcome.crashed and not stopped:
        return "crash", outcome
    if outcome.code == 0:
        return judge_finished(case, outcome), outcome
    if not outcome.reported and not stopped:
        return "silent", outcome
    case.undo()
    if "VICTIM" in case.what:
        return "silent", outcome
    if case.passing and ADVICE.search(outcome.errors):
        return "advice", outcome
    again = bench.start(case.run, MORE, ranks=case.ranks)
    if again.hung:
        return "hang", again
    right = again.code == 0 and is_right(case, False, again)
    verdict = "dead end" if not right else "lost" if is_lost(case) else "reported"
    if verdict == "reported":
        return verdict, outcome
    again.err = f"{outcome}\n=== and again, without the cause:\n" + again.err
    return verdict, again


def try_one(bench, seed, number, kinds):
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(kinds, [SHARES.get(one, 1) for one in kinds])[0]
    of = {**KINDS, "sweep": Sweep}[kind]
    ranks = RANKS if chance.random() < SHARE_OF_RANKS and not of.alone else 1
    if of is Sweep:
        ranks = Sweep.ranks
    run = bench.place_of(number)
    begin = time.monotonic()
    try:
        case = of(bench, chance, run, ranks, number)
        verdict, outcome = judge(case, bench)
        return number, kind, f"{case.what}, {ranks} rank{'s' if ranks > 1 else ''}", verdict, outcome, time.monotonic() - begin
    finally:
        for at, _, _ in os.walk(run):
            os.chmod(at, 0o700)
        shutil.rmtree(run, ignore_errors=True)


def try_all(bench, given, kinds, counts):
    begin = time.monotonic()
    numbers = iter(range(given.cases))
    took = []
    with concurrent.futures.ThreadPoolExecutor(given.workers) as pool:
        waiting = set()
        while True:
            while len(waiting) < given.workers and time.monotonic() - begin < given.seconds and (number := next(numbers, None)) is not None:
                waiting.add(pool.submit(try_one, bench, given.seed, number, kinds))
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                number, kind, what, verdict, outcome, seconds = one.result()
                counts[kind][verdict] += 1
                took.append(seconds)
                if verdict in BAD or given.verbose:
                    print(f"*** case {number} ({kind}): {what}: {verdict}\n{outcome if verdict in BAD else ''}", flush=True)
    seconds = time.monotonic() - begin
    print(f"{'':8}" + "".join(f"{word:>10}" for word in ("tried", *VERDICTS)))
    total = sum(counts.values(), collections.Counter())
    for kind, found in (*counts.items(), ("all", total)):
        print(f"{kind:8}" + "".join(f"{number:>10}" for number in (found.total(), *(found[word] for word in VERDICTS))))
    print(f"seed {given.seed}, {seconds:.0f} s, {given.workers} at a time on {len(os.sched_getaffinity(0))} cores, "
          f"a case took {sum(took) / max(len(took), 1):.2f} s")
    return 1 if total.total() == 0 or any(total[word] for word in BAD) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3 * len(os.sched_getaffinity(0)))
    parser.add_argument("--case", type=int)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--sweep", help="calls, separated by commas")
    parser.add_argument("--ranks", type=int, choices=(1, RANKS), default=1, help="of a sweep")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1", HWLOC_COMPONENTS="-gl")
    helped = subprocess.run([TRIREME, "help", "deck"], stdout=subprocess.PIPE, text=True, check=True).stdout
    Decks.keys = re.findall(r"^([a-z_]+(?:\.[a-z_0-9]+)+) ", helped, re.MULTILINE)
    kinds = given.only.split(",")
    with Bench() as bench:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(bench.reference, (1, RANKS)))
        if given.sweep:
            kinds = ["sweep"]
            Sweep.over(bench.reference(given.ranks), given.sweep.split(","))
            given.cases, given.seconds = min(given.cases, len(Sweep.plan)), 1e9
            print(f"{len(Sweep.plan)} cases: each call of {given.sweep}, resumed and fresh, with each of its errors, on {given.ranks} rank{'s' if given.ranks > 1 else ''}", flush=True)
        if given.case is not None:
            print(*try_one(bench, given.seed, given.case, kinds), sep="\n")
            return 0
        return try_all(bench, given, kinds, {kind: collections.Counter() for kind in kinds})


if __name__ == "__main__":
    numpy.seterr(all="ignore")
    sys.exit(main())
