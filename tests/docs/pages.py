# SPDX-License-Identifier: Apache-2.0
"""The Markdown pages of the project, and the code blocks in them."""
import os
import re
import subprocess

# The pages for newcomers, in reading order: later pages use runs that earlier pages train.
READING_ORDER = ("README.md", "docs/guide/first-run.md", "docs/guide/decks.md", "docs/guide/data.md", "docs/guide/stopping.md",
                 "docs/guide/weights.md", "docs/guide/analysis.md", "docs/guide/tuning.md", "docs/guide/clusters.md",
                 "docs/guide/sharding.md")
MARKED = re.compile(r"^<!-- (run|check) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def markdown_files(source):
    """Paths of all Markdown files, relative to the source folder: those in git or, without git, all."""
    listed = subprocess.run(["git", "-C", source, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True,
                            text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\n") if name and os.path.exists(os.path.join(source, name))]
    return [os.path.relpath(os.path.join(folder, name), source) for folder, folders, names in os.walk(source)
            for name in names if name.endswith(".md") and not folder.startswith(os.path.join(source, "build"))]


def read(source, page):
    with open(os.path.join(source, page), encoding="utf-8") as file:
        return file.read()


def marked_blocks(text):
    """(marker, language, content, line) of each block after `<!-- run -->` or `<!-- check -->`."""
    for match in MARKED.finditer(text):
        yield match[1], match[2], match[3], text.count("\n", 0, match.start(3)) + 1
