# SPDX-License-Identifier: Apache-2.0
"""Tables and pictures from trireme's run files (RUN_DIR/run.h5).

Names, units and the nesting of spans are read from the file.
"""
