# SPDX-License-Identifier: Apache-2.0
"""Training across hosts: the same numbers as on one host, the planned number of bytes, and an error when a rank or the link fails.

Start this with hosts.sh --hosts 4, which gives mpirun the hosts north, south, east and west.
"""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "integration"))
from harness import DECK, MPIRUN, TIMEOUT_S, TRIREME, Run, TrainingTest, has_ulfm, is_rank, processes  # noqa: E402

# A run that lost a rank ends after one or two seconds. One that lost its link ends after its deadline of 8 s and the watchdog's 5 s. The
# rest is for a machine that stalls. If failures were not detected, the run would take minutes.
MOST_S = 60
MPIRUN_SH = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, "jobs", "mpirun.sh")
QUIET = () if has_ulfm() else ("-q",)  # Open MPI 5 has no such option
ONE_HOST = "north:%d"
BOTH_HOSTS = "north:%d,south:%d"


def link(change):
    subprocess.run(["bash", os.environ["TRIREME_HOSTS_SH"], "link", change], check=True, timeout=TIMEOUT_S)


def processes_of_rank(rank):
    """The processes that run the executable as this rank, found by the environment variables of mpirun."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                told = file.read()
            if is_rank(told, rank) and os.path.samefile(path[:-7] + "exe", TRIREME):
                found.append(int(path.split("/")[2]))
        except OSError:  # the process has ended, or is a kernel thread
            pass
    return found


class Network(TrainingTest):
    def launch(self, *overrides, hosts, name, placed=()):
        """`hosts` is like north:1,south:1, with one rank per slot. `placed`: options for mpirun to place ranks."""
        ranks = sum(int(host.split(":")[1]) for host in hosts.split(","))
        command = [MPIRUN, *QUIET, "-H", hosts, "--bind-to", "none", *placed, "-n", str(ranks), TRIREME, DECK,
                   f"run.directory={self.path(name)}", f"data.train.text=[{self.text}]", *overrides]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                errors="replace")

    def train_on(self, hosts, *overrides, name, placed=()):
        with self.launch(*overrides, hosts=hosts, name=name, placed=placed) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
        run = Run(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        self.assertEqual(run.code, 0, run)
        return run

    def break_after_step(self, step, damage, *overrides, hosts=BOTH_HOSTS % (1, 1), name="broken"):
        """Starts a long run, calls `damage` when rank 0 reports `step`, and returns the run and the seconds until it ended."""
        with self.launch("run.steps=1000000", "checkpoint.every_steps=0", "evaluate.every_steps=0", *overrides, hosts=hosts,
                         name=name) as process:
            end = threading.Timer(TIMEOUT_S, process.kill)
            end.start()
            try:
                err = []
                listener = threading.Thread(target=lambda: err.append(process.stderr.read()))
                listener.start()
                out = ""
                for line in process.stdout:
                    out += line
                    if re.search(rf"step +{step}/", line):
                        break
                else:
                    self.fail(f"ended before step {step}:\n{out}")
                damage()
                since = time.monotonic()
                out += process.stdout.read()
                process.wait()
                took = time.monotonic() - since
                listener.join()
            finally:
                end.cancel()
                process.kill()
        return Run(subprocess.CompletedProcess(process.args, process.returncode, out, "".join(err))), took

    def assert_same_training(self, name, reference):
        self.assertEqual(self.losses(name), self.losses(reference), name)
        self.assertEqual(self.weights(12, name), self.weights(12, reference), name)


class Bits(Network):
    def test_two_hosts_compute_what_one_does(self):
        for per_host in (1, 2):
            reference = f"one-host-{2 * per_host}"
            self.train_on(ONE_HOST % (2 * per_host), name=reference)
            self.assertEqual(len(self.losses(reference)), 12)
            for transport in ("mpi", "hierarchical"):
                name = f"{transport}-{per_host}"
                run = self.train_on(BOTH_HOSTS % (per_host, per_host), f"parallel.transport={transport}", name=name)
                self.assertIn(f"{2 * per_host} ranks over {transport}", run.out)
                self.assert_same_training(name, reference)

    def test_hosts_with_different_numbers_of_ranks_compute_what_one_does(self):
        """One, two and three ranks on three hosts; ranks placed round-robin; and more ranks than in the unit tests."""
        short = ("run.steps=5", "checkpoint.every_steps=5", "evaluate.every_steps=0", "batch.sequences=18")
        cases = (("north:1,south:2,east:3", ()), ("north:1,south:2,east:3", ("--map-by", "node")), ("north:3,south:4,east:2", ()))
        for number, (hosts, placed) in enumerate(cases):
            ranks = sum(int(host.split(":")[1]) for host in hosts.split(","))
            with self.subTest(hosts=hosts, placed=placed):
                reference, name = f"one-{ranks}", f"three-{number}"
                if not os.path.exists(self.path(reference)):
                    self.train_on(ONE_HOST % ranks, *short, name=reference)
                run = self.train_on(hosts, *short, name=name, placed=placed)
                self.assertIn(f"{ranks} ranks over hierarchical", run.out)
                self.assertEqual(self.losses(name), self.losses(reference))
                self.assertEqual(self.weights(5, name), self.weights(5, reference))

    def test_copies_on_hosts_compute_what_one_host_does(self):
        every = ("parallel.reduce_every=micro_step",)
        for ranks in (4, 6):
            self.train_on(ONE_HOST % ranks, *every, name=f"one-host-{ranks}")
        kept = "parameters parallel.reshard_after_forward=false"
        cases = (*((4, BOTH_HOSTS % (2, 2), "node", shard, "shared_memory") for shard in ("optimizer", "gradients", "parameters", kept)),
                 # Each replica spans two hosts, and one host has ranks of both. With six ranks, it has two of its three on one host.
                 *((4, "north:1,south:2,east:1", "2", shard, "mpi") for shard in ("optimizer", "parameters")),
                 *((6, "north:2,south:2,east:2", "2", shard, "hierarchical") for shard in ("gradients", "parameters")))
        for number, (ranks, hosts, copies, shard, transport) in enumerate(cases):
            with self.subTest(hosts=hosts, shard=shard):
                run = self.train_on(hosts, *every, f"parallel.replicate={copies}", *f"parallel.shard={shard}".split(), name=f"copies-{number}")
                self.assertIn(f"{ranks} ranks with 2 copies over {transport}", run.out)
                self.assert_same_training(f"copies-{number}", f"one-host-{ranks}")

    def test_copies_need_hosts_with_equally_many_consecutive_ranks(self):
        for hosts, placed, why in (("north:2,south:1", (), "every replica needs the same number of ranks"),
                                   (BOTH_HOSTS % (2, 2), ("--map-by", "node"), "consecutive ranks on every host")):
            with self.launch("parallel.replicate=node", "batch.sequences=12", hosts=hosts, name="refused", placed=placed) as process:
                out, err = process.communicate(timeout=TIMEOUT_S)
            run = Run(subprocess.CompletedProcess(process.args, process.returncode, out, err))
            self.assert_refused(run, 2, "parallel.replicate", why)

    def sent_per_step(self, hosts, *overrides, name):
        """Bytes per step that the busier of two hosts sends over its link: those of a long run minus those of a short one."""
        def sent(host):
            return int(subprocess.run(["bash", os.environ["TRIREME_HOSTS_SH"], "sent", host], check=True, timeout=TIMEOUT_S,
                                      capture_output=True, text=True).stdout)
        found = []
        for steps in (5, 15):
            before = sent("north"), sent("south")
            self.train_on(hosts, f"run.steps={steps}", "checkpoint.every_steps=0", "evaluate.every_steps=0", *overrides,
                          name=f"{name}-{steps}")
            found.append((sent("north") - before[0], sent("south") - before[1]))
        return max(long - short for short, long in zip(*found)) / 10

    def planned_per_step(self, ranks, hosts, *overrides, name):
        path = self.path(f"{name}.json")
        subprocess.run([TRIREME, "plan", *self.words("none", overrides), "--ranks", str(ranks), "--hosts", str(hosts), "--json", path],
                       check=True, timeout=TIMEOUT_S, capture_output=True)
        with open(path, encoding="utf-8") as file:
            rank = json.load(file)["per_rank"]["fp32"]
        return rank["host_gradient_wire_bytes"] + rank["host_parameter_wire_bytes"] + rank.get("host_matrix_wire_bytes", 0)

    def test_a_host_sends_what_is_planned(self):
        model = ("model={layers: 2, heads: 2, channels: 96, context: 16}", "batch.sequences=12")
        # tests/comm/traffic_test.cpp checks all transports, dtypes and replicas, message by message.
        for words in (("parallel.reduction=sum",), ("parallel.reduction=ordered",), ("parallel.reduction=sum", "parallel.transport=mpi"),
                      ("parallel.reduction=sum", "optimizer.kind=muon"), ("parallel.reduction=ordered", "parallel.replicate=node"),
                      ("parallel.reduction=sum", "parallel.replicate=node", "parallel.shard=parameters"),
                      ("parallel.reduction=sum", "parallel.replicate=node", "optimizer.outer.local_steps=2", "optimizer.outer.dtype=int8"),
                      ("parallel.reduction=sum", "parallel.shard=parameters"),
                      ("parallel.reduction=sum", "parallel.replicate=node", "optimizer.outer.local_steps=2", "parallel.shard=parameters", "3 ranks"),
                      ("parallel.reduction=sum", "parallel.replicate=2", "optimizer.outer.local_steps=2", "optimizer.kind=muon", "5 ranks")):
            ranks = int(words[-1].removesuffix(" ranks")) if words[-1].endswith(" ranks") else 4
            words = [word for word in words if "=" in word]
            name = "-".join((*(word.split("=")[1] for word in words), str(ranks)))
            sent = self.sent_per_step(BOTH_HOSTS % (ranks - ranks // 2, ranks // 2), *model, *words, name=name)
            planned = self.planned_per_step(ranks, 2, *model, *words, name=name)
            print(f"{name}: {sent:.0f} bytes sent per step, {planned} planned")
            # Overhead: 1448 of 1514 bytes of a frame are data, plus acknowledgements and the step's sums.
            self.assertGreater(sent, planned)
            self.assertLess(sent, 1.1 * planned)

    def test_the_link_carries_the_buckets(self):
        # Some 30 000 parameters of 4 bytes cross the link twice per step, half of them in each direction. That takes 0.5 s at 2 Mbit/s.
        link("2mbit")
        self.addCleanup(link, "2gbit")
        self.train_on(BOTH_HOSTS % (1, 1), "run.steps=6", name="slow")
        self.train_on(ONE_HOST % 2, "run.steps=6", name="one-host")
        self.assertEqual(self.losses("slow"), self.losses("one-host"))
        seconds = {name: sorted(self.column("seconds", "steps", name))[3] for name in ("slow", "one-host")}
        print(f"median step: {seconds['slow']:.3f} s over 2 Mbit/s, {seconds['one-host']:.3f} s on one host")
        self.assertGreater(seconds["slow"], 0.1)


class Placement(Network):
    def test_auto_follows_the_placement(self):
        for hosts, transport in ((BOTH_HOSTS % (1, 1), "mpi"), (BOTH_HOSTS % (2, 2), "hierarchical"),
                                 ("north:2,south:1", "hierarchical"),
                                 ("north:1,south:1,east:1", "mpi"), (ONE_HOST % 2, "shared_memory")):
            name = hosts.replace(":", "").replace(",", "-")
            run = self.train_on(hosts, "run.steps=5", "checkpoint.every_steps=0", "evaluate.every_steps=0", name=name)
            self.assertRegex(run.out, rf"ranks over {transport}\b", hosts)
            for host in re.findall("[a-z]+", hosts):
                self.assertRegex(run.out, rf"\b{host}\b", hosts)


class Faults(Network):
    def test_a_killed_rank_ends_the_job(self):
        cases = ((BOTH_HOSTS % (1, 1), 1), (BOTH_HOSTS % (1, 1), 0), (BOTH_HOSTS % (2, 2), 2), (BOTH_HOSTS % (2, 2), 3, "parallel.shard=parameters"))
        for number, (hosts, victim, *words) in enumerate(cases):
            with self.subTest(hosts=hosts, victim=victim, words=words):
                def kill():
                    found = processes_of_rank(victim)
                    self.assertEqual(len(found), 1)
                    os.kill(found[0], signal.SIGKILL)
                run, took = self.break_after_step(3, kill, *words, hosts=hosts, name=f"killed-{number}")
                print(f"{hosts}: ended {took:.1f} s after rank {victim} was killed, with code {run.code}")
                self.assertNotEqual(run.code, 0, run)
                self.assertLess(took, MOST_S, run)
                self.assertEqual([pid for rank in range(4) for pid in processes_of_rank(rank)], [])

    def test_a_dead_link_ends_the_job_and_is_named(self):
        # At this rate a step sends for half a second, so the ranks are communicating when the link goes down.
        link("2mbit")
        self.addCleanup(link, "2gbit")
        self.addCleanup(link, "up")
        run, took = self.break_after_step(3, lambda: link("down"), "parallel.deadline=8")
        print(f"ended {took:.1f} s after the link went down: {run.errors}")
        self.assertEqual(run.code, 3, run)
        self.assertTrue(run.errors, run)
        # Most of a step is spent in buckets; a rank that is between them fails in one of the step's sums. Either side may be the first to
        # report that the other does not answer.
        self.assertRegex("\n".join(run.errors),
                         r"((reduce_scatter|all_gather|all_reduce) of (bucket \d+|the step's sums)|a sum over the ranks) failed: "
                         r"no progress for \d+\.\d s; rank (0 on north|1 on south) does not answer")
        self.assertLess(took, MOST_S, run)


class LostHost(Network):
    TREE = ("parallel.reduction=tree", "parallel.logical_shards=4")

    def lose(self, hosts, damage, continues, *words):
        """The output of a run of 300 steps that suffers `damage` between two steps or during one."""
        ranks = sum(int(host.split(":")[1]) for host in hosts.split(","))
        command = ["bash", MPIRUN_SH, *QUIET, "-H", hosts, "-n", str(ranks), TRIREME, DECK, f"run.directory={self.path('lost')}",
                   f"data.train.text=[{self.text}]", "parallel.on_lost_rank=shrink", "run.steps=300", "evaluate.every_steps=0", *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", env={**os.environ, "TRIREME_MPIRUN": MPIRUN}) as process:
            end = threading.Timer(TIMEOUT_S, process.kill)
            end.start()
            try:
                said = ""
                for line in process.stdout:
                    said += line
                    if re.match(r"step +20/", line):
                        break
                damage()
                since = time.monotonic()
                for line in process.stdout:
                    said += line
                    if re.match(r"step +\d+/", line) and continues in said:
                        print(f"{time.monotonic() - since:.1f} s from the loss of a host to the next step")
                        break
                said += process.stdout.read()
                self.assertEqual(process.wait(), 0, said)
            finally:
                end.cancel()
                process.kill()
        self.assertIn(continues, said)
        return said

    def expect_undisturbed_bits(self, *words):
        self.train_on(ONE_HOST % 2, "run.steps=300", "evaluate.every_steps=0", *words, name="undisturbed")
        self.assertEqual(self.weights(300, "lost"), self.weights(300, "undisturbed"))

    def lose_host(self, host, *words):
        """The lost host cannot come back, so each test loses another one."""
        def end():
            pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True).stdout.split()
            self.assertTrue(pids)
            subprocess.run(["kill", "-9", *pids], check=True)
            subprocess.run(["ip", "netns", "del", host], check=True)
        return self.lose(f"north:1,{host}:1,east:1", end, "it starts again on north:1 east:1 from its newest checkpoint",
                         "checkpoint.every_steps=10", *words)

    def test_the_run_continues_on_the_hosts_that_are_left(self):
        self.lose_host("south", *self.TREE)
        self.expect_undisturbed_bits(*self.TREE, "checkpoint.every_steps=10")

    @unittest.skipIf(has_ulfm(), "the launcher of Open MPI 4 waits for the daemon of a host that falls silent")
    def test_a_host_that_falls_silent_is_left_out_and_a_healthy_run_goes_on(self):
        command = ["bash", MPIRUN_SH, *QUIET, "-H", "north:1,south:1,east:1", "-n", "3", TRIREME, DECK, f"run.directory={self.path('lost')}",
                   f"data.train.text=[{self.text}]", "parallel.on_lost_rank=shrink", "parallel.deadline=8", "run.steps=1000000",
                   "optimizer.schedule={kind: constant}", "evaluate.every_steps=0", "checkpoint.every_steps=100", "checkpoint.keep=2", *self.TREE]
        said = ""
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", env={**os.environ, "TRIREME_MPIRUN": MPIRUN}) as process:
            end = threading.Timer(TIMEOUT_S, process.kill)
            end.start()
            try:
                begun = None
                for line in process.stdout:
                    said += line
                    if begun is None and re.match(r"step +20/", line):
                        begun = time.monotonic()
                    if begun is not None and time.monotonic() - begun > 45:  # longer than a launcher may exist without children
                        break
                self.assertNotIn("it starts again", said)
                silent = subprocess.run(["ip", "netns", "pids", "east"], capture_output=True, text=True, check=True).stdout.split()
                subprocess.run(["kill", "-STOP", *silent], check=True)
                for name in ("wire", "control"):
                    subprocess.run(["ip", "-n", "east", "link", "set", name, "down"], check=True)
                    self.addCleanup(subprocess.run, ["ip", "-n", "east", "link", "set", name, "up"], check=True)
                for line in process.stdout:
                    said += line
                    if re.match(r"step +\d+/", line) and "it starts again on north:1 south:1" in said:
                        break
                subprocess.run(["kill", "-KILL", *silent], stderr=subprocess.DEVNULL, check=False)  # the others keep the pipe open
                process.send_signal(signal.SIGTERM)
                said += process.stdout.read()
                self.assertEqual(process.wait(), 75, said)
            finally:
                end.cancel()
                process.kill()
        self.assertIn("it starts again on north:1 south:1 from its newest checkpoint", said)

    def test_replicas_with_local_steps_continue_without_one(self):
        said = self.lose_host("west", "parallel.replicate=node", "optimizer.outer.local_steps=4")
        self.assertIn("3 ranks with 3 copies", said)
        self.assertIn("2 ranks with 2 copies", said)
        self.assertIn("step    300/300", said)

    @unittest.skipUnless(has_ulfm(), "continuing in place needs Open MPI 5 with ULFM")
    def test_the_others_continue_in_place_without_the_ranks_of_a_host(self):
        def end_ranks():
            pids = subprocess.run(["ip", "netns", "pids", "south"], capture_output=True, text=True, check=True).stdout.split()
            lost = set(map(int, pids)) & set(processes(self.path("lost")))
            self.assertEqual(len(lost), 2)
            for pid in lost:
                os.kill(pid, signal.SIGKILL)
        words = (*self.TREE, "checkpoint.memory_every_steps=1", "checkpoint.every_steps=300")
        said = self.lose("north:1,south:2,east:1", end_ranks, "was lost: the run continues on 2 ranks", *words)
        self.expect_undisturbed_bits(*words)
        self.assertRegex(said, "rank [12] on south.* was lost")
        self.assertRegex(said, r"wrote \S+ from the copies in memory")
        self.assertNotIn("it starts again", said)


class Start(Network):
    def test_hosts_that_do_not_reach_each_other_end_the_start(self):
        # Packets are routed to a network device that does not exist, as with a firewall that drops them.
        for host, other in (("north", "10.78.0.2"), ("south", "10.78.0.1")):
            entry = [other, "dev", "wire"]
            subprocess.run(["ip", "-n", host, "neigh", "replace", *entry, "lladdr", "02:00:00:00:00:99", "nud", "permanent"], check=True)
            self.addCleanup(subprocess.run, ["ip", "-n", host, "neigh", "del", *entry], check=False)
        os.environ["TRIREME_START_DEADLINE"] = "15"  # MPI_Init has to end in this time as well
        self.addCleanup(os.environ.pop, "TRIREME_START_DEADLINE")
        with self.launch("run.steps=2", hosts=BOTH_HOSTS % (1, 1), name="apart", placed=("-x", "TRIREME_START_DEADLINE")) as process:
            try:
                since = time.monotonic()
                out, err = process.communicate(timeout=MOST_S)
            finally:
                process.kill()
        print(f"ended after {time.monotonic() - since:.1f} s")
        self.assertEqual(process.returncode, 3, out + err)
        for host, address in (("north", "wire 10.78.0.1"), ("south", "wire 10.78.0.2")):
            lines = [line for line in err.splitlines() if re.match(rf"\[rank \d {host}\] error: MPI's first exchange", line)]
            self.assertEqual(len(lines), 1, err)
            self.assertIn(address, lines[0])
            self.assertIn("within 15 s", lines[0])
            self.assertIn("--mca btl_tcp_if_include", lines[0])

    def test_an_address_that_two_hosts_have_is_named(self):
        for host in ("north", "south"):  # as on every host with a container engine
            subprocess.run(["ip", "-n", host, "link", "add", "docker0", "type", "bridge"], check=True)
            self.addCleanup(subprocess.run, ["ip", "-n", host, "link", "del", "docker0"], check=False)
            subprocess.run(["ip", "-n", host, "address", "add", "172.17.0.1/16", "dev", "docker0"], check=True)
            subprocess.run(["ip", "-n", host, "link", "set", "docker0", "up"], check=True)
        os.environ["TRIREME_START_DEADLINE"] = "15"  # MPI_Init has to end in this time as well
        self.addCleanup(os.environ.pop, "TRIREME_START_DEADLINE")
        placed = ("-x", "TRIREME_START_DEADLINE", "--mca", "btl_tcp_if_include", "docker0")
        with self.launch("run.steps=2", hosts=BOTH_HOSTS % (1, 1), name="equal", placed=placed) as process:
            try:
                out, err = process.communicate(timeout=MOST_S)
            finally:
                process.kill()
        self.assertEqual(process.returncode, 3, out + err)
        self.assertIn("north and south have the same address: docker0 172.17.0.1", err)
        self.assertIn("--mca btl_tcp_if_exclude lo,docker0", err)


if __name__ == "__main__":
    unittest.main()
