# SPDX-License-Identifier: Apache-2.0
"""Makes hostile cases by the hundred: a small run that goes on after its files were damaged, or while its system calls fail.

    TRIREME=build/trireme python3 tests/faults/mutate.py --seconds 600 --seed 7       # or --only files,calls,limits,decks,hdf5
    TRIREME=build/trireme python3 tests/faults/mutate.py --seed 7 --case 123          # one of them again, with what it said

A case is judged by what came of it:
    right    the run ended with the numbers of the undisturbed one; where rows of its record are missing or changed, it said so
    told     it stopped with an error line and exit code 2, 3 or 75, and went on to the right numbers once the cause was gone
    silent   other numbers, or rows that are missing or changed, without a word
    hang     no end within the limit          crash     a signal, a bug's exit code, an uncaught exception
    dead end it stopped, and did not go on to the right numbers when the cause was gone
"""
import argparse
import collections
import concurrent.futures
import errno
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import h5py
import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
DECK = os.path.join(HERE, os.pardir, "integration", "tiny.yaml")
TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/trireme"))
LIMIT_S = float(os.environ.get("TRIREME_MUTATE_LIMIT", "60"))
STEPS, MORE = 12, 14
VERDICTS = ("right", "told", "silent", "hang", "crash", "dead end")
BAD = ("silent", "hang", "crash", "dead end")
# What a run says when its record, its cache or a checkpoint is not as it was left.
WORDS = re.compile(r"damaged|beyond repair|built again|are missing|is not here|are dropped|not what was written|no block|begins anew|names \"")


class Outcome:
    def __init__(self, code, out, err, hung):
        self.code, self.out, self.err, self.hung = code, out, err, hung

    @property
    def crashed(self):
        return self.code is not None and (self.code < 0 or self.code >= 128 or self.code == 4) or any(
            word in self.err for word in ("terminate called", "Process received signal", "stack smashing", "double free"))

    @property
    def told(self):
        return self.code in (2, 3, 75) and "error: " in self.err

    def __str__(self):
        return f"exit {self.code}{' (no end)' if self.hung else ''}\n--- stdout\n{self.out}--- stderr\n{self.err}"


def xxh64(data):
    sys.path.insert(0, os.path.join(HERE, os.pardir, "integration"))
    from mistakes_test import xxh64 as of  # pylint: disable=import-outside-toplevel
    return of(data)


