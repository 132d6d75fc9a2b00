# SPDX-License-Identifier: Apache-2.0
"""The colour and hatch of every span, the same in all pictures. People with colour blindness can distinguish the colours. Their contrast
with white is at least 3. tests/postproc/span_looks_test.py computes both."""

from collections import namedtuple

from .style import BLUE

# `hatch`: a hatch of Matplotlib, drawn in white on the colour; "" for none.
Look = namedtuple("Look", ("colour", "hatch"))

WAIT = "#A33A00"  # all waits of compute; the hatch shows which wait it is
LOOKS = {
    "data.next": Look("#AA3377", ""),
    "model.train": Look(BLUE, ""),
    "model.forward": Look("#003F63", ""),
    "model.backward": Look("#3A96CC", "xx"),
    "optim.step": Look("#009470", ""),
    "optim.matrices": Look("#00503B", ""),
    "checkpoint.copy": Look("#30343A", ""),
    "reduce.ready": Look("#8A9099", ""),
    "reduce.bucket": Look("#C08400", ""),
    "gather.ready": Look("#8A9099", "//"),
    "gather.bucket": Look("#3A96CC", ""),
    "matrices.travel": Look("#44318D", ""),
    "reduce.exposed": Look(WAIT, ""),
    "gather.wait": Look(WAIT, "//"),
    "matrices.wait": Look(WAIT, "\\\\"),
    "step.sums": Look(WAIT, "||"),
    "step.control": Look(WAIT, ".."),
}
# For span names that this version does not know.
OTHER_WAIT = Look(WAIT, "xx")
OTHERS = (Look(BLUE, "xx"), Look("#009470", "xx"), Look("#AA3377", "xx"), Look("#8A9099", "xx"))


def look_of(span, position):
    """`position`: index of the span in the file's table."""
    if span.name in LOOKS:
        return LOOKS[span.name]
    return OTHER_WAIT if span.waits else OTHERS[position % len(OTHERS)]


def legend_text(span):
    return f"{span.name} (wait)" if span.waits else span.name
