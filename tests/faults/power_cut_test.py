# SPDX-License-Identifier: Apache-2.0
"""Cuts the power after every call that changes the disk, in the model of disk_model.py. Each time the run must resume from the newest
reported checkpoint, or a newer one, and end with the bits of the undisturbed run."""
import os
import re
import shutil
import subprocess
import sys
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor

import h5py

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "integration")]
from disk_model import MODES, STRACE, Disk  # noqa: E402
from harness import TIMEOUT_S, TRIREME, Run, TrainingTest, launch, start  # noqa: E402

# With a tree of two leaves, one rank computes the same bits as two.
RUN = ("checkpoint.keep=1", "parallel.reduction=tree", "parallel.logical_shards=2")
STEPS = 12


def write_tree(tree, path):
    os.mkdir(path)
    for name, content in tree.items():
        if isinstance(content, dict):
            write_tree(content, os.path.join(path, name))
        else:
            with open(os.path.join(path, name), "wb") as file:
                file.write(content)


def read_tree(path):
    found = {}
    for name in os.listdir(path):
        below = os.path.join(path, name)
        if os.path.isdir(below):
            found[name] = read_tree(below)
        else:
            with open(below, "rb") as file:
                found[name] = file.read()
    return found


class PowerCut(TrainingTest):
    def words_of(self, folder):
        return self.words(f"{folder}/run", RUN)

    def traced(self, name, ranks):
        """Runs below the folder `name` and returns the trace of its system calls."""
        if not shutil.which("strace"):
            self.skipTest("strace is not installed (bash modules/packages/setup.sh tests does it on Debian)")
        may = subprocess.run([*STRACE, "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
        if may.returncode != 0:
            self.skipTest(f"strace may not trace here: {may.stderr.strip()}")
        trace = self.path("trace")
        done = Run(subprocess.run([*STRACE, "-o", trace, *launch(ranks), *self.words_of(name)], stdin=subprocess.DEVNULL,
                                  timeout=TIMEOUT_S, capture_output=True, text=True, errors="replace", check=False))
        self.assertEqual(done.code, 0, done)
        return trace

    def cuts(self):
        """Distinct states of the disk: the last call before the cut, the mode, the last checkpoint reported by then, and the contents."""
        os.mkdir(self.path("calm"))
        trace = self.traced("calm", 2)
        disk = Disk(self.path("calm"))
        found = {}
        for call in disk.replay(trace):
            run = disk.top.names.get("run")
            log = run.names.get("log.txt") if run else None
            told = re.findall(rb"checkpoint \S*/step-(\d+)", log.data) if log else []
            for mode in MODES:
                tree = disk.top.tree(mode)
                found[repr(tree)] = call, mode, int(told[-1]) if told else 0, tree  # for equal states, keep the newest reported checkpoint
        self.assertEqual(disk.top.volatile(), read_tree(self.path("calm")), "the model of the disk is not what was there")
        return list(found.values())

    def resume(self, name, tree):
        write_tree(tree, self.path(name))
        return Run(subprocess.run([TRIREME, *self.words_of(name)], stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                                  capture_output=True, text=True, errors="replace", check=False))

    def test_after_every_power_cut_the_run_resumes_to_the_same_bits(self):
        cuts = self.cuts()
        names = [f"cut-{number}" for number in range(len(cuts))]
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(self.resume, names, [tree for *_, tree in cuts]))
        weights = self.weights(STEPS, "calm/run")
        for name, run, (call, mode, told, _) in zip(names, runs, cuts):
            with self.subTest(call=call, mode=mode, told=told):
                self.assertEqual(run.code, 0, run)
                resumed = re.search(r"resumed from \S*step-(\d+)", run.out)
                self.assertGreaterEqual(int(resumed.group(1)) if resumed else 0, told, run)
                self.assertEqual(self.weights(STEPS, f"{name}/run"), weights)
                self.assertEqual(self.column("step", "steps", f"{name}/run"), list(range(1, STEPS + 1)), run)
        print(f"{len(cuts)} power cuts tried")

    def test_run_h5_is_whole_after_every_power_cut(self):
        os.mkdir(self.path("calm"))
        trace = self.traced("calm", 1)
        disk, seen = Disk(self.path("calm")), {}
        for _ in disk.replay(trace):
            for mode in MODES:
                run = disk.top.tree(mode).get("run", {})
                if "run.h5" in run:
                    seen[run["run.h5"]] = run["steps.jsonl"]
        self.assertGreater(len(seen), 1)
        for number, (data, log) in enumerate(seen.items()):
            path = self.path(f"cut-{number}.h5")
            with open(path, "wb") as file:
                file.write(data)
            with h5py.File(path, "r") as file:
                self.assertEqual(len(file["steps/step"]), len(file["steps/loss"]))
            self.assertIn(b'"crc32_of_file": "%08x"' % zlib.crc32(data), log, "a start would not take it for one of the run")

    def test_a_record_that_began_again_is_on_the_disk_with_the_next_checkpoint(self):
        os.mkdir(self.path("again"))
        self.assertEqual(start(*self.words_of("again"), "run.steps=6").code, 0)
        os.remove(self.path("again/run/steps.jsonl"))
        disk = Disk(self.path("again"), read_tree(self.path("again")))
        checkpoints = 0
        for _ in disk.replay(self.traced("again", 1)):
            kept = disk.top.tree("lazy")["run"]
            if b"step-00000012" in kept["checkpoints"]["latest"]:
                self.assertIn("steps.jsonl", list(kept))
                checkpoints += 1
        self.assertGreater(checkpoints, 0)


if __name__ == "__main__":
    unittest.main()