class Bench:
    """The undisturbed runs, and copies of them to be disturbed."""

    def __init__(self, folder):
        self.folder = folder
        self.text = os.path.join(folder, "text")
        os.mkdir(self.text)
        with open(os.path.join(self.text, "a.txt"), "w", encoding="ascii") as out:
            for line in range(400):
                out.write(f"{line}: the quick brown fox jumps over {line * 7 % 31} lazy dogs\n")
        self.library = os.path.join(folder, "fail_call.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, os.path.join(HERE, "fail_call.c"), "-ldl"], check=True)
        self.base = os.path.join(folder, "base")
        self.need(self.start(self.base, STEPS, "record.spans=true"))
        whole = os.path.join(folder, "whole")
        shutil.copytree(self.base, whole)
        self.need(self.start(whole, MORE))
        self.numbers, self.rows = self.weights(whole), self.record(whole)
        fresh = os.path.join(folder, "fresh")
        self.need(self.start(fresh, MORE))
        if self.weights(fresh) != self.numbers:
            raise SystemExit("a resumed run differs from one in one piece: nothing can be judged")
        self.calls = {}
        for call in CALLS:
            for mode in ("fresh", "resume"):
                run = os.path.join(folder, f"count-{mode}-{call}")
                if mode == "resume":
                    shutil.copytree(self.base, run)
                report = run + ".calls"
                self.need(self.start(run, MORE, environment=self.failing(call, run, at=0, report=report)))
                with open(report, encoding="ascii") as file:
                    self.calls[mode, call] = int(file.read())

    @staticmethod
    def need(outcome):
        if outcome.code != 0:
            raise SystemExit(f"the undisturbed run failed: {outcome}")

    def failing(self, call, run, at, report="", number=errno.EIO, lasts=1):
        under = str(LARGE) if call == "malloc" else run
        return {"LD_PRELOAD": self.library, "FAIL_CALL": call, "FAIL_AT": str(at), "FAIL_FOR": str(lasts), "FAIL_ERRNO": str(number),
                "FAIL_UNDER": under, "FAIL_REPORT": report, "FAIL_RUN": run}

    def words(self, run, steps, overrides):
        given = {word.partition("=")[0] for word in overrides}
        usual = {"run.directory": run, "run.steps": steps, "data.train.text": f"[{self.text}]", "optimizer.schedule.steps": STEPS,
                 "record.spans": "false", "checkpoint.keep": "0"}
        return [DECK, *(f"{key}={value}" for key, value in usual.items() if key not in given), *overrides]

    def start(self, run, steps, *overrides, environment=None):
        running = subprocess.Popen([TRIREME, *self.words(run, steps, overrides)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.folder,
                                   env={**os.environ, **(environment or {})})
        try:
            out, err = running.communicate(timeout=LIMIT_S)
            return Outcome(running.returncode, out, err, False)
        except subprocess.TimeoutExpired:
            running.kill()
            out, err = running.communicate()
            return Outcome(None, out, err, True)

    @staticmethod
    def weights(run):
        found = {}
        with h5py.File(os.path.join(run, f"checkpoints/step-{MORE:08d}/manifest.h5"), "r") as file:
            file["tensors"].visititems(lambda name, node: found.update({name: int(node.attrs["content_hash"])})
                                       if isinstance(node, h5py.Dataset) else None)
        return found

    @staticmethod
    def record(run):
        """What must be the same in every run; and what was written before step STEPS, where it may be compared with the base's."""
        with h5py.File(os.path.join(run, "run.h5"), "r") as file:
            columns = {name: file["steps"][name][:] for name in file["steps"]}
            same = {name: columns[name].tolist() for name in ("step", "loss", "grad_norm", "learning_rate", "tokens")}
            same["validation"] = [file["validation/step"][:].tolist(), file["validation/loss"][:].tolist()]
            return same

    def old_columns(self, run):
        with h5py.File(os.path.join(run, "run.h5"), "r") as file:
            return {name: file["steps"][name][:STEPS].tobytes() for name in file["steps"]}

    def is_right(self, run, resumed, outcome):
        """Whether the numbers are those of the undisturbed run, or a word about the record was said."""
        try:
            if self.weights(run) != self.numbers:
                return False
        except (OSError, KeyError, ValueError):
            return False
        if WORDS.search(outcome.out + outcome.err):
            return True
        try:
            return self.record(run) == self.rows and (not resumed or self.old_columns(run) == self.old_columns(self.base))
        except (OSError, KeyError, ValueError, RuntimeError):
            return False


def files_of(run):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(run) for name in names if name != "lock")


def put(path, data):
    with open(path, "wb") as out:
        out.write(data)


class Case:
    """Something to do before, or around, a start; `undo` takes the cause away."""
    resumed = True

    def __init__(self, bench, chance, run):
        self.bench, self.chance, self.run, self.what = bench, chance, run, ""
        self.environment, self.overrides = None, ()
        self.make()

    def make(self):
        raise NotImplementedError

    def undo(self):
        self.environment, self.overrides = None, ()


class Files(Case):
    """One file is not what it was."""

    def make(self):
        shutil.copytree(self.bench.base, self.run, symlinks=True)
        chance = self.chance
        # The files that matter as often as the small ones beside them.
        group = chance.choice(("tokens/", "run.h5", "run.h5", "manifest", "rank-", "latest", "run.id", "deck", "log"))
        self.path = chance.choice([path for path in files_of(self.run) if group in path])
        with open(self.path, "rb") as file:
            self.whole = data = file.read()
        how = chance.choice(("flip", "flip", "flip", "flip", "cut", "grow", "zeros", "swap", "gone", "kind", "other", "burst"))
        at = chance.randrange(len(data) or 1)
        if how == "flip" and data:
            data = bytearray(data)
            data[at] ^= 1 << chance.randrange(8)
        elif how == "cut":
            data = data[:chance.choice((0, 1, at, len(data) - 1))]
        elif how == "grow":
            data += chance.randbytes(chance.choice((1, 512, 70000)))
        elif how in ("zeros", "burst"):
            length = chance.choice((8, 64, 512, 4096))
            piece = bytes(length) if how == "zeros" else chance.randbytes(length)
            data = (data[:at] + piece + data[at + length:])[:len(data)]
        elif how == "swap":
            with open(chance.choice(files_of(self.run)), "rb") as file:
                data = file.read()
        elif how == "other":
            data = chance.choice((b"", b"notes\n", chance.randbytes(3000), b"\x89HDF\r\n\x1a\n" + bytes(600)))
        self.what = f"{how} {os.path.relpath(self.path, self.run)} at {at} of {len(self.whole)}"
        if how in ("gone", "kind"):
            os.remove(self.path)
        if how == "kind":
            kind = chance.choice(("fifo", "folder", "socket", "dangling", "loop", "full", "null"))
            self.what += f" {kind}"
            if kind == "fifo":
                os.mkfifo(self.path)
            elif kind == "folder":
                os.mkdir(self.path)
            elif kind == "socket":
                here = os.getcwd()
                with socket.socket(socket.AF_UNIX) as end:
                    end.bind(f"/proc/self/fd/{(folder := os.open(os.path.dirname(self.path), os.O_RDONLY))}/{os.path.basename(self.path)}")
                    os.close(folder)
                assert here == os.getcwd()
            else:
                os.symlink({"dangling": "nowhere", "loop": os.path.basename(self.path), "full": "/dev/full", "null": "/dev/null"}[kind],
                           self.path)
        elif how != "gone":
            put(self.path, bytes(data))

    def undo(self):
        super().undo()
        if os.path.isdir(self.path) and not os.path.islink(self.path):
            os.rmdir(self.path)
        elif os.path.lexists(self.path):
            os.remove(self.path)
        put(self.path, self.whole)


class Hdf5(Case):
    """A file that is good HDF5 and says other things."""

    def make(self):
        shutil.copytree(self.bench.base, self.run, symlinks=True)
        chance = self.chance
        name = chance.choice(("run.h5", "run.h5", f"checkpoints/step-{STEPS:08d}/manifest.h5",
                              f"checkpoints/step-{STEPS:08d}/rank-00000.h5"))
        self.path = os.path.join(self.run, name)
        self.victim = os.path.join(self.run, "victim.h5")
        shutil.copy(self.path, self.victim)
        self.kept = {path: open(path, "rb").read() for path in files_of(self.run)}  # pylint: disable=consider-using-with
        os.mkfifo(os.path.join(self.run, "fifo"))
        with h5py.File(self.path, "r+") as file:
            nodes = []
            file.visit(nodes.append)
            node = chance.choice(nodes)
            how = chance.choice(("external link", "soft link", "external storage", "virtual", "delete", "resize", "type", "loop", "text"))
            self.what = f"{how} {node} of {name}"
            is_data = isinstance(file[node], h5py.Dataset)
            if how == "resize" and is_data and file[node].maxshape == (None,):
                file[node].resize((chance.choice((0, 1, file[node].shape[0] + 5, 1 << 40)),))
            else:
                del file[node]
                if how == "external link":
                    file[node] = h5py.ExternalLink(chance.choice((self.victim, "victim.h5", "fifo", "/etc/passwd")), "/" + node)
                elif how == "soft link":
                    file[node] = h5py.SoftLink(chance.choice(("/", "/" + node, "/steps/step")))
                elif how == "external storage":
                    file.create_dataset(node, (10,), "i8", external=[(chance.choice(("victim.h5", "fifo", "/etc/passwd")), 0, 80)])
                elif how == "virtual":
                    layout = h5py.VirtualLayout((10,), "i8")
                    layout[:] = h5py.VirtualSource(chance.choice(("../victim.h5", "fifo", "/etc/passwd")), "x", (10,))
                    file.create_virtual_dataset(node, layout)
                elif how == "type":
                    file.create_dataset(node, (10, 10), chance.choice(("f4", "S7", "u1")))
                elif how == "loop":
                    file[node] = file["/"]
                elif how == "text":
                    file.create_dataset(node, data=["x" * 100] * 3, maxshape=(None,))
        if name.endswith("manifest.h5"):  # made by somebody who knows of the sum
            with open(self.path, "rb") as file, open(self.path[:-2] + "xxh64", "w", encoding="ascii") as out:
                out.write(f"{xxh64(file.read()):016x}  manifest.h5\n")

    def undo(self):
        super().undo()
        with open(self.victim, "rb") as file:
            if file.read() != self.kept[self.victim]:
                self.what += " AND CHANGED ITS VICTIM"
        for path, data in self.kept.items():
            put(path, data)


# Bytes that an allocation asks for, to be one that may fail. HDF5 1.10.8 crashes (H5AC_create) where half a MiB is missing; src/h5/file.cpp
# asks for 16 MiB just before, so that this does not happen where memory is really short (Limits), but no single failure can be foreseen.
LARGE = 1 << 20
CALLS = ("write", "pwrite64", "read", "pread64", "fsync", "ftruncate64", "fallocate64", "open", "rename", "mkdir", "malloc")


class Calls(Case):
    """The k-th call fails, once or from there on."""

    def make(self):
        chance = self.chance
        self.resumed = chance.random() < 0.6
        mode = "resume" if self.resumed else "fresh"
        call = chance.choice([call for call in CALLS if self.bench.calls[mode, call] > 0])
        at = chance.randrange(self.bench.calls[mode, call]) + 1
        if call in ("write", "pwrite64"):
            number = chance.choice((errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EINTR, errno.EDQUOT, -1))
        elif call in ("read", "pread64"):
            number = chance.choice((errno.EIO, errno.EINTR, -1))
        elif call == "open":
            number = chance.choice((errno.EMFILE, errno.EACCES, errno.EIO, errno.ENFILE))
        elif call == "fallocate64":
            number = chance.choice((errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO, errno.EINTR))
        else:
            number = chance.choice((errno.EIO, errno.ENOSPC, errno.EROFS))
        lasts = 0 if number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EOPNOTSUPP) or chance.random() < 0.2 and number > 0 else 1
        if number == errno.EINTR:
            lasts = 1
        if self.resumed:
            shutil.copytree(self.bench.base, self.run, symlinks=True)
        self.environment = self.bench.failing(call, self.run, at, number=number, lasts=lasts)
        self.what = f"{mode}: {call} {at} of {self.bench.calls[mode, call]} fails with {errno.errorcode.get(number, 'a half')}" + (
            "" if lasts else " from there on")


