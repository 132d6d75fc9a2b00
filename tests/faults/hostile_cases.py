# SPDX-License-Identifier: Apache-2.0
"""The kinds of hostile cases for mutate.py. A case creates its run directory, describes the fault, and removes the cause again."""
import errno
import os
import resource
import shutil
import signal
import socket

import h5py

from hostile_bench import STEPS, xxh64

LASTING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EOPNOTSUPP, errno.EACCES)
ERRORS = {
    "write": (errno.ENOSPC, errno.EIO, errno.EINTR, errno.EDQUOT, -1),
    "pwrite64": (errno.ENOSPC, errno.EIO, errno.EINTR, errno.EDQUOT, -1),
    "read": (errno.EIO, errno.EINTR, -1),
    "pread64": (errno.EIO, errno.EINTR, -1),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "fdatasync": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "close": (errno.EIO, errno.EDQUOT, errno.EINTR),
    "ftruncate64": (errno.EIO, errno.ENOSPC),
    "fallocate64": (errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO, errno.EINTR),
    "open": (errno.EMFILE, errno.EACCES, errno.EIO, errno.ENFILE),
    "rename": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES),
    "remove": (errno.EIO, errno.EROFS, errno.EACCES),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES),
    "malloc": (errno.ENOMEM,),
}


def files_of(run):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(run) for name in names if name != "lock")


def folders_of(run):
    return sorted(at for at, _, _ in os.walk(run))


def put(path, data):
    with open(path, "wb") as out:
        out.write(data)


def get(path):
    with open(path, "rb") as file:
        return file.read()


class Case:
    """A fault before or during a start; `undo` removes its cause. `passing`: no file is damaged, so the run must not give up any file or
    advise to remove one. `alone`: only with one rank."""
    resumed, passing, alone = True, False, False

    def __init__(self, bench, chance, run, ranks, number):
        self.bench, self.chance, self.run, self.ranks, self.number, self.what = bench, chance, run, ranks, number, ""
        self.reference = bench.reference(ranks)
        self.environment, self.overrides, self.after = None, (), None
        self.make()

    def make(self):
        raise NotImplementedError

    def copy(self):
        shutil.copytree(self.reference.base, self.run, symlinks=True)

    def undo(self):
        self.environment, self.overrides = None, ()

    def disturbed_rank(self):
        return None if self.ranks == 1 else self.chance.randrange(self.ranks)

    def on_rank(self, rank):
        return "" if rank is None else f" on rank {rank}"


class Files(Case):
    """One file was changed, removed or replaced."""

    def make(self):
        self.copy()
        chance = self.chance
        # Choose important files as often as the small ones.
        group = chance.choice(("tokens/", "steps.jsonl", "steps.jsonl", "run.h5", "manifest", "rank-", "latest", "run.id", "deck", "log"))
        self.path = chance.choice([path for path in files_of(self.run) if group in path])
        self.whole = data = get(self.path)
        how = chance.choice(("flip", "flip", "flip", "flip", "cut", "grow", "zeros", "swap", "gone", "kind", "other", "burst"))
        at = chance.randrange(len(data) or 1)
        self.what = f"{how} {os.path.relpath(self.path, self.run)} at {at} of {len(data)}"
        if how in ("gone", "kind"):
            os.remove(self.path)
        if how == "kind":
            self.put_other_kind()
        elif how != "gone":
            put(self.path, self.changed(how, data, at))

    def changed(self, how, data, at):
        chance = self.chance
        if how == "flip" and data:
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1:]
        if how == "cut":
            return data[:chance.choice((0, 1, at, len(data) - 1))]
        if how == "grow":
            return data + chance.randbytes(chance.choice((1, 512, 70000)))
        if how in ("zeros", "burst"):
            length = chance.choice((8, 64, 512, 4096))
            piece = bytes(length) if how == "zeros" else chance.randbytes(length)
            return (data[:at] + piece + data[at + length:])[:len(data)]
        if how == "swap":
            return get(chance.choice(files_of(self.run)))
        if how == "other":
            return chance.choice((b"", b"notes\n", chance.randbytes(3000), b"\x89HDF\r\n\x1a\n" + bytes(600)))
        return data

    def put_other_kind(self):
        kind = self.chance.choice(("fifo", "folder", "socket", "dangling", "loop", "full", "null"))
        self.what += f" {kind}"
        if kind == "fifo":
            os.mkfifo(self.path)
        elif kind == "folder":
            os.mkdir(self.path)
        elif kind == "socket":
            folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(f"/proc/self/fd/{folder}/{os.path.basename(self.path)}")
            os.close(folder)
        else:
            os.symlink({"dangling": "nowhere", "loop": os.path.basename(self.path), "full": "/dev/full", "null": "/dev/null"}[kind],
                       self.path)

    def undo(self):
        super().undo()
        if os.path.isdir(self.path) and not os.path.islink(self.path):
            os.rmdir(self.path)
        elif os.path.lexists(self.path):
            os.remove(self.path)
        put(self.path, self.whole)


