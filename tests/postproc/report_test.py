# SPDX-License-Identifier: Apache-2.0
import html.parser
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import h5py
import numpy as np

import made_up
from browser import Browser, NoBrowser
from cli_test import run
from trireme_postproc import report_data
from trireme_postproc.findings import exposed_percent, findings, waits
from trireme_postproc.report import watch_report
from trireme_postproc.resolved_deck import is_given, keys_given
from trireme_postproc.run_file import RunFile

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">'\"&"
ID = {row[0]: position for position, row in enumerate(made_up.SPANS)}


class Parser(html.parser.HTMLParser):
    """Collects tags with their attributes, text outside of script and style, and the contents of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.scripts, self.inside = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.inside = tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        {"script": self.scripts, "style": []}.get(self.inside, self.text).append(data)


class ReportTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = temporary.name
        self.path = made_up.write(self.directory + "/run.h5", steps=100, sets={
            "code": {"step": [0, 100], "loss": [4.0, 2.5]}, "choices": {"step": [100], "accuracy": [0.2842], "accuracy_error": [0.0045]}})
        self.output = self.directory + "/report.html"

    def lock(self, process):
        with open(self.directory + "/lock", "w", encoding="utf-8") as file:
            file.write(f"process {process} on {socket.gethostname()}\n")

    def report(self, *runs):
        code, out, err = run("report", *(runs or (self.path,)), "--output", self.output)
        self.assertEqual((code, out, err), (0, f"report: {self.output}\n", ""))
        with open(self.output, encoding="utf-8") as file:
            text = file.read()
        page = Parser(text)
        return text, page, json.loads(next(script for script in page.scripts if script.startswith("{")))

    def test_curves(self):
        _, page, data = self.report()
        charts = {chart["title"]: chart for chart in data["charts"]}
        self.assertEqual(list(charts)[:3], ["Loss", "Losses of evaluate.sets", "Multiple choice of evaluate.sets"])
        with h5py.File(self.path) as file:
            losses, checked = file["steps/loss"][:], file["validation/loss"][:]
        faint, smoothed, validation = charts["Loss"]["series"]
        np.testing.assert_allclose(faint["y"], losses, rtol=1e-6)
        self.assertEqual(smoothed["y"][50], float(f"{np.median(losses[48:53]):.7g}"))
        np.testing.assert_allclose(validation["y"], checked, rtol=1e-6)
        self.assertEqual((validation["x"]["step"][1], validation["x"]["tokens"][1], validation["unit"]), (12, 12 * 4096, "nat/token"))
        self.assertEqual(charts["Loss"]["y"], "loss [nat/token]")
        choices = charts["Multiple choice of evaluate.sets"]["series"][0]
        self.assertEqual((choices["name"], choices["y"], choices["error"]), ("choices, accuracy", [28.42], [0.45]))
        self.assertIn("28.42 ± 0.45 %", "".join(page.text))
        self.assertEqual(len([tag for tag, attributes in page.tags if "data-chart" in attributes]), len(data["charts"]))

    def test_norms_by_layer_are_maps_with_the_value_of_each_cell(self):
        path = made_up.write(self.directory + "/norms.h5", steps=400, layers=5)
        self.assertEqual(run("report", path, "-o", self.output)[0], 0)
        with open(self.output, encoding="utf-8") as file:
            text = file.read()
        page = Parser(text)
        cells = [values for tag, values in page.tags if tag == "rect" and values.get("fill-opacity")]
        self.assertEqual(len(cells), 2 * 5 * 100)
        for told in ("embeddings", "block 2", "final layer"):
            self.assertIn(told, page.text)
        self.assertIn("block 0, steps 2 to 4: 2.000", page.text)
        opacity = {row: float(values["fill-opacity"]) for row, values in zip((0, 4), (cells[0], cells[4 * 100]))}
        self.assertEqual(opacity, {0: 0.04, 4: 1.0})
        self.assertEqual(run("report", self.path, "-o", self.output)[0], 0)
        with open(self.output, encoding="utf-8") as file:
            self.assertNotIn("Norms by layer", file.read())

    def test_timeline_of_a_step(self):
        _, page, data = self.report()
        rows = data["timelines"][0]["rows"]
        self.assertEqual([row["label"] for row in rows], ["rank 0", "bucket 0", "bucket 1", "rank 1", "bucket 0", "bucket 1"])
        self.assertEqual([bar[:2] for bar in rows[1]["bars"]], [[72, 3]])
        self.assertTrue(rows[1]["bars"][0][3].startswith("reduce.bucket: 3 ms from 72 ms, bucket 0"))
        text = " ".join("".join(page.text).split())
        self.assertIn("model.backward", text)
        self.assertIn("50.0 %", text)

    def test_a_step_with_too_many_spans_for_a_page(self):
        """Only the timeline is left out."""
        whole = self.report()[1]
        with mock.patch.object(report_data, "MOST_BARS", 10):
            _, page, data = self.report("--step", "7", self.path)
        self.assertEqual(data["charts"], json.loads(next(script for script in whole.scripts if script.startswith("{")))["charts"])
        self.assertEqual(len([tag for tag, attributes in whole.tags if "data-timeline" in attributes]), 1)
        self.assertEqual([tag for tag, attributes in page.tags if "data-timeline" in attributes], [])
        self.assertIn(f"The timeline of step 7 is left out: it has 28 spans, and a page takes at most 10. To draw it, or some of its ranks with --ranks: "
                      f"trireme-postproc timeline {self.path} --step 7 --png step.png", "".join(page.text))

    def test_needs_no_network_and_runs_only_its_own_script(self):
        text, page, _ = self.report()
        for tag, attributes in page.tags:
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "base"))
            self.assertFalse({"src", "href", "style"} & set(attributes), (tag, attributes))
            self.assertFalse([name for name in attributes if name.startswith("on")], (tag, attributes))
        policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy")
        self.assertTrue(policy.startswith("default-src 'none'; script-src 'sha256-"), policy)
        self.assertNotIn("unsafe", policy)
        self.assertEqual(re.findall(r"https?://[^\s\"']+", text), ["http://www.w3.org/2000/svg"])

    def hostile(self):
        """A run in which every text tries to inject a script."""
        with h5py.File(self.path, "a") as file:
            for key in ("run.name", "model.layers", HOSTILE.replace("/", "")):
                file["deck"].attrs[key] = HOSTILE
            for key in ("machine", "software", "date_and_time", "parameters", HOSTILE):
                file.attrs[key] = HOSTILE
            names = file["timings/names"]
            names.attrs["help_of"] = [text + HOSTILE for text in names.attrs["help_of"]]
            names.attrs["index_of"] = [HOSTILE if text else "" for text in names.attrs["index_of"]]
            file["timings/names"][ID["optim.step"]] = HOSTILE
            file["steps/loss"].attrs["units"] = HOSTILE
            file["steps/tokens_per_s"].attrs["units"] = HOSTILE
            file["evaluation"].move("code", HOSTILE.replace("/", ""))
            file["memory"].attrs[HOSTILE] = 5
            file["timings"].attrs[HOSTILE] = 5.0
            file["sessions/machine"], file["sessions/first_step"] = [HOSTILE], [1]
            for name, values in (("first_step", [1]), ("bucket", [0]), ("first_parameter", [HOSTILE]), ("last_parameter", [HOSTILE])):
                file[f"buckets/{name}"] = values

    def test_hostile_texts_stay_texts(self):
        _, honest, _ = self.report()
        self.hostile()
        text, page, data = self.report()
        self.assertIn("document.title='taken'", "".join(page.text))
        self.assertEqual({tag for tag, _ in page.tags}, {tag for tag, _ in honest.tags})
        self.assertEqual(len(page.scripts), len(honest.scripts))
        self.assertIn(HOSTILE, data["charts"][0]["y"])
        self.assertNotIn("<img", text)
        self.assertNotIn("</script><", text.replace("</script>\n<", ""))

    def test_hostile_texts_in_a_browser(self):
        self.hostile()
        _, _, data = self.report()
        with open_browser(self) as browser:
            browser.open("file://" + self.output)
            self.assertEqual(browser.errors, [])
            self.assertEqual(browser.evaluate("document.title"), HOSTILE)
            self.assertEqual(browser.evaluate("document.querySelectorAll('[role=img]').length"), len(data["charts"]) + 1)

    def test_several_runs_and_incomplete_ones(self):
        for name, options in (("empty", {"steps": 0, "validation": False, "spans": False}), ("cut", {"steps": 3, "wanted": 50}),
                              ("long", {"steps": 4000, "spans": False})):
            os.mkdir(f"{self.directory}/{name}")
            path = made_up.write(f"{self.directory}/{name}/run.h5", **options)
            self.report(path)
            _, page, data = self.report(self.path, path)
            self.assertIn("Differences between the runs", "".join(page.text))
            self.assertEqual(len(data["timelines"]), 2)
        curve = data["charts"][0]["series"][3]
        self.assertEqual(len(curve["y"]), 1334)  # medians of 3 steps each

    def test_the_deck(self):
        with open(self.directory + "/deck.resolved.yaml", "w", encoding="utf-8") as file:
            file.write("# Every key\nrun:\n  name: x     # deck.yaml:1:2\n  steps: 100   # default\nmodel:\n  layers: 4    # command line:1:2\n"
                       "  deep:\n    er: 1  # default\n")
        given = keys_given(RunFile(self.path))
        self.assertEqual(given, {"run.name", "model.layers"})
        self.assertTrue(is_given("model.layers", given) and not is_given("model.deep.er", given) and not is_given("model.layer", given))
        text = "".join(self.report()[1].text)
        self.assertLess(text.index("model.layers"), text.index("2 keys with their defaults"))
        self.assertGreater(text.index("model.channels"), text.index("2 keys with their defaults"))
        os.remove(self.directory + "/deck.resolved.yaml")
        self.assertIn("there is no deck.resolved.yaml next to the record", "".join(self.report()[1].text))

    def test_watch_writes_the_report_until_the_run_ends(self):
        made_up.write(self.path, steps=2, wanted=6)
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        self.lock(os.getpid())
        seen = []

        def pause(seconds):
            with open(self.output, encoding="utf-8") as file:
                text = file.read()
            seen.append(re.search(r"http-equiv=refresh content=(\d+)", text).group(1))
            made_up.write(self.path, steps=2 * (1 + len(seen)), wanted=6)
            if len(seen) == 2:
                self.lock(ended.pid)

        watch_report([self.path], self.output, every_s=3.0, pause=pause)
        self.assertEqual(seen, ["3", "3"])
        with open(self.output, encoding="utf-8") as file:
            text = file.read()
        self.assertNotIn("http-equiv=refresh", text)
        data = json.loads(next(script for script in Parser(text).scripts if script.startswith("{")))
        self.assertEqual(len(data["charts"][0]["series"][0]["y"]), 6)
        self.assertEqual([name for name in os.listdir(self.directory) if name.endswith(".part")], [])

    def test_an_interrupted_watch_leaves_a_report_of_the_newest_record(self):
        made_up.write(self.path, steps=2, wanted=6)

        def interrupted(*_):
            made_up.write(self.path, steps=4, wanted=6)
            raise KeyboardInterrupt

        with mock.patch("trireme_postproc.report.watch_report", interrupted):
            self.assertEqual(run("report", self.path, "--output", self.output, "--watch")[0], 0)
        with open(self.output, encoding="utf-8") as file:
            data = json.loads(next(script for script in Parser(file.read()).scripts if script.startswith("{")))
        self.assertEqual(len(data["charts"][0]["series"][0]["y"]), 4)

    def test_refuses(self):
        for arguments, text in ((("--output", self.path), "must end in .html"), (("--output", self.output, "--step", "777"), "no spans of step 777")):
            code, out, err = run("report", self.path, *arguments)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1))
            self.assertIn(text, err)
        self.assertEqual(run("report", self.path, "-o", self.directory + "/none/x.html")[0], 2)


def open_browser(test, **options):
    """Starts a browser. Skips the test if none starts."""
    try:
        return Browser(**options)
    except NoBrowser as why:
        print(f"skipped: the report in a browser: {why}")
        raise unittest.SkipTest(str(why)) from None


class PageTest(unittest.TestCase):
    """The page in a real browser, with pointer events. Positions are in the coordinates of a chart, which is 900 wide."""

    def setUp(self):
        self.browser = open_browser(self)
        self.addCleanup(self.browser.close)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        path = made_up.write(temporary.name + "/run.h5", steps=100, sets={"choices": {"step": [100], "accuracy": [0.28], "accuracy_error": [0.01]}})
        output = temporary.name + "/report.html"
        self.assertEqual(run("report", path, "--output", output)[0], 0)
        self.browser.open("file://" + output)
        self.data = json.loads(self.browser.evaluate("document.getElementById('data').textContent"))

    def tearDown(self):
        self.assertEqual(self.browser.errors, [])

    def of(self, drawing, expression):
        """The value of a JavaScript expression in which `node` is the element of a drawing (such as `chart="0"`)."""
        return self.browser.evaluate(f"(() => {{ const node = document.querySelector('[data-{drawing}]'); return {expression}; }})()")

    def place(self, drawing, x, y):
        """The position in the window of a point in a drawing, after scrolling the drawing into view."""
        left, top, width, height = self.of(drawing, """(() => { const svg = node.querySelector('svg[role=img]'); svg.scrollIntoView({block: 'center'});
            const at = svg.getBoundingClientRect(); return [at.left, at.top, at.width / svg.viewBox.baseVal.width, at.height / svg.viewBox.baseVal.height]; })()""")
        return left + x * width, top + y * height

    def move(self, drawing, x, y):
        self.browser.pointer("mouseMoved", *self.place(drawing, x, y))

    def box(self, drawing):
        """The lines of the box next to the pointer."""
        return self.of(drawing, "node.querySelector('.box').hidden ? [] : [...node.querySelectorAll('.box div')].map((line) => line.textContent)")

    def ticks(self, drawing):
        """Labels of the x axis."""
        return self.of(drawing, "[...node.querySelectorAll('svg[role=img] text[text-anchor=middle]')].map((one) => one.textContent)"
                                ".filter((text) => /^[0-9.]/.test(text))")

    def test_every_curve_lies_in_its_drawing(self):
        for at, chart in enumerate(self.data["charts"]):
            drawing = f'chart="{at}"'
            paths = self.of(drawing, "[...node.querySelectorAll('svg[role=img] path')].map((path) => { const box = path.getBBox();"
                                     " return [path.getAttribute('stroke'), path.getTotalLength(), box.x, box.y, box.x + box.width, box.y + box.height]; })")
            with self.subTest(chart["title"]):
                self.assertEqual([colour for colour, *_ in paths], [series["colour"] for series in chart["series"]])
                for series, (_, length, left, top, right, bottom) in zip(chart["series"], paths):
                    if len(series["y"]) > 1:
                        self.assertGreater(length, 700)
                    self.assertTrue(70 <= left <= right <= 886.01 and 10 <= top <= bottom <= 264.01, (left, top, right, bottom))
                colours = self.of(drawing, "[...node.querySelectorAll('.legend line')].map((line) => line.getAttribute('stroke'))")
                self.assertEqual(colours, [series["colour"] for series in chart["series"] if not series.get("faint")])

    def test_pointer_and_zoom(self):
        drawing, (_, training, validation) = 'chart="0"', self.data["charts"][0]["series"]
        self.move(drawing, 478, 100)  # the middle of steps 0 to 100
        self.assertEqual(self.box(drawing), ["step 50", f"training: {training['y'][49]:.6g} nat/token",
                                             f"validation: {validation['y'][4]:.6g} nat/token (step 48)"])
        self.move(drawing, 30, 100)  # left of the axis
        self.assertEqual(self.box(drawing), [])

        whole = self.ticks(drawing)
        self.assertEqual(whole[:6], ["0", "20", "40", "60", "80", "100"])
        self.browser.pointer("mousePressed", *self.place(drawing, 70 + 0.4 * 816, 100))
        self.move(drawing, 70 + 0.6 * 816, 120)
        self.browser.pointer("mouseReleased", *self.place(drawing, 70 + 0.6 * 816, 120))
        zoomed = [float(text) for text in self.ticks(drawing)]
        self.assertGreater(len(zoomed), 2)
        self.assertTrue(40 <= zoomed[0] and zoomed[-1] <= 60, zoomed)
        self.move(drawing, 478, 100)
        self.assertEqual(self.box(drawing)[0], "step 50")
        self.browser.click(*self.of(drawing, "(() => { const at = node.querySelector('.reset').getBoundingClientRect(); return [at.x + 5, at.y + 5]; })()"))
        self.assertEqual(self.ticks(drawing), whole)

    def test_legend_and_axis(self):
        drawing = 'chart="0"'
        self.place(drawing, 0, 0)
        self.browser.click(*self.of(drawing, "(() => { const at = node.querySelector('button.entry').getBoundingClientRect(); return [at.x + 30, at.y + 8]; })()"))
        self.assertEqual(self.of(drawing, "node.querySelectorAll('svg[role=img] path').length"), 1)
        self.move(drawing, 478, 100)
        self.assertEqual([line.split(":")[0] for line in self.box(drawing)], ["step 48", "validation"])
        self.of(drawing, "(() => { const choice = node.querySelector('select'); choice.selectedIndex = 1; choice.dispatchEvent(new Event('change')); })()")
        self.move(drawing, 478, 100)
        self.assertEqual(self.box(drawing)[0], "tokens 196 608")

    def test_timeline_of_a_step(self):
        drawing, rows = 'timeline="0"', self.data["timelines"][0]["rows"]
        self.assertEqual(self.of(drawing, "node.querySelectorAll('svg[role=img] g rect').length"), sum(len(row["bars"]) for row in rows))
        low, high = self.data["timelines"][0]["extent"]
        begin, length, *_ = rows[1]["bars"][0]
        self.move(drawing, 150 + (begin + length / 2 - low) / (high - low) * 736, 6 + 22 + 11)
        self.assertEqual(self.box(drawing), ["bucket 0", "reduce.bucket: 3 ms from 72 ms, bucket 0"])
        entries = self.of(drawing, "[...node.querySelectorAll('.legend svg > rect')].map((one) => one.getAttribute('fill'))")
        self.assertEqual(len(entries), len(self.data["timelines"][0]["legend"]))
        self.assertEqual(len(entries), len(set(entries)), "two kinds of span look the same")

    def test_a_lone_point_with_its_error(self):
        at = next(at for at, chart in enumerate(self.data["charts"]) if chart["title"].startswith("Multiple choice"))
        drawing = f'chart="{at}"'
        self.assertEqual(self.ticks(drawing), ["100"])  # no fractions of a step
        heights = self.of(drawing, "[...node.querySelectorAll('line.error')].map((one) => one.getBBox().height)")
        self.assertEqual(len(heights), 1)
        self.assertGreater(heights[0], 200)  # the full height except for margins

    CONTRASTS = """(() => {
        const linear = (part) => part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
        const luminance = (colour) => { const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => linear(part / 255));
                                        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const paper = luminance(getComputedStyle(document.body).backgroundColor);
        const contrast = (colour) => { const own = luminance(colour); return (Math.max(own, paper) + 0.05) / (Math.min(own, paper) + 0.05); };
        const words = [...document.querySelectorAll('body *')].filter((one) => one.tagName != 'SCRIPT' && one.closest('select, button.reset') === null &&
            [...one.childNodes].some((child) => child.nodeType == 3 && child.textContent.trim()));
        const texts = words.map((one) => [contrast(getComputedStyle(one)[one.tagName == 'text' ? 'fill' : 'color']), one.textContent]);
        const drawn = [...document.querySelectorAll('svg path[stroke^="#"], svg rect[fill^="#"]')];
        const marks = drawn.map((one) => { const style = getComputedStyle(one);
                                           return [contrast(style.stroke == 'none' ? style.fill : style.stroke), one.outerHTML]; });
        const least = (found) => found.reduce((one, other) => one[0] < other[0] ? one : other);
        return [texts.length, ...least(texts), marks.length, ...least(marks)]; })()"""

    def test_contrast_on_light_and_dark_pages(self):
        address = self.browser.evaluate("location.href")
        for scheme in ("light", "dark"):
            self.browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.browser.open(address)
            texts, text_contrast, text, marks, mark_contrast, mark = self.browser.evaluate(self.CONTRASTS)
            self.assertGreater(min(texts, marks), 30)
            self.assertGreaterEqual(text_contrast, 4.5, (scheme, text))  # WCAG 2.1, 1.4.3 and 1.4.11
            self.assertGreaterEqual(mark_contrast, 2.99, (scheme, mark))

    def test_a_phone(self):
        self.browser.send("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        self.browser.send("Emulation.setTouchEmulationEnabled", enabled=True)
        self.browser.open(self.browser.evaluate("location.href"))
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 390)
        heights = self.browser.evaluate("[...document.querySelectorAll('svg[role=img] text:not([transform])')].map((one) => one.getBoundingClientRect().height)")
        self.assertGreaterEqual(min(heights), 11)
        x, y = self.place('chart="0"', 200, 100)
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
            self.browser.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        self.assertRegex(self.box('chart="0"')[0], "^step [0-9]+$")
        self.browser.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.browser.send("Input.dispatchTouchEvent", type="touchMove", touchPoints=[{"x": x + 60, "y": y}])
        self.browser.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.assertGreater(float(self.ticks('chart="0"')[0]), 10, "a drag to the side zooms")

    def test_nothing_is_wider_than_the_page(self):
        for width in (1100, 480):
            self.browser.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)


class FindingsTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = made_up.write(temporary.name + "/run.h5", steps=10, noise=0)

    def found(self, change):
        """Findings after `change` has modified the samples and the file."""
        with h5py.File(self.path, "a") as file:
            rows = file["timings/samples"][:]
            change(rows, file)
            file["timings/samples"][:] = rows
        return "\n".join(findings(RunFile(self.path)))

    def test_nothing_remarkable(self):
        self.assertEqual(findings(RunFile(self.path)), [])
        # Two waits of 2 ms in each of 10 steps on 2 ranks.
        self.assertAlmostEqual(exposed_percent(RunFile(self.path)), 4.0)
        self.assertEqual({key: round(value, 9) for key, value in waits(RunFile(self.path)).items()}, {("reduce.exposed", 0): 0.04, ("reduce.exposed", 1): 0.04})

    def exposed(self, rows, ready, queue, length, late=1.0):
        """Sets bucket 1 of every rank: ready `ready` seconds before compute ends, then `queue` in the queue and `length` in its
        reduction."""
        at = (rows["name"] == ID["reduce.exposed"]) & (rows["index"] == 1)
        rows["duration_s"][at], rows["begin_s"][at] = 0.016, 0.1 * rows["step"][at] + 0.082
        buckets = rows["name"] == ID["reduce.bucket"]
        rows["duration_s"][buckets & (rows["rank"] == 0)] = length
        rows["duration_s"][buckets & (rows["rank"] == 1)] = length * late
        for row in np.flatnonzero(buckets & (rows["index"] == 1)):  # rows of data.next are reused for reduce.ready
            spare = np.flatnonzero((rows["name"] == ID["data.next"]) & (rows["rank"] == rows["rank"][row]) & (rows["step"] == rows["step"][row]))[0]
            rows[spare] = (rows["step"][row], 0, len(made_up.SPANS) - 1, 1, rows["rank"][row], 0.1 * rows["step"][row] + 0.082 - ready, queue)

    def with_ready(self, **what):
        def change(rows, file):
            file["timings/names"][len(made_up.SPANS) - 1] = "reduce.ready"
            self.exposed(rows, **what)

        return self.found(change)

    def test_why_communication_is_exposed(self):
        # 2 + 16 ms of 100 ms.
        for what, text in (
            ({"ready": 0.001, "queue": 0.0005, "length": 0.012},
             "communication is exposed for 18 % of the step: bucket 1 (89 % of it) is ready too late: 1.000 ms before compute ends, and its reduction takes 12.00 ms"),
            ({"ready": 0.02, "queue": 0.0005, "length": 0.03}, "the reduction of bucket 1 (89 % of it) takes 30.00 ms"),
            ({"ready": 0.02, "queue": 0.05, "length": 0.01}, "waits for the buckets before it: the network is the limit"),
            ({"ready": 0.02, "queue": 0.0, "length": 0.001, "late": 20.0}, "ranks are not equally fast: rank 0 comes last in 100 % of its recorded reductions"),
        ):
            with self.subTest(text):
                made_up.write(self.path, steps=10, noise=0)
                self.assertIn(text, self.with_ready(**what))

    def test_without_spans(self):
        made_up.write(self.path, steps=10, noise=0, spans=False)
        with h5py.File(self.path, "a") as file:
            file["steps/exposed_s"][:] = 0.018
        self.assertEqual(findings(RunFile(self.path)), ["communication is exposed for 18 % of the step"])

    def test_other_losses_of_time(self):
        def change(rows, file):
            rows["duration_s"][rows["name"] == ID["data.next"]] = 0.004
            file["timings"].attrs["ceiling_flops_per_s"] = 1e12  # per rank; both ranks together reach 204.8e9
            file["checkpoints/stall_s"] = [0.25]
            file["checkpoints/stall_s"].attrs["units"] = "s"
            for name, values in (("name", [ID["model.train"]] * 2), ("median_s", [1.0, 1.0]), ("max_s", [1.5, 1.1]), ("max_rank", [3, 3])):
                file[f"timings/ranks/{name}"] = values

        text = self.found(change)
        for part in ("fetching data takes 8 % of the step", "reaches 10 % of the arithmetic", "waited for checkpoints during 20 % of the time",
                     "the slowest spends 30 % more time in model.train than the median rank; most often it is rank 3"):
            self.assertIn(part, text)

    def test_checkpoints_of_a_run_that_recorded_few_steps(self):
        def change(_, file):
            file["checkpoints/stall_s"] = [0.25]
            file["checkpoints/stall_s"].attrs["units"] = "s"

        self.found(change)
        made_up.keep_rows(self.path, (5, 10))
        self.assertIn("waited for checkpoints during 20 % of the time", " ".join(findings(RunFile(self.path))))

    def test_the_course_of_a_run(self):
        def change(_, file):
            file["deck"].attrs["run.steps"] = "20"
            file["steps/loss"][4] = np.nan
            file["validation/loss"][-1] = 9.0
            file["skipped/step"], file["steps/allocations"][8] = [5, 6], 3
            file["timings"].attrs["dropped"] = 7.0

        text = self.found(change)
        for part in ("has not finished: 10 of 20 steps", "2 steps were skipped", "the first of them step 5", "the loss is not finite at step 5",
                     "the validation loss has risen: its last value is 9.000", "memory was still allocated", "7 spans were dropped"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()
