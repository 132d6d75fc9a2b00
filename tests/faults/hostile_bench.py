# SPDX-License-Identifier: Apache-2.0
"""Runs the executable for mutate.py, and provides the undisturbed runs that it compares with.

A start without mpirun takes 0.3 s, most of it waiting. Open MPI is told to start no daemon and to use no network, since neither is under
test. So more starts than cores run in parallel. Most run directories are in memory (/dev/shm); every fourth is on the disk, where
direct writes are possible.
"""
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import h5py

import fail_call

HERE = os.path.dirname(os.path.abspath(__file__))
INTEGRATION = os.path.join(HERE, os.pardir, "integration")
DECK = os.path.join(INTEGRATION, "tiny.yaml")
TRIREME = os.path.abspath(os.environ.get("TRIREME", "build/trireme"))
LAUNCHER = [os.environ.get("TRIREME_MPIRUN", "mpirun"), *os.environ.get("TRIREME_MPIRUN_FLAGS", "--oversubscribe --bind-to none -n").split()]
LIMIT_S = float(os.environ.get("TRIREME_MUTATE_LIMIT", "60"))
STEPS, MORE = 12, 14
ALONE = {"OMPI_MCA_ess_singleton_isolated": "1", "OMPI_MCA_btl": "self", "OMPI_MCA_pml": "ob1"}
TOGETHER = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}
# Only allocations of at least this many bytes may fail: HDF5 1.10.8 crashes if smaller ones do (docs/portability.md).
LARGE = 1 << 20
MEMORY = "/dev/shm"


def xxh64(data):
    os.environ.update(TRIREME=TRIREME, TRIREME_MPIRUN=LAUNCHER[0], TRIREME_MPIRUN_FLAGS=" ".join(LAUNCHER[1:]))
    sys.path.insert(0, INTEGRATION)
    from mistakes_test import xxh64 as of  # pylint: disable=import-outside-toplevel
    return of(data)


class Outcome:
    """Exit code and output of one start."""

    def __init__(self, code, out, err, hung):
        self.code, self.out, self.err, self.hung = code, out, err, hung

    @property
    def crashed(self):
        return self.code is not None and (self.code < 0 or self.code >= 128 or self.code == 4) or any(
            word in self.err for word in ("terminate called", "Process received signal", "stack smashing", "double free", "exited on signal"))

    @property
    def reported(self):
        return self.code in (2, 3, 75) and "error: " in self.err

    @property
    def errors(self):
        return "\n".join(line for line in self.err.splitlines() if "error: " in line)

    def __str__(self):
        return f"exit {self.code}{' (no end)' if self.hung else ''}\n--- stdout\n{self.out}--- stderr\n{self.err}"


def numbers_of(run):
    """Hashes of the weights at the end of the run."""
    found = {}
    with h5py.File(os.path.join(run, f"checkpoints/step-{MORE:08d}/manifest.h5"), "r") as file:
        file["tensors"].visititems(lambda name, node: found.update({name: int(node.attrs["content_hash"])})
                                   if isinstance(node, h5py.Dataset) else None)
    return found


def rows_of(run):
    """The part of the record that is the same in every run."""
    with h5py.File(os.path.join(run, "run.h5"), "r") as file:
        same = {name: file["steps"][name][:].tolist() for name in ("step", "loss", "grad_norm", "learning_rate", "tokens")}
        same["validation"] = [file["validation/step"][:].tolist(), file["validation/loss"][:].tolist()]
        return same


def old_columns(run):
    """All columns of the steps before the resume."""
    with h5py.File(os.path.join(run, "run.h5"), "r") as file:
        return {name: file["steps"][name][:STEPS].tobytes() for name in file["steps"]}


