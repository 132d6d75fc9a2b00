# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests: opens a page, moves the pointer, evaluates JavaScript, takes a picture.

It is spoken to through the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) over two pipes, the browser's
descriptors 3 and 4, in JSON that ends with a zero byte: no port, no driver, no package.
"""

import base64
import collections
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PATIENCE = 120.0  # seconds for one answer: a busy machine is slow, a browser that hangs must not hang the tests
# Containers are often root's, without user namespaces for the sandbox, and with 64 MiB of /dev/shm. No display and no GPU is asked for.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
           "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe")


class NoBrowser(Exception):
    """There is none, or it does not start; says why."""


class BrowserError(Exception):
    """It started, and then failed or did not answer."""


class Browser:
    """A browser with one page; a context manager. `errors` has what went wrong in the page since it was opened: exceptions, and what the
    browser logs as an error, such as a script that the page's policy forbids."""

    def __init__(self, width=1100, height=900):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise NoBrowser(f"none of {', '.join(NAMES)} is here (modules/packages/setup.sh tests installs one)")
        self.errors, self.events, self.number, self.text = [], collections.deque(), 0, b""
        self.folder = tempfile.TemporaryDirectory()
        theirs_in, self.output = os.pipe()
        self.input, theirs_out = os.pipe()
        # Away from 3 and 4, so that neither is overwritten before it was copied.
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (theirs_in, theirs_out)]
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec 3<&"$1" 4>&"$2"; exec "${@:3}"', "bash", *map(str, high), program, *OPTIONS,
             f"--user-data-dir={self.folder.name}/profile", f"--window-size={width},{height}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log, pass_fds=high, start_new_session=True)
        for descriptor in (theirs_in, theirs_out, *high):
            os.close(descriptor)
        self.session = None
        try:
            self.send("Browser.getVersion")
        except BrowserError as error:
            self.close()
            raise NoBrowser(f"{program} does not start: {error}") from None
        target = self.send("Target.createTarget", url="about:blank", width=width, height=height)["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        os.close(self.output)  # the browser ends when its pipe does
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # helpers may live a moment longer, and write into the folder
        self.process.wait()
        os.close(self.input)
        self.log.close()
        self.folder.cleanup()

    def last_words(self):
        self.log.flush()
        self.log.seek(0)
        lines = self.log.read().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no message")

    def message(self, deadline):
        while b"\0" not in self.text:
            if not select.select([self.input], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise BrowserError(f"no answer within {PATIENCE:.0f} s")
            more = os.read(self.input, 1 << 20)
            if not more:
                raise BrowserError(f"it ended: {self.last_words()}")
            self.text += more
        one, _, self.text = self.text.partition(b"\0")
        return json.loads(one)

    def keep(self, event):
        parameters = event["params"]
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        else:
            self.events.append(event["method"])

    def send(self, method, **parameters):
        """A command of the protocol; its result."""
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        try:
            os.write(self.output, json.dumps(request).encode() + b"\0")
        except BrokenPipeError:
            raise BrowserError(f"it ended: {self.last_words()}") from None
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.message(deadline)
            if answer.get("id") == self.number:
                break
            if "method" in answer:
                self.keep(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, address):
        """Returns when the page and its scripts are loaded."""
        self.errors.clear()
        self.events.clear()
        failed = self.send("Page.navigate", url=address).get("errorText")
        if failed:
            raise BrowserError(f"{address}: {failed}")
        deadline = time.monotonic() + PATIENCE
        while "Page.loadEventFired" not in self.events:
            event = self.message(deadline)
            if "method" in event:
                self.keep(event)

    def evaluate(self, expression):
        """The value of JavaScript, of a promise what it resolves to."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(found["exceptionDetails"].get("exception", {}).get("description", found["exceptionDetails"]["text"]))
        return found["result"].get("value")

    def pointer(self, kind, x, y):
        """kind: mouseMoved, mousePressed or mouseReleased; x and y in the window."""
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.pointer(kind, x, y)

    def picture(self, path, whole=False):
        """A PNG of the window, or of the whole page."""
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))
