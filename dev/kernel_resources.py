#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every kernel of a build takes of a multiprocessor: registers per thread, bytes of shared memory per block, bytes of stack and of
local memory per thread, as cuobjdump reads them from the objects. It needs no GPU. From sm_90 on a kilobyte of a block's shared memory is
the system's.

usage: kernel_resources.py [BUILD_DIR] [--arch sm_90] [--table FILE [--write]]         default: build

Without --table the rows are printed. With it they are compared with those in FILE, or written there. A kernel with stack or local memory
is a failure under every compiler, because spilled registers and indexed arrays are stored there; the other numbers are those of one nvcc,
named in FILE, and are not compared under another.

cuobjdump is taken from CUOBJDUMP, PATH, the folder of the build's nvcc, or a Python environment (the package nvidia-cuda-cuobjdump).
Exit code: 0, 1 something differs, 3 cuobjdump failed, 77 there is no cuobjdump, or no kernel was compiled by nvcc."""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

Row = collections.namedtuple("Row", "registers shared stack local")
KEPT = ("stack", "local")  # must be zero with every compiler


class Skipped(Exception):
    """The check cannot run here: a tool or the kernels are missing."""


def nvcc_of(build):
    """Returns the path and version of the CUDA compiler that a CMake build folder was configured with."""
    for file in build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        text = file.read_text()
        found = [re.search(rf'set\({name} "([^"]*)"\)', text) for name in ("CMAKE_CUDA_COMPILER", "CMAKE_CUDA_COMPILER_VERSION")]
        if all(found):
            return pathlib.Path(found[0][1]), found[1][1]
    raise Skipped(f"{build} was configured without nvcc")


def cuobjdump_next_to(nvcc):
    candidates = [os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), nvcc.parent / "cuobjdump"]
    candidates += [tool for folder in sys.path for tool in pathlib.Path(folder or ".").glob("nvidia/*/bin/cuobjdump")]
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return str(candidate)
    raise Skipped("cuobjdump is not here (CUOBJDUMP may name it)")


def demangled(names):
    """Demangles names and removes parameters, `trireme::` and anonymous namespaces (whose mangled names contain a hash of the path)."""
    names = list(names)
    tool = shutil.which("c++filt")
    if tool is None:
        raise Skipped("c++filt is not here")
    said = subprocess.run([tool, "--no-params"], input="\n".join(names), capture_output=True, text=True, check=True)
    return [re.sub(r"\(anonymous namespace\)::|trireme::", "", name) for name in said.stdout.splitlines()]


def rows_of(text, arch):
    """Parses the output of cuobjdump for one object. Returns {kernel: Row} for one architecture."""
    mangled = {}
    here = kernel = None
    for line in text.splitlines():
        if found := re.match(r"arch = (\S+)", line):
            here = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            kernel = found[1]
        elif kernel and (used := dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", line))) and here == arch:
            mangled[kernel] = Row(*(int(used[name]) for name in ("REG", "SHARED", "STACK", "LOCAL")))
            kernel = None
    rows = dict(zip(demangled(mangled), mangled.values()))
    assert len(rows) == len(mangled), f"two kernels have one name: {sorted(rows)}"
    return rows


def kernels_of(build, arch):
    """Returns the version of nvcc, and {"ROOM/FILE.cu KERNEL": Row} for all objects."""
    nvcc, version = nvcc_of(build)
    tool = cuobjdump_next_to(nvcc)
    all_rows = {}
    for item in sorted(build.glob("src/**/*.cu.o")):
        said = subprocess.run([tool, "--dump-resource-usage", str(item)], capture_output=True, text=True)
        if said.returncode != 0:
            print(f"error: {tool} failed on {item}: {said.stderr.strip()}", file=sys.stderr)
            sys.exit(3)
        source = "/".join(item.relative_to(build / "src").parts[1:])  # ROOM/…, without the folder above it
        source = re.sub(r"CMakeFiles/[^/]*/", "", source.removesuffix(".o"))
        for kernel, row in rows_of(said.stdout, arch).items():
            all_rows[f"{source} {kernel}"] = row
    if not all_rows:
        raise Skipped(f"no object below {build}/src has kernels for {arch}")
    return version, all_rows


def text_of(version, arch, rows):
    lines = [f"# nvcc {version}, {arch}: {' '.join(Row._fields)} file kernel"]
    lines += [f"{row.registers:3} {row.shared:6} {row.stack:4} {row.local:4}  {name}" for name, row in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def parsed(text):
    head, *lines = text.splitlines()
    version, arch = re.match(r"# nvcc (\S+), (\S+):", head).groups()
    rows = {}
    for line in lines:
        *numbers, source, kernel = line.split(maxsplit=5)
        rows[f"{source} {kernel}"] = Row(*map(int, numbers))
    return version, arch, rows


def differences(version, arch, rows, table):
    """Returns lines that say what is wrong, and whether all numbers were compared."""
    told = [f"{name}: {getattr(row, kind)} bytes of {kind} memory per thread" for name, row in sorted(rows.items()) for kind in KEPT
            if getattr(row, kind) > 0]
    its_version, its_arch, its_rows = table
    if (version, arch) != (its_version, its_arch):
        return told, False
    told += [f"{name}: not in the table" for name in sorted(rows.keys() - its_rows.keys())]
    told += [f"{name}: only in the table" for name in sorted(its_rows.keys() - rows.keys())]
    for name in sorted(rows.keys() & its_rows.keys()):
        changed = [f"{field} {was} -> {now}" for field, was, now in zip(Row._fields, its_rows[name], rows[name]) if was != now]
        if changed:
            told.append(f"{name}: {', '.join(changed)}")
    return told, True


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("default")[0].strip())
    parser.add_argument("build", nargs="?", default="build", type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    try:
        version, rows = kernels_of(arguments.build, arguments.arch)
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 77
    text = text_of(version, arguments.arch, rows)
    if arguments.table is None:
        print(text, end="")
        return 0
    if arguments.write:
        arguments.table.write_text(text)
        return 0
    table = parsed(arguments.table.read_text())
    told, all_compared = differences(version, arguments.arch, rows, table)
    for line in told:
        print(line)
    if not all_compared:
        print(f"registers and shared memory are not compared: the table is of nvcc {table[0]} for {table[1]}, these of {version}")
    print(f"{len(rows)} kernels, {len(told)} findings" + (f"; --table {arguments.table} --write takes them" if told else ""))
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
