#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the items of tests/gpu_items.py on a GPU and keeps their results and logs as they come.

Stages: `first` answers whether training runs, whether it is right and how fast it is, in about seven minutes. `second` measures kernels,
larger models and ranks that share the GPU. `all` runs every item. ITEM is a name or a pattern, as in 'train-*'.

In the folder --out: results.txt (verdicts), speed.txt, log.txt (all output), ops.json and ncu.csv.
OPTIONS="section.key=value ..." in the environment is added to every training run.

Exit codes: 0 all items passed; 1 some failed; 3 nothing can run (a library is missing, say); 75 no time was left for some; 77 no GPU.
"""
import argparse
import collections
import fnmatch
import glob
import os
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import gpu_items
from gpu_items import Failure, Place, Skip

HERE = os.path.dirname(os.path.abspath(__file__))
GRACE_S = 3  # between SIGTERM and SIGKILL
LEAST_S = 5  # an item with less time than this does not start
LOG_BYTES = 14 << 20
ITEM_BYTES = 1 << 20  # of an item's output in log.txt; its end is always there
MARK = "TRIREME_GPU_ITEM"


class Interrupted(Exception):
    """A signal ended the session."""


# ---- Processes


def marked(mark, session_id):
    """Processes of an item: those in its process session, and those with its mark in their environment (such as ranks)."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            with open(f"{path}/environ", "rb") as file:
                belongs = int(fields[3]) == session_id or mark.encode() in file.read().split(b"\0")
        except OSError:
            continue
        if belongs and fields[0] != b"Z":
            found.append(int(path.removeprefix("/proc/")))
    return found


def send(processes, number):
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass


class Running:
    """The process of an item, in a separate process session, and the thread that copies its output to the logs."""

    def __init__(self, session, item, words, limit):
        self.item, self.limit, self.began, self.took, self.reason = item, limit, time.monotonic(), 0.0, ""
        self.mark = f"{MARK}={os.getpid()}-{item.name}"
        # A separate temporary folder: Open MPI processes that start and end at the same time would share one.
        temporary = tempfile.mkdtemp(prefix="t", dir=session.scratch)
        environment = {**session.environment, **item.environment, "TMPDIR": temporary, MARK: self.mark.partition("=")[2]}
        session.log(item.name, "$ " + " ".join(words) + "\n")
        self.process = subprocess.Popen(words, cwd=session.place.root, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        self.reader = threading.Thread(target=self.copy_output, args=(session,), daemon=True)
        self.reader.start()

    def copy_output(self, session):
        written, left_out = 0, collections.deque(maxlen=100)
        with open(session.output_of(self.item.name), "w", encoding="utf-8") as file:
            for raw in self.process.stdout:
                line = raw.decode(errors="replace")
                file.write(line)
                file.flush()
                written += len(line)
                if written <= ITEM_BYTES:
                    session.log(self.item.name, line)
                else:
                    left_out.append(line)
        for line in left_out:
            session.log(self.item.name, line)

    def seconds(self):
        return time.monotonic() - self.began

    def is_over(self):
        if self.process.poll() is None and self.seconds() < self.limit:
            return False
        self.took = self.seconds()
        if self.process.poll() is None:
            self.reason = f"no end within {self.limit:.0f} s"
        self.end()
        if not self.reason and self.process.returncode != 0:
            self.reason = f"exit {self.process.returncode}"
        return True

    def end(self):
        """Ends all remaining processes of the item."""
        until = time.monotonic() + GRACE_S
        send(marked(self.mark, self.process.pid), signal.SIGTERM)
        while left := marked(self.mark, self.process.pid):
            if time.monotonic() > until:
                send(left, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.02)
        self.process.wait()
        self.reader.join(5)


# ---- The session


class Session:
    """State shared by the items: places, options that work, results."""

    def __init__(self, arguments, place, scratch):
        self.place, self.scratch, self.out, self.tiny = place, scratch, arguments.out, arguments.tiny
        self.began, self.minutes, self.limit = arguments.began, arguments.minutes, arguments.limit
        self.options = os.environ.get("OPTIONS", "").split()
        self.cannot_train, self.rates, self.counts, self.no_time, self.running = set(), {}, collections.Counter(), [], []
        self.verdicts, self.lock, self.logged = {}, threading.Lock(), 0
        self.environment = environment_of_items(scratch)
        os.makedirs(os.path.join(scratch, "output"), exist_ok=True)

    def output_of(self, name):
        return os.path.join(self.scratch, "output", name)

    def append(self, name, text):
        with self.lock, open(os.path.join(self.out, name), "a", encoding="utf-8") as file:
            file.write(text)

    def log(self, name, line):
        self.logged += len(line)
        if self.logged < LOG_BYTES:
            self.append("log.txt", f"[{name}] {line.rstrip()}\n")

    def say(self, text):
        print(text, flush=True)
        self.append("results.txt", text + "\n")

    def add_speed(self, text):
        self.append("speed.txt", text + "\n")
        self.say(f"       {text}")

    def verdict(self, item, word, remark="", tail=0):
        """Records a verdict, with the last `tail` lines of the item's output."""
        self.counts[word] += 1
        self.verdicts[item.name] = word
        self.say(f"{time.monotonic() - self.began:4.0f} s  {item.name:<32} {word:<8} {remark}".rstrip())
        for line in gpu_items.last_lines(gpu_items.read(self, item.name), tail) if tail else []:
            self.say(f"        | {line[:300]}")

    def seconds_left(self):
        return self.minutes * 60 - (time.monotonic() - self.began) if self.minutes else float("inf")

    def ask(self, words):
        """The output of a short command."""
        done = subprocess.run(words, cwd=self.place.root, env=self.environment, capture_output=True, text=True, errors="replace", timeout=30,
                              check=False)
        return done.stdout + done.stderr

    # -- Running items

    def start(self, item):
        """Starts an item. Returns None after recording a verdict if it cannot start."""
        if item.trains in self.cannot_train or (item.trains and "quickstart" in self.cannot_train):
            self.verdict(item, "skipped", "training does not run")
        elif self.seconds_left() < LEAST_S:
            self.no_time.append(item.name)
            self.verdict(item, "no time")
        else:
            try:
                return Running(self, item, item.words(self), min(self.limit or item.limit, self.seconds_left()))
            except (Skip, OSError) as problem:
                self.verdict(item, "skipped" if isinstance(problem, Skip) else "FAILED", str(problem))
        return None

    def run(self, items):
        """Runs as many items in parallel as there are cores. An item is judged after those that it is compared with."""
        waiting, ended = list(items), []
        cores = len(os.sched_getaffinity(0))
        while waiting or self.running or ended:
            while waiting and len(self.running) < cores:
                if begun := self.start(waiting.pop(0)):
                    self.running.append(begun)
            for running in [running for running in self.running if running.is_over()]:
                self.running.remove(running)
                ended.append(running)
            later = {item.name for item in waiting} | {running.item.name for running in self.running + ended}
            for running in [running for running in ended if later.isdisjoint(running.item.needs)]:
                ended.remove(running)
                self.judge(running)
            time.sleep(0.02)

    def judge(self, running):
        item, took = running.item, f"{running.took:.1f} s"
        said = gpu_items.read(self, item.name)
        unknown = [key for key in item.keys.split() if re.search(rf"{re.escape(key.partition('=')[0])}: unknown key", said)]
        if running.reason == "exit 77" or unknown:
            lines = said.strip().splitlines() or [""]
            self.verdict(item, "skipped", f"this build has no key {unknown[0].partition('=')[0]}" if unknown else lines[-1])
        elif running.reason:
            self.verdict(item, "FAILED", f"{took}  {running.reason}", 12)
        else:
            try:
                remark = item.check(self, item) if item.check else ""
                self.verdict(item, "passed", f"{took}  {remark}")
            except (Failure, subprocess.TimeoutExpired) as failure:
                self.verdict(item, "FAILED", f"{took}  {failure}")

    def passed(self, item):
        self.run([item])
        return self.verdicts[item.name] == "passed"

    def climb(self, failed, deck):
        """Searches for deck keys with which training runs, after an item failed without them."""
        with_fp32 = False
        for rung, keys in gpu_items.RUNGS:
            if self.passed(gpu_items.attempt(failed, rung, keys)):
                if rung != "fp32":
                    return self.adopt(keys)
                with_fp32 = True
            if self.seconds_left() < LEAST_S:
                return None
        if with_fp32:
            return self.adopt("run.precision=fp32")
        self.cannot_train.add(deck)
        return self.say(f"        {deck} does not train with any of these keys: items that train it are left out")

    def adopt(self, keys):
        self.options += keys.split()
        self.say(f"        all later runs have {keys}" if keys else "        it passed the second time: later runs are as usual")


def environment_of_items(scratch):
    folders = [folder for packages in site.getsitepackages() for folder in sorted(glob.glob(packages + "/nvidia/*/lib"))]
    defaults = {"CUDA_LIBRARIES": ":".join(folders), "OMPI_MCA_btl": "self,vader",
                "OMPI_MCA_oob_tcp_if_include": "lo", "HWLOC_COMPONENTS": "-gl", "GTEST_COLOR": "no", "PYTHONUNBUFFERED": "1",
                "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor", "TRITON_CACHE_DIR": f"{scratch}/triton"}
    if os.geteuid() == 0:  # normal in containers; Open MPI wants two confirmations
        defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**defaults, **os.environ}


