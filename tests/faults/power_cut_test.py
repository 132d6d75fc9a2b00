# SPDX-License-Identifier: Apache-2.0
"""Cuts the power, by the model of disk_model.py, after every call that changes what a disk holds; each time the run must go on from
the newest checkpoint that it had reported, or a newer one, to the bits of the undisturbed run."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "integration")]
from disk_model import MODES, STRACE, Disk  # noqa: E402
from harness import TIMEOUT_S, TRIREME, Run, TrainingTest, launch, start  # noqa: E402

# A tree of two leaves gives one rank the bits of two.
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
        """A run below the folder `name`, and the file with its calls."""
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
        """The last call before the cut, the mode, the checkpoint reported by then, and what the disk holds; no disk twice."""
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
                found[repr(tree)] = call, mode, int(told[-1]) if told else 0, tree  # the most that was reported
        self.assertEqual(disk.top.volatile(), read_tree(self.path("calm")), "the model of the disk is not what was there")
        return list(found.values())

    def go_on(self, name, tree):
        write_tree(tree, self.path(name))
        return Run(subprocess.run([TRIREME, *self.words_of(name)], stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                                  capture_output=True, text=True, errors="replace", check=False))

    def test_after_every_power_cut_the_run_resumes_to_the_same_bits(self):
        cuts = self.cuts()
        names = [f"cut-{number}" for number in range(len(cuts))]
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(self.go_on, names, [tree for *_, tree in cuts]))
        weights = self.weights(STEPS, "calm/run")
        for name, run, (call, mode, told, _) in zip(names, runs, cuts):
            with self.subTest(call=call, mode=mode, told=told):
                self.assertEqual(run.code, 0, run)
                resumed = re.search(r"resumed from \S*step-(\d+)", run.out)
                self.assertGreaterEqual(int(resumed.group(1)) if resumed else 0, told, run)
                self.assertEqual(self.weights(STEPS, f"{name}/run"), weights)
                self.assertEqual(self.column("step", "steps", f"{name}/run"), list(range(1, STEPS + 1)), run)
        print(f"{len(cuts)} power cuts tried")

    def torn_records(self, trace, folder, syncs):
        """What a disk may hold of a record and its journal after each of their writes, once the record was there; `syncs`: whether
        syncing them does anything."""
        disk = Disk(self.path(folder), every_write=True)
        none, every, even, odd = (lambda page: False), (lambda page: True), (lambda page: page % 2 == 0), (lambda page: page % 2 == 1)
        found = {}
        synced_once = {}
        for _ in disk.replay(trace):
            run = disk.top.names.get("run")
            files = [run.names.get(name) if run else None for name in ("run.h5", "run.h5.journal")]
            if files[0] is None or not files[0].synced:
                continue
            for which, file in enumerate(files):
                if file is not None and not syncs:
                    file.synced = synced_once.setdefault((which, id(file)), file.synced)
            for of_record, of_journal in ((every, none), (none, every), (even, odd), (odd, even)):
                held = files[0].torn(of_record), files[1].torn(of_journal) if files[1] else None
                found[hash(held)] = held
        return list(found.values())

    def damage_in(self, number, held):
        """What trireme says of that record."""
        folder = self.path(f"torn-{number}")
        os.mkdir(folder)
        for name, data in zip(("run.h5", "run.h5.journal"), held):
            if data is not None:
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(data)
        done = subprocess.run([TRIREME, "try-record", os.path.join(folder, "run.h5"), "0"], stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                              capture_output=True, text=True, errors="replace", check=False)
        shutil.rmtree(folder)
        step, found, damage = done.stdout.partition("\n")
        return damage if found and step.startswith("bf") else f"exit code {done.returncode}"

    def test_a_power_cut_inside_a_flush_leaves_a_whole_record(self):
        os.mkdir(self.path("flush"))
        trace = self.traced("flush", 1)
        with ThreadPoolExecutor(4) as pool:
            told = list(pool.map(self.damage_in, *zip(*enumerate(self.torn_records(trace, "flush", True)))))
        self.assertGreater(len(told), 20)
        self.assertEqual([one for one in told if one], [])
        # The same writes on a disk that ignores syncs: what is looked for here can be seen.
        self.assertTrue(any(self.damage_in("lying", held) for held in self.torn_records(trace, "flush", False)))
        print(f"{len(told)} records torn by a power cut tried")

    def test_a_record_that_began_again_is_on_the_disk_with_the_next_checkpoint(self):
        os.mkdir(self.path("again"))
        self.assertEqual(start(*self.words_of("again"), "run.steps=6").code, 0)
        os.remove(self.path("again/run/run.h5"))
        disk = Disk(self.path("again"), read_tree(self.path("again")))
        checkpoints = 0
        for _ in disk.replay(self.traced("again", 1)):
            kept = disk.top.tree("lazy")["run"]
            if b"step-00000012" in kept["checkpoints"]["latest"]:
                self.assertIn("run.h5", list(kept))
                checkpoints += 1
        self.assertGreater(checkpoints, 0)


if __name__ == "__main__":
    unittest.main()
