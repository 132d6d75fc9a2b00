# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import re
import unittest

import numpy as np

from trireme_postproc.run_file import Span
from trireme_postproc.span_looks import LOOKS, OTHER_WAIT, OTHERS, WAIT, look_of
from trireme_postproc.timeline import OTHER, Interval
from trireme_postproc.timings import ROOT

NAMES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "foundation", "device", "span_names.hpp")
# Colours as seen with each kind of colour blindness, in linear RGB: Machado, Oliveira, Fernandes 2009, "A physiologically-based model for
# simulation of color vision deficiency", severity 1.
SIGHTS = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    value = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    share = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast_with_white(colour):
    """Contrast ratio of the Web Content Accessibility Guidelines 2.1, which require 3 for graphics."""
    return 1.05 / (TO_XYZ[1] @ linear(colour) + 0.05)


def drawn():
    """Spans in the trainer's table that a timeline draws."""
    with open(NAMES, encoding="utf-8") as file:
        rows = re.findall(r'\{SpanName::\w+, "([^"]+)", "([^"]*)",\s*((?:"[^"]*"\s*)+)\}', file.read())
    spans = [Span(name, index_of, "".join(re.findall('"([^"]*)"', text))) for name, index_of, text in rows]
    sample = {"step": 1, "micro": 0, "index": 0, "duration_s": 1.0}
    return [(span, at) for at, span in enumerate(spans) if span.name != ROOT and Interval(span, sample, 0).lane != OTHER]


class LooksTest(unittest.TestCase):
    def test_every_span_of_the_trainer_has_a_look_of_its_own(self):
        spans = drawn()
        names = {span.name for span, _ in spans}
        self.assertLessEqual({"data.next", "optim.matrices", "matrices.travel", "matrices.wait", "gather.bucket"}, names)
        self.assertEqual(names - set(LOOKS), set())
        self.assertEqual(len(set(LOOKS.values())), len(LOOKS))
        self.assertFalse({OTHER_WAIT, *OTHERS} & {LOOKS[name] for name in names})
        for span, at in spans:
            self.assertEqual(look_of(span, at).colour == WAIT, span.waits, span.name)

    def test_colours_can_be_told_apart(self):
        colours = {LOOKS[span.name].colour for span, _ in drawn()}
        for one, other in itertools.combinations(sorted(colours), 2):
            for sight, seen in SIGHTS.items():
                self.assertGreater(np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other))), 10, (one, other, sight))

    def test_colours_can_be_seen_on_white(self):
        for look in (*LOOKS.values(), OTHER_WAIT, *OTHERS):
            self.assertGreaterEqual(contrast_with_white(look.colour), 3, look)

    def test_names_that_a_newer_version_has(self):
        looks = [look_of(Span(f"new.{at}", "", "Within step: work."), at) for at in range(4)]
        self.assertEqual(len(set(looks)), 4)
        self.assertEqual(look_of(Span("new", "bucket", "Within step: compute waited."), 3), OTHER_WAIT)


if __name__ == "__main__":
    unittest.main()
