# SPDX-License-Identifier: Apache-2.0
"""The packages that trireme-postproc needs, and what to do if one is missing. This module itself needs only Python."""

import sys

PACKAGES = ("h5py", "numpy", "matplotlib")


def explain(error):
    """Returns the error message if one of these packages is missing; None for any other ImportError."""
    missing = (error.name or "").partition(".")[0]
    if missing not in PACKAGES:
        return None
    return (f"error: trireme-postproc needs {missing}, which {sys.executable or 'this Python'} does not have. Install it with "
            f"`{sys.executable or 'python3'} -m pip install {' '.join(PACKAGES)}`, or set TRIREME_PYTHON to a Python that has it, such as "
            "/usr/bin/python3 with the packages python3-h5py and python3-matplotlib.")
