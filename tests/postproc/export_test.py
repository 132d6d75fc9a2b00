# SPDX-License-Identifier: Apache-2.0
import contextlib
import csv
import http.server
import json
import math
import os
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import h5py

import made_up
from trireme_postproc.event_file import crc32c, framed, hyperparameters_event, scalars_event, version_event
from cli_test import run

UPLOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "postproc", "examples", "upload.py")


@contextlib.contextmanager
def file_limit(size):
    """Makes writes beyond `size` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def records(data):
    """The data of the records in an event file, after checking their checksums."""
    found = []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        found.append(data[12:12 + size])
        assert data[:16 + size] == framed(found[-1])
        data = data[16 + size:]
    return found


class EventFileTest(unittest.TestCase):
    def test_known_answers(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)

    def test_records_made_by_hand(self):
        self.assertEqual(version_event(0).hex(), "1800000000000000a37f4b220900000000000000001a0d627261696e2e4576656e743a32eedf28a3")
        self.assertEqual(scalars_event(1, 3, [("loss", 1.5)]).hex(),
                         "1a00000000000000129bd82d09000000000000f03f10032a0d0a0b0a046c6f7373150000c03fe7aebd4f")
        self.assertIn(b"\x10\xac\x02", scalars_event(0, 300, []))
        # TensorBoard 2.21.0 reads it as {"rate": 0.5, "text": "a"} of the group "n".
        self.assertEqual(framed(bytes.fromhex(
            "0900000000000000002a5f0a5d0a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f4a3d0a3b0a0768706172616d73123008001a2c"
            "0a110a0472617465120911000000000000e03f0a0b0a047465787412031a016122016e290000000000000000")),
            hyperparameters_event(0, "n", {"text": "a", "rate": 0.5}))


class ExportTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = made_up.write(self.directory + "/run.h5", steps=20)
        with h5py.File(self.path, "r+") as file:
            file["steps/loss"][4] = math.nan
            file["steps/grad_norm"][4] = math.inf
            file["steps/learning_rate"][0] = 1e-5
            file["steps/tokens_per_s"][0] = 4096
            self.columns = {name: column[:].tolist() for name, column in file["steps"].items()}

    def export(self, kind, *more):
        code, out, err = run("export", self.directory, "--format", kind, *more)
        self.assertEqual((code, err), (0, ""))
        return out.splitlines()

    def test_json_lines(self):
        with open(self.directory + "/steps.jsonl", "w", encoding="ascii") as log:  # the run's own log
            log.write("{}\n")
        paths = self.export("jsonl")
        self.assertEqual(paths, [f"{self.directory}/jsonl/steps.jsonl", f"{self.directory}/jsonl/validation.jsonl"])
        with open(paths[0], encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertTrue(lines[0].startswith('{"step": 1, "loss": '), lines[0])
        self.assertIn('"learning_rate": 1e-05, "tokens": 4096,', lines[0])
        self.assertIn('"tokens_per_s": 4096.0,', lines[0])
        self.assertTrue(lines[4].startswith('{"step": 5, "loss": null, "grad_norm": null, '), lines[4])
        for position, line in enumerate(lines):
            for name, value in json.loads(line).items():
                theirs = self.columns[name][position]
                self.assertEqual(value, theirs if math.isfinite(theirs) else None)
        self.assertEqual(len(lines), 20)

    def test_csv(self):
        paths = self.export("csv", "-o", self.directory + "/a/b")
        with open(paths[0], encoding="ascii", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(rows[0])[:3], ["step", "loss", "grad_norm"])
        self.assertEqual(rows[4]["loss"], "nan")
        self.assertEqual(rows[4]["grad_norm"], "inf")
        self.assertEqual([float(row["tokens"]) for row in rows], self.columns["tokens"])

    def test_tensorboard(self):
        (path,) = self.export("tensorboard")
        with open(path, "rb") as file:
            events = records(file.read())
        self.assertEqual(len(events), 2 + 20 + 11)  # validation: steps 0, 2, …, 20
        self.assertIn(b"brain.Event:2", events[0])
        hyperparameters = events.pop(1)
        for part in (b"_hparams_/session_start_info", b"hparams", b"run.steps", b"made-up"):
            self.assertIn(part, hyperparameters)
        self.assertEqual(events[1][9:11], b"\x10\x01")
        at = events[1].index(b"\x15", events[1].index(b"steps/loss"))
        self.assertEqual(events[1][at + 1:at + 5], struct.pack("<f", self.columns["loss"][0]))
        self.assertIn(b"validation/loss", events[-1])
        times = [struct.unpack("<d", event[1:9])[0] for event in events[1:21]]
        self.assertEqual(times, sorted(times))

    def test_nothing_is_overwritten(self):
        for kind in ("jsonl", "csv", "tensorboard"):
            self.export(kind)
            code, out, err = run("export", self.directory, "--format", kind)
            self.assertEqual((code, out), (2, ""))
            self.assertIn("is here already", err)
            self.export(kind, "-o", self.directory + "/elsewhere")

    def test_no_file_is_written_if_one_is_a_link(self):
        os.symlink(self.directory + "/nothing", self.directory + "/validation.csv")
        self.assertIn("validation.csv: is here already", run("export", self.directory, "--format", "csv")[2])
        self.assertFalse(os.path.exists(self.directory + "/steps.csv"))

    def test_an_error_of_a_write_names_the_file(self):
        for kind in ("csv", "tensorboard"):
            with file_limit(10):
                code, _, err = run("export", self.directory, "--format", kind)
            self.assertEqual(code, 3)
            self.assertRegex(err, "error: .*/(steps.csv|events.out.*): File too large")

    def test_an_empty_run(self):
        made_up.write(self.directory + "/none.h5", steps=0, validation=False)
        for kind in ("jsonl", "csv", "tensorboard"):
            code, _, err = run("export", self.directory + "/none.h5", "--format", kind, "-o", self.directory + "/none")
            self.assertEqual((code, err), (0, ""))
        self.assertEqual(os.path.getsize(self.directory + "/none/steps.jsonl"), 0)

    def sent(self, path):
        """Returns what the example posts of a file."""
        got = []

        class Tracker(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Tracker)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            subprocess.run([sys.executable, UPLOAD, path, f"http://127.0.0.1:{server.server_port}/", "tiny"],
                           check=True, timeout=120, env={**os.environ, "no_proxy": "127.0.0.1"})
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        return got

    def test_the_example_sends_every_row(self):
        exported = self.export("jsonl")[0]
        with open(exported, "a", encoding="ascii") as file:
            file.write('{"step": 21, "lo')  # cut off by a kill
        got = self.sent(exported)
        self.assertEqual([row["step"] for row in got], list(range(1, 21)))
        self.assertEqual({row["run"] for row in got}, {"tiny"})
        self.assertEqual(got[0]["loss"], self.columns["loss"][0])
        self.assertNotIn("loss", got[4])

    def test_the_example_sends_the_log_of_a_resumed_run(self):
        lines = [made_up.log_line("step", step=step, loss=1.0).encode() for step in (1, 2, 3)]
        lines += [b'{"kind": "step", "step": \xff, "loss": 1.0}\n', made_up.log_line("rewind", step=1).encode()]
        lines += [made_up.log_line(kind, step=2, loss=2.0).encode() for kind in ("validation", "step")]
        with open(self.directory + "/steps.jsonl", "wb") as file:
            file.writelines(lines)
        self.assertEqual([(row["step"], row["loss"]) for row in self.sent(file.name)], [(1, 1.0), (2, 2.0)])


if __name__ == "__main__":
    unittest.main()
