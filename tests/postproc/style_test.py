# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest

import numpy as np
from span_looks_test import SIGHTS, contrast_with_white, lab, linear

from trireme_postproc.style import BLUE, EDGE, GREEN, ORANGE, RED, SETS, colour_and_dash


class StyleTest(unittest.TestCase):
    def test_colours_can_be_seen_and_told_apart(self):
        for colour in (*SETS, BLUE, ORANGE, GREEN, RED, EDGE):
            self.assertGreaterEqual(contrast_with_white(colour), 3, colour)
        for (sight, seen), (one, other) in itertools.product(SIGHTS.items(), itertools.combinations(SETS, 2)):
            self.assertGreater(np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other))), 10, (one, other, sight))

    def test_curves_can_be_told_apart_in_grey(self):
        looks = [colour_and_dash(position) for position in range(18)]
        self.assertEqual(len(set(looks)), 18)
        for (one, dash), (other, other_dash) in itertools.combinations(looks[:6], 2):
            if dash == other_dash:
                self.assertGreater(abs(lab(linear(one))[0] - lab(linear(other))[0]), 12, (one, other))


if __name__ == "__main__":
    unittest.main()
