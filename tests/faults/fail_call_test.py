# SPDX-License-Identifier: Apache-2.0
"""fail_call.c finds its rank under every launcher: Open MPI's mpirun, srun with PMIx, MPICH's mpiexec."""
import os
import subprocess
import sys
import tempfile
import unittest

from fail_call import compile_into

WRITE = "import os, sys; os.write(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), b'x')"


class Ranks(unittest.TestCase):
    def test_only_the_rank_that_is_named_is_disturbed(self):
        with tempfile.TemporaryDirectory() as folder:
            library = compile_into(folder)
            for variable in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"):
                for rank in ("0", "1"):
                    environment = {"LD_PRELOAD": library, "FAIL_CALL": "write", "FAIL_AT": "1", "FAIL_ERRNO": "5", "FAIL_UNDER": folder,
                                   "FAIL_RANK": "1", variable: rank}
                    done = subprocess.run(["trireme", "-c", WRITE, os.path.join(folder, "file")], executable=sys.executable, env=environment,
                                          capture_output=True, text=True, check=False, timeout=60)
                    self.assertEqual("Input/output error" in done.stderr, rank == "1", f"{variable}={rank}: {done.stderr}")


if __name__ == "__main__":
    unittest.main()