class Hdf5(Case):
    """A valid HDF5 file with wrong contents."""

    def make(self):
        self.copy()
        chance = self.chance
        folder = f"checkpoints/step-{STEPS:08d}"
        name = chance.choice(("run.h5", "run.h5", f"{folder}/manifest.h5", f"{folder}/rank-{chance.randrange(self.ranks):05d}.h5"))
        self.path = os.path.join(self.run, name)
        self.victim = os.path.join(self.run, "victim.h5")
        shutil.copy(self.path, self.victim)
        self.kept = {path: get(path) for path in files_of(self.run)}
        os.mkfifo(os.path.join(self.run, "fifo"))
        with h5py.File(self.path, "r+") as file:
            nodes = []
            file.visit(nodes.append)
            node = chance.choice(nodes)
            how = chance.choice(("external link", "soft link", "external storage", "virtual", "delete", "resize", "type", "loop", "text"))
            self.what = f"{how} {node} of {name}"
            if how == "resize" and isinstance(file[node], h5py.Dataset) and file[node].maxshape == (None,):
                file[node].resize((chance.choice((0, 1, file[node].shape[0] + 5, 1 << 40)),))
            else:
                del file[node]
                self.put_node(file, node, how)
        if name.endswith("manifest.h5"):  # with a matching checksum
            put(self.path[:-2] + "xxh64", f"{xxh64(get(self.path)):016x}  manifest.h5\n".encode())

    def put_node(self, file, node, how):
        chance = self.chance
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

    def undo(self):
        super().undo()
        if get(self.victim) != self.kept[self.victim]:
            self.what += " AND CHANGED ITS VICTIM"
        for path, data in self.kept.items():
            put(path, data)


class Calls(Case):
    """One call fails, or all calls from there on."""
    passing = True

    def make(self):
        chance = self.chance
        rank, mode = self.disturbed_rank(), "resume" if chance.random() < 0.6 else "fresh"
        counts = self.reference.calls[rank or 0, mode]
        call = chance.choice([call for call in ERRORS if counts[call] > 0])
        number = chance.choice(ERRORS[call])
        lasts = 0 if number in LASTING or number not in (-1, errno.EINTR) and chance.random() < 0.2 else 1
        self.fail(mode, call, chance.randrange(counts[call]) + 1, number, lasts, rank)

    def fail(self, mode, call, at, number, lasts, rank=None):
        self.resumed = mode == "resume"
        if self.resumed:
            self.copy()
        self.environment = self.bench.failing(self.run, call, at, number, lasts, rank)
        self.what = (f"{mode}: {call} {at} of {self.reference.calls[rank or 0, mode][call]} fails with "
                     f"{errno.errorcode.get(number, 'a half')}{'' if lasts else ' from there on'}{self.on_rank(rank)}")


class Sweep(Calls):
    """Every call of the given kinds in turn, with each of its possible errors."""
    plan, ranks = [], 1

    @classmethod
    def over(cls, reference, calls):
        cls.ranks = reference.ranks
        cls.plan = [(mode, call, at + 1, number, 0 if number in LASTING else 1, rank if reference.ranks > 1 else None)
                    for rank in range(reference.ranks) for mode in ("resume", "fresh") for call in calls
                    for at in range(reference.calls[rank, mode][call]) for number in ERRORS[call]]

    def make(self):
        self.fail(*self.plan[self.number])


class Modes(Case):
    """A file or directory without permission to read, write or enter, even for root."""
    passing = True

    def make(self):
        self.copy()
        chance = self.chance
        self.path = chance.choice(chance.choice((files_of(self.run), files_of(self.run), folders_of(self.run))))
        self.mode = os.stat(self.path).st_mode & 0o777
        mode = chance.choice((0, 0o444, 0o222) if os.path.isfile(self.path) else (0, 0o555, 0o333, 0o666))
        os.chmod(self.path, mode)
        rank = self.disturbed_rank()
        self.environment = {"LD_PRELOAD": self.bench.library, "FAIL_MODES": "1"}
        if rank is not None:
            self.environment["FAIL_RANK"] = str(rank)
        self.what = f"mode {mode:o} of {os.path.relpath(self.path, self.run)}{self.on_rank(rank)}"

    def undo(self):
        super().undo()
        if os.path.lexists(self.path):  # the run may have removed an older record or checkpoint
            os.chmod(self.path, self.mode)


class Limits(Case):
    """Resource limits that apply after MPI has started, because MPI's own behaviour is not under test."""
    passing = True

    def make(self):
        chance = self.chance
        self.resumed = chance.random() < 0.7
        if self.resumed:
            self.copy()
        which, value = chance.choice((("RLIMIT_AS", chance.randrange(1 << chance.randrange(16, 28))), ("RLIMIT_NOFILE", chance.randrange(6, 60)),
                                      ("RLIMIT_FSIZE", chance.randrange(1, 1 << chance.randrange(8, 22)))))
        rank = self.disturbed_rank()
        self.environment = {"LD_PRELOAD": self.bench.library, "FAIL_RUN": self.run, "FAIL_LIMIT": f"{getattr(resource, which)}:{value}"}
        if rank is not None:
            self.environment["FAIL_RANK"] = str(rank)
        self.what = f"{'resume' if self.resumed else 'fresh'}: {which} {value}{self.on_rank(rank)}"


