# SPDX-License-Identifier: Apache-2.0
"""What the package needs beyond Python, and what to do where it is missing. This module needs nothing."""

import sys

PACKAGES = ("h5py", "numpy", "matplotlib")


def explain(error):
    """The line for a user whose Python lacks a package; None for any other ImportError."""
    missing = (error.name or "").partition(".")[0]
    if missing not in PACKAGES:
        return None
    return (f"error: trireme-postproc needs {missing}, which {sys.executable or 'this Python'} does not have. Install it with "
            f"`{sys.executable or 'python3'} -m pip install {' '.join(PACKAGES)}`, or set TRIREME_PYTHON to a Python that has it, such as "
            "/usr/bin/python3 with the packages python3-h5py and python3-matplotlib.")
