# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests: opens a page, moves the pointer, evaluates JavaScript, takes a picture.

The tests talk to it with the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) over two pipes, the browser's
descriptors 3 and 4. Messages are JSON, terminated by a zero byte. This needs no port, driver or package.
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
PATIENCE = 120.0  # seconds per answer; long enough for a busy machine
# Containers often run as root without user namespaces for the sandbox, and with 64 MiB of /dev/shm. No display or GPU is needed.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
           "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe")


class NoBrowser(Exception):
    """No browser is installed, or it does not start. The message says why."""


class BrowserError(Exception):
    """The browser failed or did not answer after it had started."""


class Browser:
    """A browser with one page, as a context manager. `errors` lists errors in the page since it was opened: exceptions, and errors that the
    browser logs, such as a script that the page's policy forbids."""

    def __init__(self, width=1100, height=900):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise NoBrowser(f"none of {', '.join(NAMES)} is here (modules/packages/setup.sh tests installs one)")
        self.errors, self.events, self.number, self.text = [], collections.deque(), 0, b""
        self.folder = tempfile.TemporaryDirectory()
        theirs_in, self.output = os.pipe()
        self.input, theirs_out = os.pipe()
        # Move the pipes away from 3 and 4, so that neither is overwritten before it is copied.
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
        os.close(self.output)  # the browser exits when its pipe is closed
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # child processes may still write to the folder
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
        """Sends a command of the protocol and returns its result."""
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
        """Opens a page and waits until it and its scripts are loaded."""
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
        """The value of a JavaScript expression. Promises are awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(found["exceptionDetails"].get("exception", {}).get("description", found["exceptionDetails"]["text"]))
        return found["result"].get("value")

    def pointer(self, kind, x, y):
        """Sends a mouse event. `kind` is mouseMoved, mousePressed or mouseReleased; x and y are coordinates in the window."""
        pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.pointer(kind, x, y)

    def picture(self, path, whole=False):
        """A PNG of the window, or of the whole page."""
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]))
