# SPDX-License-Identifier: Apache-2.0
"""`python -m trireme_postproc`."""

import sys

from .cli import main

sys.exit(main())
