#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of README.md and the guide in a folder that looks like the source tree after a build.

A fenced block after `<!-- run -->` is run as it is (bash or python). A YAML block after `<!-- check -->` must be a valid deck. In all
other text, options of verbs and deck keys must exist. docs/reference must match what the program prints.
  usage: commands_test.py SOURCE_DIR BUILD_DIR"""
import os
import re
import subprocess
import sys
import tempfile
import time

from pages import READING_ORDER, markdown_files, marked_blocks, read

TIMEOUT_S = 120  # for each block, in case it hangs
SECTIONS = "run|gpu|model|data|batch|optimizer|parallel|memory|record|checkpoint|evaluate|sample"
# A key in backticks or on a command line.
KEY = re.compile(rf"(?<![\w/.-])((?:{SECTIONS})\.[a-z][a-z_0-9]*(?:\.[a-z][a-z_0-9]*)*)(?![\w.]*\.(?:yaml|h5|txt))")
NO_KEYS = re.compile(r"^run\.h5\.|(\.(h5|id|png|sh|md|safetensors)|^data\.next|^model\.train)$")  # names of files and spans look like keys
VERB = re.compile(r"trireme ((?:check|plan|tune|find-rate|sample|evaluate|export|import|tokenizer train|tokenize|checkpoints|stop|save|speed|"
                  r"doctor|verify|bench \w+))\b([^`|#;]*)")
OPTION = re.compile(r"(?<!\S)(--[a-z][a-z-]*)")


class Pages:
    def __init__(self, source, build):
        self.source, self.trireme, self.failures = source, os.path.join(build, "trireme"), []
        self.folder = tempfile.TemporaryDirectory(prefix="trireme-docs-")
        for name in os.listdir(source):
            if name not in ("runs", "build") and not name.startswith((".", "build-")):
                os.symlink(os.path.join(source, name), os.path.join(self.folder.name, name))
        os.symlink(build, os.path.join(self.folder.name, "build"))
        os.mkdir(os.path.join(self.folder.name, "runs"))

    def start(self, *command):
        return subprocess.run(command, cwd=self.folder.name, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=TIMEOUT_S, check=False)

    def run_block(self, page, marker, language, content, line):
        if marker == "check":
            deck = os.path.join(self.folder.name, "runs", "page.yaml")
            with open(deck, "w", encoding="utf-8") as file:
                file.write(content)
            done = self.start(self.trireme, "check", deck)
        elif language == "python":
            done = self.start(sys.executable, "-c", content)
        else:
            done = self.start("bash", "-euo", "pipefail", "-c", content)
        if done.returncode != 0:
            self.failures.append(f"{page}:{line}: exit code {done.returncode}\n{content}--- output\n{done.stdout}")

    def run_pages(self):
        blocks = 0
        for page in READING_ORDER:
            for block in marked_blocks(read(self.source, page)):
                began = time.monotonic()
                self.run_block(page, *block)
                blocks += 1
                print(f"{time.monotonic() - began:6.1f} s  {page}:{block[3]}", flush=True)
        if blocks < 10:
            self.failures.append(f"only {blocks} marked blocks were found")

    def check_words(self):
        """Deck keys and options in the pages must exist."""
        keys = set(re.findall(r"^([a-z_0-9.]+) ", self.start(self.trireme, "help", "deck").stdout, re.MULTILINE))
        known = keys | {key.rsplit(".", parts)[0] for key in keys for parts in range(1, key.count(".") + 1)}
        helps = {}
        for page in markdown_files(self.source):
            text = read(self.source, page)
            if page in READING_ORDER or page.startswith("docs/guide/"):
                self.failures += [f"{page}: no deck key {key}" for key in sorted(set(KEY.findall(text)))
                                  if key not in known and not NO_KEYS.search(key)]
            for verb, rest in VERB.findall(text.replace("\\\n", " ")):
                if verb not in helps:
                    helps[verb] = self.start(self.trireme, *verb.split(), "--help").stdout
                options = OPTION.findall(rest.split("\n")[0])
                self.failures += [f"{page}: trireme {verb} has no option {option}" for option in options
                                  if not re.search(rf"{option}\b", helps[verb])]

    def check_reference(self):
        """Checks the generated pages. CLI11's headings and types differ between versions, so only our own texts are compared for verbs."""
        def page(name):
            return self.start(sys.executable, "dev/reference_pages.py", name, self.trireme).stdout
        if page("deck-keys.txt") != read(self.source, "docs/reference/deck-keys.txt"):
            self.failures.append("docs/reference/deck-keys.txt is not what `trireme help deck` prints: run dev/reference_pages.py")
        committed, printed = read(self.source, "docs/reference/verbs.txt"), page("verbs.txt")
        descriptions = re.findall(r"^  .{26,}?(?<= )\b([A-Z][^\n]{12,})$|^ {30}([A-Z][^\n]*)$", committed, re.MULTILINE)
        usages = re.findall(r"^usage:.*?(?=^Positionals:|^Options:|^-{20})", committed, re.MULTILINE | re.DOTALL)
        one_line = " ".join(printed.split())
        if set(OPTION.findall(committed)) != set(OPTION.findall(printed)) or len(usages) < 20 or len(descriptions) < 60:
            self.failures.append("docs/reference/verbs.txt has other options than the program: run dev/reference_pages.py")
        self.failures += [f"docs/reference/verbs.txt: the program does not print '{text}': run dev/reference_pages.py"
                          for text in usages + [first or second for first, second in descriptions]
                          if not re.match("Needs:|Excludes:|Print this", text) and " ".join(text.split()) not in one_line]
        for verb in printed.split("-" * 100):
            usage, _, options = verb.partition("Options:")
            for option, choices in re.findall(r"^  (--[a-z0-9-]+) (?:TEXT|INT|UINT|FLOAT)(?::\{([^}\n]*)\})?", options, re.MULTILINE):
                for value in re.findall(rf"{option}\b *([^] \n]*)", usage):
                    if not value or ("|" in value and choices and set(value.split("|")) != set(choices.split(","))):
                        self.failures.append(f"usage has '{option} {value}', but the option takes {choices or 'a value'}: {usage.strip()}")


def main():
    pages = Pages(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
    with pages.folder:
        pages.check_words()
        pages.check_reference()
        pages.run_pages()
    print("\n".join(pages.failures) if pages.failures else "all commands ran, all keys and options exist")
    return 1 if pages.failures else 0


if __name__ == "__main__":
    sys.exit(main())