class Signals(Case):
    """A signal to stop at a random moment: while reading, evaluating, between steps, saving or measuring."""
    passing, alone = True, True
    STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2)

    def make(self):
        self.resumed = self.chance.random() < 0.7
        if self.resumed:
            self.copy()
        self.after = (self.chance.uniform(0.05, 0.6), self.chance.choice(self.STOPS))
        self.what = f"{'resume' if self.resumed else 'fresh'}: {self.after[1].name} after {self.after[0]:.3f} s"

    def undo(self):
        self.after = None

    def stopped(self, outcome):
        """The run saved a checkpoint or had not begun, or the signal ended it before it installed its handlers."""
        return outcome.code == 75 or (outcome.code == -self.after[1] and not outcome.out)


class Decks(Case):
    """Values that make no sense."""
    alone = True
    keys = []
    VALUES = ("", "0", "-1", "1e308", "-1e308", "1e-320", ".nan", ".inf", "99999999999999999999", "9223372036854775807", "[]", "[[]]", "{}",
              "~", "true", "'a\\0b'", '"a\\0b"', "*x", "&x 1", "!!int 1", "1_000", "0x10", "010", "x" * 5000, "[" * 600, "\u2028", "\x7f",
              "../../../..", "/dev/null", "/proc/self/mem", "auto", "none", "2.5", "1e3")

    def make(self):
        self.copy()
        key, value = self.chance.choice(self.keys), self.chance.choice(self.VALUES)
        self.overrides = (f"{key}={value}",)
        self.what = f"{key}={value[:30]!r}"


class Foreign(Case):
    """Files and folders of others in every directory that a run writes to. None of them may change."""
    passing = True
    NAMES = ("notes.txt", "thesis.tmp.d", "results.tmp", "{step}.tmp_copy", "{step}.tmp.mine", "{step}.bak", "my-{step}.tmp", "step-7.tmp",
             "latest.tmp.saved", "lock.old", "run.h5.attempt-1", "run.h5.backup", "run.id.bak", "run.h5.attempt-1.journal",
             "x.part", "{cache}.part", "{cache}.node7-x.part", "{cache}.copy", ".nfs0001", "steps.csv", "events")

    def make(self):
        self.copy()
        chance = self.chance
        cache = os.path.basename(next(path for path in files_of(self.run) if path.endswith(".bin")))
        self.theirs = {}
        for _ in range(chance.randrange(1, 6)):
            folder = chance.choice((self.run, os.path.join(self.run, "checkpoints"), os.path.join(self.run, "tokens")))
            path = os.path.join(folder, chance.choice(self.NAMES).format(step=f"step-{chance.randrange(40):08d}", cache=cache))
            if not os.path.lexists(path):
                if chance.random() < 0.5:
                    os.makedirs(path)
                    path = os.path.join(path, "chapter1")
                self.theirs[path] = chance.randbytes(100)
                put(path, self.theirs[path])
        self.what = f"files of others: {[os.path.relpath(path, self.run) for path in self.theirs]}"

    def changed(self):
        return any(not os.path.isfile(path) or get(path) != data for path, data in self.theirs.items())


class Purge(Case):
    """Files that a purge by age or an unmounted file system removes and that come back later."""
    passing = True

    def make(self):
        self.copy()
        self.away = self.run + ".away"
        os.mkdir(self.away)
        checkpoints = os.path.join(self.run, "checkpoints")
        steps = [os.path.join(checkpoints, name) for name in os.listdir(checkpoints) if name.startswith("step-")]
        rest = [os.path.join(self.run, name) for name in ("run.id", "log.txt", "deck.resolved.yaml", "tokens")]
        self.taken = self.chance.choice(([checkpoints], steps, [*steps, *rest], [checkpoints, *rest],
                                         self.chance.sample(rest, 2)))
        self.needed = checkpoints in self.taken or steps[0] in self.taken
        for number, path in enumerate(self.taken):
            os.rename(path, os.path.join(self.away, str(number)))
        self.dangling = self.taken[0] == checkpoints and self.chance.random() < 0.5
        if self.dangling:
            os.symlink(os.path.join(self.run, "unmounted"), checkpoints)
        self.what = f"away: {[os.path.relpath(path, self.run) for path in self.taken]}{', a dangling link' if self.dangling else ''}"

    def undo(self):
        super().undo()
        if self.dangling:
            os.remove(self.taken[0])
        for number, path in enumerate(self.taken):
            if not os.path.lexists(path):
                os.rename(os.path.join(self.away, str(number)), path)
        shutil.rmtree(self.away)


KINDS = {"signals": Signals, "files": Files, "hdf5": Hdf5, "calls": Calls, "modes": Modes, "limits": Limits, "decks": Decks, "foreign": Foreign, "purge": Purge}
SHARES = {"signals": 8, "files": 36, "calls": 28, "hdf5": 10, "modes": 10, "limits": 8, "decks": 8, "foreign": 6, "purge": 4}
