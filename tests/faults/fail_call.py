# SPDX-License-Identifier: Apache-2.0
"""Compiles fail_call.c, the library that makes system calls fail."""
import os
import subprocess


def compile_into(folder):
    """The path of the library, for LD_PRELOAD."""
    library = os.path.join(folder, "fail_call.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fail_call.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
