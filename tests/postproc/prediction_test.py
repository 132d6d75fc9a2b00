# SPDX-License-Identifier: Apache-2.0
import json
import os
import tempfile
import unittest
from unittest import mock

from matplotlib.axes import Axes

from cli_test import png_size, run
from pictures import problems
from trireme_postproc.prediction import Prediction
from trireme_postproc.prediction_picture import plot_prediction


def row(round_number, ranks, what, predicted, measured):
    of_any = {"round": round_number, "ranks": ranks, "what": what, "predicted_s": predicted, "measured_s": measured,
              "measured_low_s": 0.9 * measured, "measured_high_s": 1.1 * measured}
    return of_any if what == "checkpoint" else of_any | {"predicted_exposed_s": 0.001, "measured_exposed_s": 0.002}


class PredictionTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = os.path.join(temporary.name, "made_up.json")
        self.write(filetype="trireme-prediction", version=1, facts={"deck": "made_up.yaml", "rounds": 3}, rows=[
            row(1, 2, "checkpoint", 0.05, 0.10), row(1, 2, "step, overlap", 0.10, 0.10), row(2, 2, "step, overlap", 0.21, 0.20),
            row(3, 2, "step, overlap", 0.33, 0.30), row(1, 1, "step, no overlap", 0.19, 0.20)])

    def write(self, **content):
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    def test_table_and_picture(self):
        code, out, _ = run("prediction", self.path)
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines(), [
            "deck: made_up.yaml, rounds: 3", "",
            "| ranks | what | predicted | measured | error | errors of rounds | exposed: predicted | measured |",
            "|---|---|---|---|---|---|---|---|",
            "| 1 | step, no overlap | 190.0 ms | 200.0 ms | -5.0 % | -5.0 … -5.0 % | 1.000 ms | 2.000 ms |",
            "| 2 | step, overlap | 210.0 ms | 200.0 ms | +5.0 % | +0.0 … +10.0 % | 1.000 ms | 2.000 ms |",
            "| 2 | checkpoint | 50.00 ms | 100.0 ms | -50.0 % | -50.0 … -50.0 % | - | - |"])
        self.assertGreater(min(png_size(self.path[:-5] + ".png")), 300)

    def test_the_picture_can_be_read(self):
        """With steps from 70 ms to 10 s, and with more cases than colours."""
        for cases in ([(2**power, "step, overlap", 10 / 2**power) for power in range(8)],
                      [(ranks, what, 1 / ranks) for ranks in range(1, 9) for what in ("step, overlap", "step, no overlap", "checkpoint")]):
            self.write(filetype="trireme-prediction", version=1, facts={}, rows=[
                row(turn, ranks, what, seconds * (1 + 0.02 * turn), seconds) for ranks, what, seconds in cases for turn in (1, 2)])
            with mock.patch.object(Axes, "errorbar", autospec=True, side_effect=Axes.errorbar) as drawn:
                self.assertEqual(problems(plot_prediction, Prediction(self.path), self.path[:-5] + ".png"), [])
            looks = [(call.kwargs["color"], call.kwargs["marker"]) for call in drawn.call_args_list]
            self.assertEqual((len(looks), len(set(looks))), (len(cases), len(cases)), "two cases look the same")

    def test_refuses_other_files(self):
        for content, said in (({"filetype": "else"}, "its filetype is not 'trireme-prediction'"),
                              ({"filetype": "trireme-prediction", "version": 9}, "version 9, this program reads 1"),
                              ({"filetype": "trireme-prediction", "version": 1}, "cannot be read"),
                              ({"filetype": "trireme-prediction", "version": 1, "facts": {}, "rows": []}, "has no rows")):
            self.write(**content)
            code, _, err = run("prediction", self.path)
            self.assertEqual(code, 2)
            self.assertIn(said, err)


if __name__ == "__main__":
    unittest.main()
