# SPDX-License-Identifier: Apache-2.0
import json
import tempfile
import unittest

import h5py
import numpy as np

import made_up
from cli_test import png_size, run
from trireme_postproc.run_file import RunFile
from trireme_postproc.timeline import parse_ranks, ranges, step_timeline, trace

ROOT, BUCKET, EXPOSED = (made_up.SPANS.index(row) for row in made_up.SPANS if row[0] in ("step", "reduce.bucket", "reduce.exposed"))


class TimelineTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = made_up.write(self.directory + "/run.h5", steps=4)

    def change(self, function):
        """Replaces the samples by the result of `function`."""
        with h5py.File(self.path, "a") as file:
            rows = function(file["timings/samples"][:])
            file["timings/samples"].resize(rows.shape)
            file["timings/samples"][:] = rows

    def refused(self, *arguments):
        code, out, err = run("timeline", self.path, *arguments)
        self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
        return err

    def test_the_table(self):
        code, out, err = run("timeline", self.directory, "--step", "3")
        self.assertEqual((code, err), (0, ""))
        # made_up writes steps of 100 ms, in which compute waits 2 ms for each of two buckets.
        for rank in (0, 1):
            self.assertRegex(out, rf"(?m)^  {rank} +0 +100\.0 +96\.00 +4\.000 +4\.0 %$")
        self.assertIn("every rank from the beginning of its step", out)
        self.assertEqual(out.count("  bucket 0  72.000 +3.000   83.000 +2.000\n"), 2)
        self.assertEqual(out.count("  bucket 1  75.000 +3.000   86.000 +2.000\n"), 2)

    def test_the_trace(self):
        path = self.directory + "/trace.json"
        self.assertEqual(run("timeline", self.path, "--step", "2", "--ranks", "1", "--trace", path)[0], 0)
        with open(path, encoding="ascii") as file:
            found = json.load(file)
        events = [event for event in found["traceEvents"] if event["ph"] == "X"]
        self.assertEqual({event["pid"] for event in events}, {1})
        with h5py.File(self.path) as file:
            samples = file["timings/samples"][:]
        samples = samples[(samples["step"] == 2) & (samples["rank"] == 1)]
        self.assertEqual(len(events), len(samples))
        self.assertAlmostEqual(sum(event["dur"] for event in events), 1e6 * samples["duration_s"].sum(), places=1)
        reductions = [event for event in events if event["name"] == "reduce.bucket"]
        self.assertEqual([(event["args"]["bucket"], event["dur"]) for event in reductions], [(0, 3000.0), (1, 3000.0)])
        self.assertEqual([event["ts"] for event in reductions], [72000.0, 75000.0])
        waits = [event for event in events if event["cat"] == "wait"]
        self.assertEqual([(event["name"], event["tid"], event["dur"]) for event in waits], [("reduce.exposed", 0, 2000.0)] * 2)
        names = {(event["tid"], event["args"]["name"]) for event in found["traceEvents"] if event["name"] == "thread_name"}
        self.assertEqual(names, {(0, "compute"), (10, "bucket 0"), (11, "bucket 1")})
        # The format requires that slices of a thread are either nested or disjoint.
        for tid in (0, 10, 11):
            ends = []
            for event in (event for event in events if event["tid"] == tid):
                while ends and ends[-1] <= event["ts"] + 0.002:
                    ends.pop()
                end = event["ts"] + event["dur"]
                self.assertTrue(not ends or end <= ends[-1] + 0.002, event)
                ends.append(end)

    def test_the_trace_has_the_documented_format(self):
        """Google's "Trace Event Format" of October 2016, sections "Complete Events" and "Metadata Events". Times before 0 must not occur,
        because Perfetto drops them."""
        made_up.begin_early(self.path, 2)
        found = trace(step_timeline(RunFile(self.path), 2))
        self.assertIn(found["displayTimeUnit"], ("ms", "ns"))
        self.assertTrue(all(isinstance(value, str) for value in found["otherData"].values()))
        named, used = set(), set()
        for event in found["traceEvents"]:
            with self.subTest(event=event):
                self.assertTrue(isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["args"], dict))
                if event["ph"] == "M":
                    field, kind = {"process_name": ("name", str), "thread_name": ("name", str), "process_sort_index": ("sort_index", int)}[event["name"]]
                    self.assertEqual([(key, type(value)) for key, value in event["args"].items()], [(field, kind)])
                    named.add((event["pid"], event["tid"] if event["name"] == "thread_name" else event["name"]))
                else:
                    self.assertEqual((event["ph"], set(event)), ("X", {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}))
                    self.assertTrue(event["name"] and event["cat"] and event["ts"] >= 0 and event["dur"] >= 0)
                    used |= {(event["pid"], event["tid"]), (event["pid"], "process_name"), (event["pid"], "process_sort_index")}
        self.assertEqual(named, used)
        events = [event for event in found["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(min(event["ts"] for event in events), 0)
        self.assertEqual(found["otherData"]["step_begins_us"], "1000.0")
        self.assertEqual({event["ts"] for event in events if event["name"] == "step"}, {1000.0})

    def test_clocks_of_the_ranks(self):
        made_up.write(self.path, steps=4, anchors=[1.7e9 + 0.5, 1.7e9 + 0.502])
        found = step_timeline(RunFile(self.path), 2)
        self.assertTrue(found.aligned)
        self.assertEqual([round(rank.whole.begin, 6) for rank in found.ranks], [0.0, 0.002])
        self.assertIn("by the clocks of their hosts", run("timeline", self.path, "--step", "2")[1])

    def test_waits_count_inside_the_step_only(self):
        def earlier(rows):  # half of the first wait of rank 0 was before the step
            at = np.flatnonzero((rows["name"] == EXPOSED) & (rows["rank"] == 0) & (rows["step"] == 1))[0]
            rows["begin_s"][at] = 0.1 - 0.001
            return rows

        self.change(earlier)
        ranks = step_timeline(RunFile(self.path), 1).ranks
        self.assertAlmostEqual(ranks[0].exposed, 0.003)
        self.assertAlmostEqual(ranks[1].exposed, 0.004)

    def test_parameters_of_buckets(self):
        with h5py.File(self.path, "a") as file:
            for name, values in (("first_step", [1, 1, 3]), ("bucket", [0, 1, 1]), ("first_parameter", ["a", "c", "x"]),
                                 ("last_parameter", ["b", "d", "y"])):
                file[f"buckets/{name}"] = values
        for step, last in ((2, "c … d"), (3, "x … y")):
            events = trace(step_timeline(RunFile(self.path), step))["traceEvents"]
            found = {event["args"]["bucket"]: event["args"]["parameters"] for event in events if "bucket" in event["args"]}
            self.assertEqual(found, {0: "a … b", 1: last})

    def test_pictures(self):
        picture = self.directory + "/step.png"
        self.assertEqual(run("timeline", self.path, "--step", "1", "--png", picture)[0], 0)
        first = png_size(picture)
        self.assertEqual(run("timeline", self.path, "--step", "1", "--ranks", "0", "--png", picture)[0], 0)
        self.assertLess(png_size(picture)[1], first[1])
        self.assertIn("must end in one of", run("timeline", self.path, "--step", "1", "--png", self.directory + "/x.y")[2])
        self.assertEqual(run("timeline", self.path, "--step", "1", "--trace", self.directory + "/none/x.json")[0], 2)

    def test_a_step_that_was_cut(self):
        """The run was killed before it wrote rank 1's span of the step and all spans of buckets."""
        self.change(lambda rows: rows[~((rows["name"] == ROOT) & (rows["rank"] == 1) | (rows["name"] == BUCKET) | (rows["name"] == EXPOSED))])
        code, out, err = run("timeline", self.path, "--step", "1", "--png", self.directory + "/step.png")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("no buckets were recorded", out)

    def test_refuses(self):
        self.assertIn("has no spans of step 9, but of the steps 1-4", self.refused("--step", "9"))
        self.assertIn("no spans of rank 2-3, but of the ranks 0-1", self.refused("--step", "1", "--ranks", "0,2-3"))
        for text in ("x", "1-", "-1", "1,,2", "5-1"):
            self.assertIn("expected ranks such as", self.refused("--step", "1", f"--ranks={text}"))
        made_up.write(self.path, spans=False)
        self.assertIn("record.spans: true", self.refused("--step", "1"))

    def test_lists(self):
        self.assertEqual(parse_ranks("0,2-4"), {0, 2, 3, 4})
        self.assertIsNone(parse_ranks("all"))
        self.assertEqual(ranges([1, 2, 3, 7]), "1-3, 7")
        self.assertEqual(ranges(range(0, 40, 2)), "0, 2, 4, 6, 8, …, 38")


if __name__ == "__main__":
    unittest.main()
