# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import h5py

import made_up
from trireme_postproc.cli import main


def run(*arguments):
    """Exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return code, out.getvalue(), err.getvalue()


def png_size(path):
    with open(path, "rb") as file:
        start = file.read(24)
    assert start.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", start[16:24])


class CommandLineTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = self.directory + "/run.h5"

    def svg(self):
        """The plot as SVG, with text kept as text."""
        import matplotlib

        with matplotlib.rc_context({"svg.fonttype": "none"}):
            self.assertEqual(run("plot", self.path, "-o", self.directory + "/run.svg")[0], 0)
        with open(self.directory + "/run.svg", encoding="utf-8") as file:
            return file.read().replace("&gt;", ">")

    def refused(self, *arguments):
        """Checks for exit code 2 and returns the one line of the error."""
        code, out, err = run(*arguments)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("error: "), err)
        return err

    def test_a_column_that_claims_more_than_the_file_holds_is_refused(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "r+") as file:
            del file["steps/loss"]
            file["steps"].create_dataset("loss", shape=(2**40,), chunks=(1024,), dtype="f8")
        for verb in ("summary", "report", "export", "compare"):
            self.assertIn("/steps/loss claims 1099511627776 elements", self.refused(*self.words(verb)), verb)

    def test_a_column_of_texts_is_refused(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "r+") as file:
            del file["steps/loss"]
            file["steps"]["loss"] = ["low"] * 5
        for verb in ("summary", "report", "export", "compare"):
            self.assertIn("/steps/loss holds texts", self.refused(*self.words(verb)), verb)

    def test_a_file_without_spans(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "r+") as file:
            del file["timings/samples"]
        for words in (self.words("summary"), self.words("report"), ("plot", self.path), ("compare", self.path, made_up.write(self.directory + "/b.h5"))):
            code, _, err = run(*words)
            self.assertEqual((code, err), (0, ""), words)
        with mock.patch("trireme_postproc.compare.compare", side_effect=KeyError("x")):
            self.assertIn(f"error: {self.path}, {self.directory}/b.h5: the file", self.refused("compare", self.path, self.directory + "/b.h5"))

    def test_links_to_other_files_and_places_are_refused(self):
        with h5py.File(self.directory + "/other.h5", "w") as file:
            file["loss"] = [1.0] * 5
        links = {"external": h5py.ExternalLink("other.h5", "/loss"), "soft": h5py.SoftLink("/steps/step")}
        for kind, link in links.items():
            for place in ("steps/loss", "validation", "timings/samples"):
                path = f"{self.directory}/{kind}.h5"
                made_up.write(path, steps=5)
                with h5py.File(path, "r+") as file:
                    if place in file:
                        del file[place]
                    file[place] = link
                error = self.refused("summary", path)
                self.assertIn(f"/{place} is a link", error)
                os.remove(path)

    def test_a_value_of_another_kind_ends_without_a_traceback(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "r+") as file:
            file.attrs["date_and_time"] = 7
            file["deck"].attrs["batch.sequences"] = [[1, 2], [3, 4]]
            file["timings"].attrs["ceiling_flops_per_s"] = "fast"
        for verb in ("summary", "report", "export", "compare"):
            code, _, err = run(*self.words(verb))
            self.assertIn(code, (0, 2), verb)
            self.assertNotIn("Traceback", err)

    def test_control_characters_and_other_encodings_reach_no_terminal(self):
        made_up.write(self.path, steps=5)
        hostile = b"t\xe9\x1b]0;title\x07\x9b2J"
        with h5py.File(self.path, "r+") as file:
            for node in (file, file["deck"]):
                for name in list(node.attrs):
                    if isinstance(node.attrs[name], str):
                        node.attrs.create(name, hostile if name not in ("filetype",) and not name.endswith("time") else node.attrs[name])
            file["deck"].attrs["run.name"] = hostile
        directory = os.fsencode(self.directory) + b"/d\xe9\x1b[31m"
        os.mkdir(directory)
        os.rename(self.path, directory + b"/run.h5")
        name = os.fsdecode(directory)
        page = self.directory + "/page.html"
        for words in (("summary", name), ("compare", name, name), ("report", name, "-o", page), ("export", name, "--format", "jsonl")):
            code, out, err = run(*words)
            self.assertIn(code, (0, 2) if words[0] != "report" else (0,), (words, err))
            for stream in (out, err):
                stream.encode("utf-8")
                self.assertFalse([c for c in stream if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160], (words, stream))
        self.assertTrue(os.path.exists(page))

    def words(self, verb):
        if verb == "report":
            return verb, self.path, "-o", self.directory + "/page.html"
        if verb == "export":
            return verb, self.path, "--format", "jsonl"
        return (verb, self.path, self.path) if verb == "compare" else (verb, self.path)

    def test_a_directory_that_is_not_there(self):
        made_up.write(self.path, steps=5)
        missing = self.directory + "/missing"
        trace = ("timeline", self.path, "--step", "2", "--trace", missing + "/a.json")
        for words in (("plot", self.path, "-o", missing + "/a.png"), ("report", self.path, "-o", missing + "/a.html"), trace):
            code, _, err = run(*words)
            self.assertEqual((code, err), (2, f"error: {missing}: there is no such directory. Make it, or name another one\n"), words)

    def test_summary_of_a_directory_and_of_a_file(self):
        made_up.write(self.path)
        by_directory, by_file = run("summary", self.directory), run("summary", self.path)
        self.assertEqual(by_directory[0], 0)
        self.assertIn("made-up", by_directory[1])
        self.assertEqual(by_directory, by_file)

    def test_plot_is_next_to_the_run_file(self):
        made_up.write(self.path, steps=200)
        code, out, _ = run("plot", self.directory)
        self.assertEqual(code, 0)
        picture = self.directory + "/run.png"
        self.assertEqual(out, f"picture: {picture}\n")
        width, height = png_size(picture)
        self.assertGreater(width, 1200)
        self.assertGreater(height, 800)

    def test_plot_goes_where_output_names_it(self):
        made_up.write(self.path, steps=5)
        for name in ("a.png", "b.svg", "c.pdf"):
            self.assertEqual(run("plot", self.path, "-o", f"{self.directory}/{name}")[0], 0)
            self.assertGreater(os.path.getsize(f"{self.directory}/{name}"), 2000)
        self.assertFalse(os.path.exists(self.directory + "/run.png"))

    def test_files_of_others_stay(self):
        made_up.write(self.path, steps=5)
        other = made_up.write(self.directory + "/other.h5", steps=5)
        verbs = [("plot", self.path, "-o", ".png"), ("plot", self.path, "-o", ".pdf"), ("report", self.path, "-o", ".html"),
                 ("timeline", self.path, "--step", "2", "--trace", ".json"), ("compare", self.path, other, "--png", ".svg")]
        for *words, ending in verbs:
            path, link, pipe = (f"{self.directory}/{name}{ending}" for name in ("mine", "link", "pipe"))
            self.assertEqual(run(*words, path)[0], 0)
            made = os.stat(path).st_ino
            self.assertEqual(run(*words, path)[0], 0, "a file of ours is replaced")
            self.assertNotEqual(os.stat(path).st_ino, made)
            os.symlink(path, link)
            os.mkfifo(pipe)
            with open(path, "wb") as file:
                file.write(b"my own, trireme-postproc")
            for taken in (path, link, pipe):
                code, _, err = run(*words, taken)
                self.assertEqual((code, err), (2, f"error: {taken}: exists and was not made by trireme-postproc. Remove it, or name another file\n"))
                os.remove(taken)
        self.assertEqual(sorted(os.listdir(self.directory)), ["other.h5", "run.h5"])

    def test_a_picture_does_not_replace_its_data(self):
        data = self.directory + "/data.png"
        made_up.write(data, steps=5)
        for words in (("plot", data, "-o", data), ("prediction", data), ("ablation", data), ("rates", data)):
            self.assertIn("the picture would replace its data", self.refused(*words))

    def test_the_picture_shows_names_and_units_of_the_file(self):
        made_up.write(self.path, steps=120, units={"loss": "bit/byte"})
        text = self.svg()
        for part in ("loss [bit/byte]", "speed [tokens/s]", "time, mean of ranks [ms]", "validation",
                     "model.backward  50.0 %", "rest  8.0 %", "made-up", "2 ranks"):
            self.assertIn(f">{part}", text, part)

    def test_a_slow_step_is_named_above_the_others(self):
        for steps, where in ((20, "step 5"), (120, "steps 5 to 6")):
            made_up.write(self.path, steps=steps)
            with h5py.File(self.path, "a") as file:
                rows = file["timings/samples"][:]
                rows["duration_s"][(rows["step"] == 5) & (rows["name"] == 0)] = 1.0
                file["timings/samples"][:] = rows
            self.assertRegex(self.svg(), rf"text-anchor: end[^>]*>↑ {where}: {'1 000' if steps == 20 else '550'} ms<")

    def test_a_run_that_measured_its_noise_scale(self):
        made_up.write(self.path, steps=20)
        self.assertEqual(run("plot", self.directory)[0], 0)
        without = png_size(self.directory + "/run.png")
        self.assertNotIn("noise scale", run("summary", self.path)[1])
        for steps in (1, 20):
            made_up.write(self.path, steps=steps, noise_scale=40000.0)
            self.assertEqual(run("plot", self.directory)[0], 0)
            width, height = png_size(self.directory + "/run.png")
            self.assertEqual(width, without[0])
            self.assertGreater(height, 1.3 * without[1])
        self.assertRegex(run("summary", self.path)[1], r"noise scale, last +40 000 tokens")
        text = self.svg()
        for part in ("noise scale [tokens]", "Gradient noise scale", "smoothed", "batch of a step"):
            self.assertIn(f">{part}", text, part)
        made_up.write(self.path, steps=5, noise_scale=float("nan"))
        self.assertEqual(run("plot", self.path)[0], 0)
        self.assertIn("not known", run("summary", self.path)[1])
        with h5py.File(self.path, "r+") as file:
            del file["noise_scale/trace"]
        self.assertEqual(run("plot", self.path)[0], 0)

    def test_a_run_with_evaluation_sets(self):
        made_up.write(self.path, steps=20)
        self.assertEqual(run("plot", self.directory)[0], 0)
        without = png_size(self.directory + "/run.png")
        self.assertNotIn("set ", run("summary", self.path)[1])
        unknown = [float("nan")] * 3
        told = {"code": {"step": [0, 100, 200], "loss": [4.0, 3.0, 2.5], "bits_per_byte": [2.0, 1.5, 1.25], "accuracy": unknown},
                "choices": {"step": [0, 100, 200], "loss": unknown, "accuracy": [0.25, 0.26, 0.2842], "accuracy_error": [0.0043, 0.0044, 0.0045],
                            "accuracy_per_character": [0.3, float("nan"), 0.33], "accuracy_per_character_error": [0.01, 0.01, 0.0112]}}
        for sets, rows in (({"code": told["code"]}, 1), ({"choices": told["choices"]}, 1), (told, 2)):
            made_up.write(self.path, steps=20, sets=sets)
            self.assertEqual(run("plot", self.directory)[0], 0)
            width, height = png_size(self.directory + "/run.png")
            self.assertEqual(width, without[0])
            self.assertAlmostEqual(height - without[1], rows * 3.2 * 130, delta=1)
        text = run("summary", self.path)[1]
        self.assertRegex(text, r"(?m)^set code, first +4\.000 nat/token, 2\.000 bit/byte \(step 0\)$")
        self.assertRegex(text, r"(?m)^set code, last +2\.500 nat/token, 1\.250 bit/byte \(step 200\)$")
        self.assertRegex(text, r"(?m)^set choices, last +accuracy 28\.42 ± 0\.45 %, per character 33\.00 ± 1\.12 % \(step 200\)$")
        shown = self.svg()
        for part in ("Losses of evaluate.sets", "loss [nat/token]", "code  2.500 nat/token", "Multiple choice of evaluate.sets",
                     "right answers [%]", "choices, accuracy  28.42 ± 0.45 %", "choices, per character  33.00 ± 1.12 %"):
            self.assertIn(f">{part}", shown, part)
        # One row is drawn as a point. A set that was not evaluated yet is not drawn.
        made_up.write(self.path, steps=5, sets={"code": {"step": [0], "loss": [4.0]}, "later": {"step": [], "loss": []}})
        self.assertEqual(run("plot", self.path)[0], 0)
        self.assertRegex(run("summary", self.path)[1], r"(?m)^set code +4\.000 nat/token \(step 0\)$")
        self.assertNotIn("later", run("summary", self.path)[1])
        with h5py.File(self.path, "r+") as file:
            del file["evaluation/code/step"]
        self.assertEqual(run("plot", self.path)[0], 0)

    def sweep(self, **changes):
        """A file of trireme find-rate with some entries changed."""
        found = {"filetype": "trireme-rates", "version": [1, 0], "ended": "", "suggested": 1e-3, "steepest": 1e-3, "diverges": None,
                 "rate": [1e-4, 1e-3, 1e-2], "loss": [5.0, 4.0, 4.5], "smoothed": [5.0, 4.1, 4.4], "slope": [-1.0, -1.0, 1.0], **changes}
        path = self.directory + "/sweep.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(found, file)
        return path

    def test_a_sweep_of_the_learning_rate(self):
        for changes in ({}, {"diverges": 0.01}, {"suggested": None, "steepest": None},
                        {"rate": [0.1], "loss": [2.0], "smoothed": [2.0], "slope": [0.0]}):
            with self.subTest(changes):
                code, out, err = run("rates", self.sweep(**changes))
                self.assertEqual((code, err), (0, ""))
                self.assertEqual(out, f"picture: {self.directory}/sweep.png\n")
                self.assertGreater(png_size(self.directory + "/sweep.png")[0], 1000)

    def test_refuses_what_is_no_sweep(self):
        self.assertIn("does not exist", self.refused("rates", self.directory + "/none.json"))
        for changes, text in (({"filetype": "x"}, "its filetype is not 'trireme-rates'"), ({"version": [2, 0]}, "version [2, 0]"),
                              ({"loss": [1.0, "x", 2.0]}, "'loss' is not a list of numbers"), ({"loss": [1.0]}, "another number than"),
                              ({"rate": [0.0, 0.1, 0.2]}, "not positive"), ({"loss": None}, "'loss' is not a list"),
                              ({"loss": [1.0, float("nan"), 2.0]}, "'loss' is not a list"), ({"steepest": "low"}, "'steepest' is not a number")):
            self.assertIn(text, self.refused("rates", self.sweep(**changes)))
        path = self.sweep()
        self.assertIn("would replace its data", self.refused("rates", path, "-o", path))
        self.assertIn("must end in one of", self.refused("rates", path, "-o", path + "x"))
        with open(path, "w", encoding="utf-8") as file:
            file.write("{")
        self.assertIn("is not JSON", self.refused("rates", path))

    def test_plots_of_incomplete_runs(self):
        for options in (
            {"steps": 0, "validation": False, "spans": False},
            {"steps": 0},
            {"steps": 1},
            {"steps": 2, "validation": False},
            {"steps": 70, "spans": False},
        ):
            with self.subTest(options):
                made_up.write(self.path, wanted=100, **options)
                code, _, err = run("plot", self.path)
                self.assertEqual((code, err), (0, ""))

    def test_refuses_what_is_unknown(self):
        for version in ((1, 5), (2, 0)):
            made_up.write(self.path, version=version)
            self.assertIn(f"is format version {version[0]}.{version[1]} and this program reads 1.0", self.refused("summary", self.path))
        made_up.write(self.path, filetype="trireme-checkpoint")
        self.assertIn("filetype is 'trireme-checkpoint', expected 'trireme-run'", self.refused("plot", self.path))
        with h5py.File(self.path, "w"):
            pass
        self.assertIn("has no attribute 'filetype'", self.refused("summary", self.path))
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("not HDF5")
        self.assertIn("cannot be read as an HDF5 file", self.refused("summary", self.path))

    def test_a_truncated_file(self):
        made_up.write(self.path)
        os.truncate(self.path, os.path.getsize(self.path) // 2)
        self.assertIn("cannot be read", self.refused("summary", self.path))

    def test_missing_runs(self):
        self.assertIn("holds no run.h5", self.refused("summary", self.directory))
        self.assertIn("does not exist", self.refused("summary", self.directory + "/nothing"))
        with open(self.directory + "/steps.jsonl", "wb"):
            pass
        self.assertIn(f"`trireme record {self.directory}` writes it from steps.jsonl", self.refused("summary", self.directory))

    def test_pictures_that_cannot_be_written(self):
        made_up.write(self.path, steps=2)
        self.assertIn("must end in one of .png, .pdf, .svg", self.refused("plot", self.path, "-o", "picture.xyz"))
        code, _, err = run("plot", self.path, "-o", "/proc/run.png")
        self.assertEqual((code, err[:22]), (3, "error: /proc/run.png: "))

    def test_a_reader_that_leaves_early(self):
        made_up.write(self.path)
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "trireme_postproc.cli", "summary", self.path],
                stdout=writer,
                stderr=subprocess.PIPE,
                check=False,
            )
        finally:
            os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_an_output_that_is_closed_or_takes_ascii_alone(self):
        made_up.write(self.path, steps=5, wanted=9)
        with h5py.File(self.path, "a") as file:
            file["deck"].attrs["run.name"] = "größer"
        words, given = [sys.executable, "-m", "trireme_postproc.cli"], {"capture_output": True, "text": True, "check": False}
        done = subprocess.run([*words, "watch", self.path, "--once"], env={**os.environ, "PYTHONIOENCODING": "ascii"}, **given)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(r"gr\xf6\xdfer", done.stdout)
        done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words, "summary", self.path], **given)
        self.assertEqual(done.returncode, 3)
        self.assertIn("error: the standard output is closed", done.stderr)

    def test_an_interrupt_is_quiet(self):
        made_up.write(self.path, steps=5)
        with mock.patch("trireme_postproc.summary.summary", side_effect=KeyboardInterrupt):
            self.assertEqual(run("summary", self.path), (130, "", ""))

    def test_times_that_are_none(self):
        made_up.write(self.path, steps=5)
        for words in (("report", self.path, "-o", self.directory + "/a.html", "--watch"), ("watch", self.path)):
            for every in ("-1", "nan", "inf", "1e30"):
                self.assertIn("--every and --timeout must be", self.refused(*words, "--every", every))

    def test_a_file_that_is_being_written(self):
        made_up.write(self.path, steps=5)
        with h5py.File(self.path, "a") as file:
            file.flush()
            done = subprocess.run(
                [sys.executable, "-m", "trireme_postproc.cli", "summary", self.path],
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("5 of 5", done.stdout)


if __name__ == "__main__":
    unittest.main()
