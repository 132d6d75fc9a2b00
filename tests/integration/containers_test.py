# SPDX-License-Identifier: Apache-2.0
"""One container per rank: ranks on one host in different namespaces."""
import os
import stat
import subprocess
import unittest

from harness import FLAGS, MPIRUN, TIMEOUT_S, TRIREME, Run, TrainingTest

# Each rank has its own PID namespace, so all ranks have the same process id. The rank given as the first argument has one more file open:
# equal descriptor numbers then refer to different files, or different numbers to the same file.
WRAPPER = """#!/bin/bash
[ "$OMPI_COMM_WORLD_RANK" != "$1" ] || exec {more}</dev/null
exec unshare --pid --fork --mount-proc "${@:2}"
"""


def may_unshare():
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False)
    return done.returncode == 0


@unittest.skipUnless("--oversubscribe" in FLAGS, "the launcher is not Open MPI's")
@unittest.skipUnless(may_unshare(), "no namespaces of processes may be made here")
class Containers(TrainingTest):
    def train_apart(self, *overrides, name="apart", more_files_on=1):
        wrapper = self.path("container.sh")
        with open(wrapper, "w", encoding="ascii") as out:
            out.write(WRAPPER)
        os.chmod(wrapper, os.stat(wrapper).st_mode | stat.S_IXUSR)
        # Open MPI's own shared memory does not work across namespaces either. Between two addresses of one host, version 5 can use only the
        # loopback interface.
        parameters = ("btl", "tcp,self"), ("btl_tcp_if_include", "lo"), ("pml", "ob1")
        words = [MPIRUN, *(word for pair in parameters for word in ("--mca", *pair)), *FLAGS, "2", wrapper, str(more_files_on), TRIREME,
                 *self.words(name, overrides)]
        return Run(subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
                                  check=False))

    def test_private_process_namespaces_change_no_bit(self):
        self.train_well("parallel.transport=mpi", "parallel.reduction=ordered", ranks=2, name="messages")
        for transport, more_files_on in (("auto", 0), ("auto", 1), ("auto", None), ("shared_memory", None)):
            with self.subTest(transport=transport, more_files_on=more_files_on):
                name = f"{transport}-{more_files_on}"
                apart = self.train_apart(f"parallel.transport={transport}", "parallel.reduction=ordered", name=name,
                                         more_files_on=more_files_on)
                self.assertEqual(apart.code, 0, apart)
                self.assertEqual(self.losses(name), self.losses("messages"))


if __name__ == "__main__":
    unittest.main()