def facts(session):
    query = "name,memory.total,driver_version,clocks.sm,clocks.max.sm,power.limit"
    session.say(f"# {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}  {' '.join(sys.argv[1:])}")
    for words in (["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], ["ldd", "--version"], ["nproc"]):
        try:
            told = session.ask(words).splitlines() or [""]
        except (OSError, subprocess.TimeoutExpired) as problem:
            told = [str(problem)]
        session.say(f"# {words[0]}: {told[0]}")


# ---- The command line


def groups(items):
    """Consecutive items that may run in parallel form a list; every other item is in a list alone."""
    found = []
    for item in items:
        if item.together and found and found[-1][0].together:
            found[-1].append(item)
        else:
            found.append([item])
    return found


def chosen(stage, patterns):
    """The items of a stage that match the patterns, and those that they are compared with. The first two always run."""
    table = gpu_items.table()
    names = {item.name for item in table if (stage == "all" or stage in item.stages.split()) and
             (not patterns or any(fnmatch.fnmatch(item.name, pattern) for pattern in patterns))}
    if not names:
        sys.exit(f"error: no item of the stage {stage} is called {' '.join(patterns)}; --list prints the names")
    for item in reversed(table):
        if item.name in names:
            names.update(item.needs)
    return table[:2] + [item for item in table[2:] if item.name in names]


def find_place(arguments, scratch):
    """A build tree (--tree), a bundle to unpack (--bundle), the unpacked bundle that this script is in, a bundle next to it, or build/."""
    root = os.path.dirname(HERE)
    if arguments.tree:
        return Place(root, os.path.abspath(arguments.tree))
    if arguments.bundle is None and os.path.exists(os.path.join(root, "run.sh")):
        return Place(root, None)
    archive = arguments.bundle or os.path.join(HERE, "trireme-bundle.tar.xz")
    if os.path.exists(archive):
        with tarfile.open(archive) as packed:
            packed.extractall(scratch)
        return Place(os.path.join(scratch, "trireme-bundle"), None)
    if arguments.bundle is None and os.path.exists(os.path.join(root, "build", "trireme")):
        return Place(root, os.path.join(root, "build"))
    raise OSError("no program was found: build it (PRESET=cuda bash jobs/build.sh), or give --tree or --bundle")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", default="all", choices=("first", "second", "all"))
    parser.add_argument("items", nargs="*", metavar="ITEM", help="a name or a pattern; default: all items of the stage")
    parser.add_argument("--minutes", type=float, default=0, metavar="M", help="end after this time; default: no limit")
    parser.add_argument("--limit", type=float, default=0, metavar="SECONDS", help="of every item, in place of those of the table")
    parser.add_argument("--out", default=os.environ.get("OUT", "runs/gpu-session"), metavar="DIR", help="default: $OUT, else runs/gpu-session")
    parser.add_argument("--tree", metavar="DIR", help="a build tree; default: a bundle where this script is in one, else build/")
    parser.add_argument("--bundle", metavar="FILE", help="a bundle to unpack and use")
    parser.add_argument("--tiny", action="store_true", help="models of seconds, for a rehearsal on an emulated GPU")
    parser.add_argument("--list", action="store_true", help="print the items of the stage and exit")
    parser.add_argument("--executables", action="store_true", help="print the test executables that items run, and exit")
    arguments = parser.parse_intermixed_args()
    arguments.out, arguments.began = os.path.abspath(arguments.out), time.monotonic()
    return arguments


def interrupt(number, _):
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def session_of(arguments, items, scratch):
    """Runs the session and returns its exit code."""
    os.makedirs(arguments.out, exist_ok=True)
    try:
        session = Session(arguments, find_place(arguments, scratch), scratch)
    except (OSError, tarfile.TarError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 3
    try:
        facts(session)
        if not session.passed(items[0]):
            if session.no_time:
                return summary(session)
            session.say("# nothing can run: see the reason above")
            return 3
        for line in gpu_items.read(session, items[0].name).splitlines():
            session.say(f"# {line}")
        if not session.passed(items[1]):
            errors = [line for line in gpu_items.read(session, items[1].name).splitlines() if "error: " in line]
            if errors and all("find a GPU on " in line for line in errors):
                session.say("# there is no GPU: see the reason above")
                return 77
            session.climb("smoke", "quickstart")
        for group in groups(items[2:]):
            session.run(group)
            if group[0].name == "gpt2-124m" and session.verdicts["gpt2-124m"] == "FAILED" and session.seconds_left() > LEAST_S:
                session.climb("gpt2-124m", "gpt2")
        return summary(session)
    except Interrupted as signalled:
        session.say(f"# interrupted by signal {signalled}; running were: {' '.join(r.item.name for r in session.running) or 'none'}")
        return 128 + signalled.args[0]
    finally:
        for running in session.running:
            running.end()


def summary(session):
    counts = session.counts
    session.say(f"# end after {time.monotonic() - session.began:.0f} s: {counts['passed']} passed, {counts['FAILED']} failed, "
                f"{counts['skipped']} skipped, {counts['no time']} without time" + ": " * bool(session.no_time) + " ".join(session.no_time))
    return 1 if counts["FAILED"] else 75 if session.no_time else 0


def main():
    arguments = parse()
    items = chosen(arguments.stage, arguments.items)
    if arguments.list or arguments.executables:
        names = sorted({item.executable for item in items} - {""}) if arguments.executables else [item.name for item in items]
        print("\n".join(names))
        return 0
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, interrupt)
    scratch = tempfile.mkdtemp(prefix="gpu-")
    try:
        return session_of(arguments, items, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
