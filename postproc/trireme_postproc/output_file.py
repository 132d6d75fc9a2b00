# SPDX-License-Identifier: Apache-2.0
"""Output files at paths that the user names. An existing file is replaced only if trireme-postproc made it."""

import contextlib
import os

from .run_file import RunFileError

MAKER = "trireme-postproc"
# Bytes that identify our own files by extension: metadata of pictures (style.py), and what report.py and timeline.py write.
MARKS = {
    ".png": b"Software\0" + MAKER.encode(),
    ".pdf": b"/Creator (" + MAKER.encode() + b")",
    ".svg": b"<dc:title>" + MAKER.encode() + b"</dc:title>",
    ".html": b"<meta name=generator content=" + MAKER.encode() + b">",
    ".htm": b"<meta name=generator content=" + MAKER.encode() + b">",
    ".json": b'"made_by":"' + MAKER.encode() + b'"',
}


def ending_of(path):
    return os.path.splitext(path)[1].lower()


def expect_ours(path):
    """Raises RunFileError if `path` exists and was not made by trireme-postproc."""
    if not os.path.lexists(path):
        return
    ours = os.path.isfile(path) and not os.path.islink(path)
    if ours:
        with open(path, "rb") as file:
            ours = MARKS[ending_of(path)] in file.read()
    if not ours:
        raise RunFileError(f"{path}: exists and was not made by {MAKER}. Remove it, or name another file")


@contextlib.contextmanager
def errors_about(path):
    """Adds the path to an OSError, which one of a write does not have."""
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


@contextlib.contextmanager
def new_file(path):
    """Opens a staged binary file that replaces `path` when it is complete, so that readers see either the old file or the new one."""
    expect_ours(path)
    part = f"{path}.{os.getpid()}.part"
    with errors_about(path), open(part, "xb") as file:
        try:
            yield file
            file.flush()
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
