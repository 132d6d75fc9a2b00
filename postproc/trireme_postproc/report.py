# SPDX-License-Identifier: Apache-2.0
"""Writes one self-contained HTML file about one or several runs. Its content depends only on the records of the runs.

Texts from the records are escaped, or are in a JSON block that the browser does not execute. The Content-Security-Policy of the page only
allows the script and the style of this package, which it identifies by their hashes.
"""

import base64
import hashlib
import json
import os
import time

from . import report_tables as tables
from .findings import findings
from .heat_map import heat_maps
from .output_file import MAKER, ending_of, new_file
from .report_data import charts, step_picture
from .report_tables import escape
from .run_file import RunFileError, locate, names_of, read_while_written
from .run_log import FILE as LOG
from .watch import ended, signature_of, state_of

ENDINGS = (".html", ".htm")


def _asset(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return file.read()


def _hash(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def _json(value):
    """Returns JSON in which no HTML tag can begin or end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _findings(runs, names):
    parts = []
    for run, name in zip(runs, names):
        if len(runs) > 1:
            parts.append(f"<h3>{escape(name)}</h3>")
        found = findings(run)
        items = "".join(f"<li>{escape(text)}</li>" for text in found)
        parts.append(f"<ul class=findings>{items}</ul>" if found else "<p>Nothing remarkable.</p>")
    return "\n".join(parts)


def _drawn(kind, position, title, note=""):
    sub = f"<p class=note>{escape(note)}</p>" if note else ""
    return f"<h3>{escape(title)}</h3>{sub}<div data-{kind}={position}></div>"


def _times(runs, names, steps, chosen):
    parts = []
    for position, (run, name, picture) in enumerate(zip(runs, names, steps)):
        if len(runs) > 1:
            parts.append(f"<h3>{escape(name)}</h3>")
        parts.append(tables.times_table(run))
        if picture and "left_out" in picture:
            parts.append(f"<p class=note>{escape(picture['left_out'])}</p>")
        elif picture:
            note = f"{'The step that was chosen' if chosen else 'A step that took the median time'}; {picture['note']}."
            parts.append(_drawn("timeline", position, picture["title"], note))
    return "\n".join(parts)


def page(runs, step=None, refresh_s=None):
    """Returns the whole file as text. `refresh_s`: interval in seconds at which a browser reloads the page."""
    names = names_of(runs)
    script, style = _asset("report.js"), _asset("report.css")
    curves = charts(runs, names)
    steps = [step_picture(run, step) for run in runs]
    drawn = "\n".join(_drawn("chart", at, chart["title"], chart["note"]) for at, chart in enumerate(curves))
    title = ", ".join(names)
    sections = [
        ("What to look at", _findings(runs, names)),
        ("Results", tables.results_table(runs, names)),
        ("Curves", drawn or "<p>No steps were recorded.</p>"),
        *([("Norms by layer", maps)] if (maps := heat_maps(runs, names)) else []),
        ("Where the time of a step went", _times(runs, names, steps, step is not None)),
        ("Evaluation", tables.evaluation_tables(runs, names)),
        ("Deck", tables.deck_tables(runs, names)),
        ("Machine and build", tables.machine_tables(runs, names)),
    ]
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    body = "\n".join(f"<section><h2>{escape(head)}</h2>\n{content}\n</section>" for head, content in sections)
    return (
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        f"<meta name=generator content={MAKER}>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{'' if refresh_s is None else f'<meta http-equiv=refresh content={max(1, round(refresh_s))}>' + chr(10)}"
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        "<p class=sub>Made by trireme-postproc report. Move the pointer over a curve for its values, drag to zoom.</p>\n"
        "<noscript><p>The curves need JavaScript, which is in this file; the tables do not.</p></noscript>\n"
        f"{body}\n<script type=application/json id=data>{_json({'charts': curves, 'timelines': steps})}</script>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def write_report(runs, output, step=None, refresh_s=None):
    if ending_of(output) not in ENDINGS:
        raise RunFileError(f"{output}: a report's name must end in .html")
    text = page(runs, step, refresh_s)
    with new_file(output) as file:
        file.write(text.encode("utf-8", "replace"))  # file names may contain bytes that are not UTF-8


def watch_report(paths, output, step=None, every_s=2.0, timeout_s=900.0, clock=time.monotonic, pause=time.sleep):
    """Writes the report again whenever a record changes, until all runs have ended. Tests replace `clock` and `pause`."""
    files = [locate(path) for path in paths]
    logs = [os.path.join(os.path.dirname(file), LOG) for file in files]
    words, changed, signature = [None] * len(files), clock(), None
    while True:
        before, words = words, [state_of(file) for file in files]  # before reading: all that an ended process wrote is then read
        now = signature_of(*files, *logs)
        if signature != now:
            signature, changed = now, clock()
            runs = [read_while_written(file) for file in files]
            write_report(runs, output, step, every_s)
        if all(ended(run, last, word, clock() - changed, timeout_s) for run, last, word in zip(runs, before, words)):
            write_report(runs, output, step)
            return
        pause(every_s)