class Limits(Case):
    """What the system allows, once MPI has started: how that fares is not ours."""

    def make(self):
        chance = self.chance
        self.resumed = chance.random() < 0.7
        if self.resumed:
            shutil.copytree(self.bench.base, self.run, symlinks=True)
        which, value = chance.choice((("RLIMIT_AS", chance.randrange(1 << chance.randrange(16, 28))), ("RLIMIT_NOFILE", chance.randrange(6, 60)),
                                      ("RLIMIT_FSIZE", chance.randrange(1, 1 << chance.randrange(8, 22)))))
        self.environment = {"LD_PRELOAD": self.bench.library, "FAIL_RUN": self.run, "FAIL_LIMIT": f"{getattr(resource, which)}:{value}"}
        self.what = f"{'resume' if self.resumed else 'fresh'}: {which} {value}"


class Decks(Case):
    """Values that nobody means."""
    VALUES = ("", "0", "-1", "1e308", "-1e308", "1e-320", ".nan", ".inf", "99999999999999999999", "9223372036854775807", "[]", "[[]]", "{}",
              "~", "true", "'a\\0b'", '"a\\0b"', "*x", "&x 1", "!!int 1", "1_000", "0x10", "010", "x" * 5000, "[" * 600, "\u2028", "\x7f",
              "../../../..", "/dev/null", "/proc/self/mem", "auto", "none", "2.5", "1e3")

    def make(self):
        chance = self.chance
        shutil.copytree(self.bench.base, self.run, symlinks=True)
        key = chance.choice(KEYS)
        value = chance.choice(self.VALUES)
        self.overrides = (f"{key}={value}",)
        self.what = f"{key}={value[:30]!r}"


