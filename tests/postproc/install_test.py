# SPDX-License-Identifier: Apache-2.0
"""The package can be installed without a network into an environment that uses the system's packages."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import made_up

PACKAGE = os.path.join(os.path.dirname(__file__), "..", "..", "postproc")


class InstallTest(unittest.TestCase):
    def call(self, *command):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=self.directory
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_install_and_run(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        # A copy, because setuptools builds inside the source tree.
        source = shutil.copytree(
            PACKAGE, self.directory + "/source",
            ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
        )
        home = self.directory + "/home"
        self.call(sys.executable, "-m", "venv", "--system-site-packages", home)
        self.call(
            home + "/bin/python", "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps",
            "--no-index", "--disable-pip-version-check", source,
        )
        run = made_up.write(self.directory + "/run.h5", steps=3)
        tool = home + "/bin/trireme-postproc"
        self.assertIn("made-up", self.call(tool, "summary", run))
        self.call(tool, "plot", run)
        self.assertTrue(os.path.exists(self.directory + "/run.png"))
        self.call(tool, "report", run, "-o", self.directory + "/run.html")  # this needs files that are not Python
        self.assertTrue(os.path.exists(self.directory + "/run.html"))


if __name__ == "__main__":
    unittest.main()