class Reference:
    """The undisturbed runs with one number of ranks. `calls[rank, mode]` counts how often each system call is made."""

    def __init__(self, bench, ranks):
        self.ranks, self.calls = ranks, {}
        self.base = bench.path(f"base-{ranks}")
        self.need(bench.start(self.base, STEPS, "record.spans=true", ranks=ranks))
        self.old = old_columns(self.base)
        for rank in range(ranks):
            for mode in ("resume", "fresh"):
                run = bench.path(f"{mode}-{ranks}-{rank}")
                if mode == "resume":
                    shutil.copytree(self.base, run)
                report = run + ".calls"
                environment = bench.failing(run, rank=rank if ranks > 1 else None, report=report)
                self.need(bench.start(run, MORE, ranks=ranks, environment=environment))
                with open(report, encoding="ascii") as file:
                    self.calls[rank, mode] = {name: int(count) for name, count in map(str.split, file)}
                if (rank, mode) == (0, "resume"):
                    self.numbers, self.rows = numbers_of(run), rows_of(run)
                elif numbers_of(run) != self.numbers:
                    raise SystemExit("a resumed run differs from one in one piece: nothing can be judged")
                shutil.rmtree(run)

    @staticmethod
    def need(outcome):
        if outcome.code != 0:
            raise SystemExit(f"the undisturbed run failed: {outcome}")

    def has_numbers(self, run):
        try:
            return numbers_of(run) == self.numbers
        except (OSError, KeyError, ValueError):
            return False

    def has_rows(self, run):
        try:
            return rows_of(run) == self.rows
        except (OSError, KeyError, ValueError, RuntimeError):
            return False

    def has_old_rows(self, run):
        try:
            return old_columns(run) == self.old
        except (OSError, KeyError, ValueError, RuntimeError):
            return False


class Bench:
    """Starts runs, chooses their directories and lets their system calls fail."""

    def __init__(self, memory=MEMORY):
        self.on_disk = tempfile.TemporaryDirectory(prefix="trireme-mutate-", ignore_cleanup_errors=True)
        roomy = os.path.isdir(memory) and shutil.disk_usage(memory).free > 1 << 30
        self.in_memory = tempfile.TemporaryDirectory(prefix="trireme-mutate-", dir=memory, ignore_cleanup_errors=True) if roomy else self.on_disk
        self.text = self.path("text")
        os.mkdir(self.text)
        with open(os.path.join(self.text, "a.txt"), "w", encoding="ascii") as out:
            for line in range(400):
                out.write(f"{line}: the quick brown fox jumps over {line * 7 % 31} lazy dogs\n")
        self.library = fail_call.compile_into(self.in_memory.name)
        self.references = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.in_memory.cleanup()
        self.on_disk.cleanup()

    def path(self, name):
        return os.path.join(self.in_memory.name, name)

    def place_of(self, number):
        return os.path.join((self.on_disk if number % 4 == 3 else self.in_memory).name, f"case-{number}")

    def reference(self, ranks):
        if ranks not in self.references:
            self.references[ranks] = Reference(self, ranks)
        return self.references[ranks]

    def failing(self, run, call="", at=0, number=errno.EIO, lasts=1, rank=None, report=""):
        """Environment variables that let call number `at` fail. With 0, calls are only counted."""
        words = {"LD_PRELOAD": self.library, "FAIL_CALL": call, "FAIL_AT": str(at), "FAIL_FOR": str(lasts), "FAIL_ERRNO": str(number),
                 "FAIL_UNDER": run, "FAIL_BYTES": str(LARGE), "FAIL_REPORT": report, "FAIL_RUN": run}
        return words if rank is None else {**words, "FAIL_RANK": str(rank)}

    def words(self, run, steps, overrides):
        given = {word.partition("=")[0] for word in overrides}
        usual = {"run.directory": run, "run.steps": steps, "data.train.text": f"[{self.text}]", "optimizer.schedule.steps": STEPS,
                 "record.spans": "false", "checkpoint.keep": "0"}
        return [DECK, *(f"{key}={value}" for key, value in usual.items() if key not in given), *overrides]

    def start(self, run, steps, *overrides, ranks=1, environment=None, after=None):
        """`after` is a pair: seconds, and the signal that is sent then."""
        launcher = [] if ranks == 1 else [*LAUNCHER, str(ranks)]
        with (tempfile.TemporaryDirectory(prefix="mpi-", dir=self.in_memory.name, ignore_cleanup_errors=True) as session,
              subprocess.Popen([*launcher, TRIREME, *self.words(run, steps, overrides)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.in_memory.name, start_new_session=True,
                               env={**os.environ, "OMPI_MCA_orte_tmpdir_base": session, **(ALONE if ranks == 1 else TOGETHER),
                                    **(environment or {})}) as running):
            try:
                if after is not None:
                    try:
                        running.wait(after[0])
                    except subprocess.TimeoutExpired:
                        running.send_signal(after[1])
                out, err = running.communicate(timeout=LIMIT_S)
                return Outcome(running.returncode, out, err, False)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                out, err = running.communicate()
                return Outcome(None, out, err, True)