KINDS = {"files": Files, "hdf5": Hdf5, "calls": Calls, "limits": Limits, "decks": Decks}
SHARES = {"files": 40, "calls": 30, "hdf5": 12, "limits": 8, "decks": 10}
KEYS = []


def judge(case, bench):
    """The verdict, and what was said."""
    outcome = bench.start(case.run, MORE, *case.overrides, environment=case.environment)
    if outcome.hung:
        return "hang", outcome
    if outcome.crashed:
        return "crash", outcome
    if outcome.code == 0:
        if isinstance(case, Decks):  # another deck has other numbers; that it was meant shows in the record
            return "right", outcome
        verdict = "right" if bench.is_right(case.run, case.resumed, outcome) else "silent"
        if isinstance(case, Hdf5):
            case.undo()
            verdict = "silent" if "VICTIM" in case.what else verdict
        return verdict, outcome
    if not outcome.told:
        return "silent", outcome
    case.undo()
    if "VICTIM" in case.what:
        return "silent", outcome
    again = bench.start(case.run, MORE)
    if again.hung:
        return "hang", again
    if again.code == 0 and bench.is_right(case.run, False, again):
        return "told", outcome
    again.err = f"{outcome}\n=== and again, without the cause:\n" + again.err
    return "dead end", again


def try_one(bench, seed, number, kinds):
    chance = random.Random(f"{seed} {number}")
    kind = chance.choices(kinds, [SHARES[one] for one in kinds])[0]
    run = os.path.join(bench.folder, f"case-{number}")
    try:
        case = KINDS[kind](bench, chance, run)
        verdict, outcome = judge(case, bench)
        return number, kind, case.what, verdict, outcome
    finally:
        shutil.rmtree(run, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", type=int)
    parser.add_argument("--only", default=",".join(KINDS))
    given = parser.parse_args()
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    helped = subprocess.run([TRIREME, "help", "deck"], stdout=subprocess.PIPE, text=True, check=True).stdout
    KEYS.extend(re.findall(r"^([a-z_]+(?:\.[a-z_0-9]+)+) ", helped, re.MULTILINE))
    kinds = given.only.split(",")
    counts = {kind: collections.Counter() for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="trireme-mutate-", ignore_cleanup_errors=True) as folder:
        bench = Bench(folder)
        if given.case is not None:
            print(*try_one(bench, given.seed, given.case, kinds), sep="\n")
            return 0
        begin = time.monotonic()
        numbers = iter(range(given.cases))
        with concurrent.futures.ThreadPoolExecutor(given.workers) as pool:
            waiting = set()
            while True:
                while len(waiting) < given.workers and time.monotonic() - begin < given.seconds and (number := next(numbers, None)) is not None:
                    waiting.add(pool.submit(try_one, bench, given.seed, number, kinds))
                if not waiting:
                    break
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                for one in done:
                    number, kind, what, verdict, outcome = one.result()
                    counts[kind][verdict] += 1
                    if verdict in BAD:
                        print(f"*** case {number} ({kind}): {what}: {verdict}\n{outcome}", flush=True)
    print(f"{'':8}" + "".join(f"{word:>10}" for word in ("tried", *VERDICTS)))
    total = sum(counts.values(), collections.Counter())
    for kind, found in (*counts.items(), ("all", total)):
        print(f"{kind:8}" + "".join(f"{number:>10}" for number in (found.total(), *(found[word] for word in VERDICTS))))
    print(f"seed {given.seed}, {time.monotonic() - begin:.0f} s, {given.workers} workers")
    return 1 if total.total() == 0 or any(total[word] for word in BAD) else 0


if __name__ == "__main__":
    numpy.seterr(all="ignore")
    sys.exit(main())
