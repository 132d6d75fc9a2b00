# SPDX-License-Identifier: Apache-2.0
"""Runs the executable as a user would, with a deck that takes seconds.

TRIREME names the executable, TRIREME_MPIRUN the launcher, and TRIREME_MPIRUN_FLAGS its options, of which -n is the last. CMake sets them.
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import h5py

TRIREME = os.environ["TRIREME"]
MPIRUN = os.environ["TRIREME_MPIRUN"]
FLAGS = os.environ["TRIREME_MPIRUN_FLAGS"].split()
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # the launcher sets one of these
HERE = os.path.dirname(os.path.abspath(__file__))
DECK = os.path.join(HERE, "tiny.yaml")
TIMEOUT_S = 300  # for hangs; large enough for any machine


# A signal that the launcher forwards and that lets ranks save and end, and the launcher's possible exit codes (docs/guide/stopping.md).
VERSION = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
HYDRA = "HYDRA" in VERSION or "Intel(R) MPI" in VERSION
STOP_SIGNAL, STOPPED = (signal.SIGTERM, (0, 75)) if HYDRA else (signal.SIGUSR2, (75,))
# When a rank has failed, Open MPI's launcher gives the others two seconds to end, even if there are none.
NONE_TO_WAIT_FOR = {"OMPI_MCA_odls_base_sigkill_timeout": "0"}


def has_ulfm():
    """Whether the other ranks of this MPI can continue when one is lost."""
    if re.search(r"Open MPI\)? [5-9]\.", VERSION) is None:
        return False
    info = subprocess.run(["ompi_info"], capture_output=True, text=True, check=False).stdout
    return "FT MPI support: yes" in info


def is_root():
    return os.geteuid() == 0


class Run:
    """Exit code and output of one start of the executable."""

    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    @property
    def errors(self):
        """Lines that report an error, without those of the launcher."""
        return [line for line in self.err.splitlines() if "error: " in line]

    def __str__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}--- stderr\n{self.err}"


def launch(ranks):
    return [MPIRUN, *FLAGS, str(ranks), TRIREME]


def is_rank(environment, rank):
    """Whether `environment`, the bytes of /proc/PID/environ, belongs to this rank."""
    told = environment.split(b"\0")
    return any(f"{name}={rank}".encode() in told for name in RANK_VARIABLES)


def processes(directory):
    """Process ids of the ranks of the run in this directory."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # the process has ended
            continue
        if os.path.basename(words[0]) == b"trireme" and f"run.directory={directory}".encode() in words:
            found.append(int(path.split("/")[2]))
    return found


def rank_in_shell():
    """A shell expression for the number of the rank."""
    return "".join(f"${{{name}:-" for name in RANK_VARIABLES) + "}" * len(RANK_VARIABLES)


def start(*arguments, ranks=1, prefix=()):
    """Runs the executable. `prefix` is put before the launcher, for example ("unshare", "-m")."""
    return Run(subprocess.run([*prefix, *launch(ranks), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=TIMEOUT_S, check=False, env={**os.environ, **(NONE_TO_WAIT_FOR if ranks == 1 else {})}))


def process_of_rank(rank, directory):
    """The process that runs the executable as this rank on this run directory."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                told = file.read()
            with open(path[: -len("environ")] + "cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:  # the process has ended, or is a kernel thread
            continue
        if (is_rank(told, rank) and words[0] == TRIREME.encode()
                and f"run.directory={directory}".encode() in words):
            return int(path.split("/")[2])
    raise AssertionError(f"no process of rank {rank}")


class TrainingTest(unittest.TestCase):
    """Provides a temporary folder with some text, and runs of the tiny deck that use both."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.text = os.path.join(self.folder, "text")
        os.mkdir(self.text)
        with open(os.path.join(self.text, "a.txt"), "w", encoding="ascii") as out:
            for line in range(400):
                out.write(f"{line}: the quick brown fox jumps over {line * 7 % 31} lazy dogs\n")

    def need_own_mounts(self):
        """Skips the test if the process may not create a mount namespace."""
        if not is_root() or shutil.which("unshare") is None:
            self.skipTest("mounts of its own need root and unshare")
        namespace = subprocess.run(["unshare", "-m", "true"], stderr=subprocess.PIPE, text=True, check=False)
        if namespace.returncode != 0:  # for example, in a chroot that is not a mount point
            self.skipTest(f"mounts of its own need a mount namespace: {namespace.stderr.strip()}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def words(self, name, overrides):
        return [DECK, f"run.directory={self.path(name)}", f"data.train.text=[{self.text}]", *overrides]

    def train(self, *overrides, ranks=1, name="run", prefix=()):
        return start(*self.words(name, overrides), ranks=ranks, prefix=prefix)

    def popen(self, *overrides, ranks=1, name="run"):
        """Starts a run that the test interacts with."""
        running = subprocess.Popen([*launch(ranks), *self.words(name, overrides)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.kill)
        return running

    def wait_for_line(self, running, part):
        for line in running.stdout:
            if part in line:
                return
        self.fail(f"'{part}' was never said: {running.stderr.read()}")

    def train_well(self, *overrides, **keywords):
        run = self.train(*overrides, **keywords)
        self.assertEqual(run.code, 0, run)
        return run

    def column(self, name, column, run="run"):
        with h5py.File(os.path.join(self.path(run), "run.h5"), "r") as file:
            return list(file[column][name][:])

    def losses(self, run="run"):
        return self.column("loss", "steps", run)

    def weights(self, step, run="run"):
        """Maps the name of every parameter in a checkpoint to its bytes."""
        manifest = os.path.join(self.path(run), "checkpoints", f"step-{step:08d}", "manifest.h5")
        found = {}
        with h5py.File(manifest, "r") as file:
            for state, group in file["tensors"].items():
                group.visititems(lambda name, node, state=state: found.update({f"{state}/{name}": node[:].tobytes()})
                                 if isinstance(node, h5py.Dataset) else None)
        self.assertTrue(found)
        return found

    def assert_refused(self, run, code, *parts):
        """The run ended with the code and one error line that contains the parts, and neither aborted nor printed a stack trace."""
        self.assertEqual(run.code, code, run)
        self.assertEqual(len(run.errors), 1, run)
        for part in parts:
            self.assertIn(part, run.errors[0], run)
        self.assertNotIn("terminate called", run.err)
        self.assertNotIn("Signal", run.err)
        self.assertNotIn("Stopped before", run.err)
