#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the source tree that no compiler checks.

The wings and floors are those of the list of rooms in docs/design/README.md: a room includes only rooms on lower floors of its own wing or
of wings that the list names before it, links what it includes, and third-party libraries stay in the rooms that own them. Besides: file sizes, the SPDX line, no open end without an owner, no function of
MPI that is newer than MPI 3.1, which is all that Open MPI 4.1 has, and fmt::join with its header of fmt 11.

usage: check_layers.py [PROJECT_DIR]     prints one line per finding, exit code 1 when there is any
       check_layers.py --self-test       builds a house that breaks every rule and demands every finding
"""
import pathlib
import re
import sys
import tempfile

SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".sbatch"}
MAP = "docs/design/README.md"
HARD_LINES = 600
HEADER_LINES = 250
OWNERS = {  # what a header's name starts with: the rooms that may include it
    "yaml-cpp/": {"deck"},
    "mpi.h": {"comm", "bench"},
    "nccl.h": {"comm"},
    "cuda_runtime": {"device", "ops", "comm"},
    "cublasLt.h": {"ops"},
    "cudnn": {"ops"},
    "hdf5": {"h5"},
    "H5": {"h5"},
    "oneapi/": {"ops"},
    "dnnl": {"ops"},
    "nlohmann/": {"text", "tokens", "batches", "corpus", "record", "weights", "base"},
    "zlib.h": {"tokens", "record"},
    "zstd.h": {"tokens"},
    "bzlib.h": {"tokens"},
    "lzma.h": {"tokens"},
    "CLI/": {"cli"},
}

# What MPI 4.0, 4.1 and 5.0 added: the names of MPICH 4.0.2's mpi.h that Open MPI 4.1.4's, of MPI 3.1, lacks, and those of the newer
# standards' lists of changes. The _c are those of large counts, the _init after a collective operation's name its persistent form.
AFTER_MPI_3_1 = re.compile(r"""\bP?MPI_(?:
  \w+_c | Session\w* | Abi_\w+ | \w+_(?:from|to)int | T_event_\w+ | T_source_\w+ | T_category_get_(?:num_)?events
  | (?:All(?:gatherv?|reduce|toall[vw]?)|Barrier|Bcast|Exscan|Gatherv?|Neighbor_\w+|Reduce(?:_scatter(?:_block)?)?|Scan|Scatterv?)_init
  | P(?:send|recv)_init | Pready(?:_list|_range)? | Parrived | Isendrecv(?:_replace)?
  | Comm_(?:create_from_group|idup_with_info) | Group_from_session_pset | Intercomm_create_from_groups
  | Info_(?:create_env|get_string) | Status_(?:c2f08|f082c|f082f|f2f08)
  | Buffer_i?flush | Comm_(?:attach|detach|i?flush)_buffer | Get_hw_resource_info | Request_get_status_(?:all|any|some)
  | Remove_error_(?:class|code|string) | Status_[gs]et_(?:error|source|tag) | Type_get_value_index
)\b""", re.VERBOSE)


class Place:
    """Where a room is: its wing, the wing's number from below, and its floor."""

    def __init__(self, wing, number, floor):
        self.wing, self.number, self.floor = wing, number, floor

    def is_below(self, other):
        return self.floor < other.floor and self.number <= other.number

    def __str__(self):
        return f"{self.wing}, floor {self.floor}"


def places_of(page):
    """The list `- `compute`` with lines `  - 2 `ops`: …` for its rooms."""
    places, wings = {}, []
    for wing, floor, room in re.findall(r"^(?:- `(\w+)`|  - (\d+) `(\w+)`: .*)$", page, re.MULTILINE):
        if wing:
            wings.append(wing)
        elif wings:
            places[room] = Place(wings[-1], len(wings), int(floor))
    return places


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def check_rooms(root, places, found):
    source = root / "src"
    folders = {p.name: p for p in source.glob("*/*") if p.is_dir()}
    for room in sorted(folders.keys() - places.keys()):
        found.append(f"{folders[room].relative_to(root)}: not in the list of rooms in {MAP}")
    for room in sorted(places.keys() - folders.keys()):
        found.append(f"{MAP}: the list has a room '{room}' that src/ does not have")
    for room in sorted(folders.keys() & places.keys()):
        folder, place = folders[room], places[room]
        if folder.parent.name != place.wing:
            found.append(f"{folder.relative_to(root)}: {MAP} has it in {place.wing}")
        cmake = folder / "CMakeLists.txt"
        links = set(re.findall(r"trireme::(\w+)", cmake.read_text(encoding="utf-8"))) if cmake.exists() else set()
        for link in sorted(links):
            if link not in places or not places[link].is_below(place):
                found.append(f"{cmake.relative_to(root)}: links {link}, which is not below it")
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SOURCES):
            check_includes(root, path, room, places, links, found)
    for path in sorted(p for p in source.glob("*") if p.suffix in SOURCES):
        check_includes(root, path, "", places, folders, found)


def check_includes(root, path, room, places, links, found):
    for number, line in enumerate(lines_of(path), 1):
        include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not include:
            continue
        where, name = f"{path.relative_to(root)}:{number}", include.group(2)
        if include.group(1) == "<":
            for start, owners in OWNERS.items():
                if name.startswith(start) and room not in owners:
                    found.append(f"{where}: <{name}> belongs to {' and '.join(sorted(o or 'main.cpp' for o in owners))}")
            continue
        other = name.split("/")[0]
        if "/" not in name:
            found.append(f'{where}: "{name}" does not name its room')
        elif other == room or (room == "" and ("/" not in name or other in places)):
            continue
        elif other not in places:
            found.append(f"{where}: '{other}' is not a room")
        elif not places[other].is_below(places[room]):
            found.append(f"{where}: {room} ({places[room]}) includes {other} ({places[other]})")
        elif other not in links:
            found.append(f"{where}: {room} includes {other} without linking trireme::{other}")


def check_files(root, found, warned):
    for top in ("src", "tests", "dev", "jobs", "modules", "postproc", "cmake"):
        for path in sorted((root / top).rglob("*")):
            shown = path.relative_to(root)
            if not path.is_file() or path.suffix not in SOURCES | SCRIPTS:
                continue
            if any(part.startswith(("build", ".")) or part.endswith(".egg-info") for part in shown.parts):
                continue
            lines = lines_of(path)
            head = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
            if lines and not (head and "SPDX-License-Identifier: Apache-2.0" in head[0]):
                found.append(f"{shown}:1: the SPDX line is missing")
            if len(lines) > HARD_LINES:
                found.append(f"{shown}: {len(lines)} lines, more than {HARD_LINES}")
            elif path.suffix == ".hpp" and len(lines) > HEADER_LINES:
                warned.append(f"{shown}: {len(lines)} lines; a header is better below {HEADER_LINES}")
            for number, line in enumerate(lines, 1):
                if re.search(r"\b(TO" r"DO|FIX" r"ME)\b(?!\([a-z][\w.-]*\))", line):
                    found.append(f"{shown}:{number}: an open end without an owner")
                newer = AFTER_MPI_3_1.search(line) if path.suffix in SOURCES else None
                if newer:
                    found.append(f"{shown}:{number}: {newer.group()} is not in MPI 3.1")
                if "fmt::join" in line and path.suffix in SOURCES and "#include <fmt/ranges.h>" not in lines:
                    found.append(f"{shown}:{number}: fmt::join without <fmt/ranges.h>, where it is from fmt 11 on")


def check(root):
    found, warned = [], []
    places = places_of((root / MAP).read_text(encoding="utf-8"))
    if not places:
        found.append(f"{MAP}: no list of rooms")
    check_rooms(root, places, found)
    check_files(root, found, warned)
    return found, warned


def self_test():
    spdx = "// SPDX-License-Identifier: Apache-2.0\n"
    files = {
        MAP: "- `low`\n  - 0 `base`: x\n  - 1 `h5`: x\n  - 2 `ops`: x\n  - 2 `gone`: x\n- `high`\n  - 1 `apart`: x\n",
        "src/low/base/CMakeLists.txt": "trireme_room(base LINKS trireme::ops)",
        "src/low/base/up.hpp": spdx + '#include "ops/x.hpp"\n#include <mpi.h>\n#include "bare.hpp"\n#include "nowhere/x.hpp"\n',
        "src/low/ops/CMakeLists.txt": "trireme_room(ops LINKS trireme::base)",
        "src/low/ops/x.hpp": "int no_licence();\n// TO" "DO later\n",
        "src/low/ops/y.hpp": spdx + '#include "h5/file.hpp"\n#include "apart/x.hpp"\n',
        "src/low/ops/long.cpp": spdx + "\n" * HARD_LINES,
        "src/low/ops/wide.hpp": spdx + "\n" * HEADER_LINES,
        "src/low/ops/new_mpi.cpp": spdx
        + "MPI_Allreduce_init(MPI_Bcast_c(MPI_Send_init(MPI_Comm_f2c(MPI_Init_thread()))));\nMPI_Session session;\n",
        "src/low/ops/joined.cpp": spdx + 'fmt::join(words, ", ");\n',
        "src/low/h5/file.hpp": spdx + '#include "ops/x.hpp"\n',
        "src/low/attic/x.hpp": spdx,
        "src/low/apart/x.hpp": spdx,
        "src/main.cpp": spdx + '#include "ops/x.hpp"\n#include <CLI/CLI.hpp>\n',
    }
    expected = [
        "src/low/attic: not in the list", "room 'gone'", "links ops", "base (low, floor 0) includes ops (low, floor 2)",
        "<mpi.h> belongs to bench and comm", '"bare.hpp" does not name its room', "'nowhere' is not a room", "without linking trireme::h5",
        "h5 (low, floor 1) includes ops (low, floor 2)", "ops (low, floor 2) includes apart (high, floor 1)",
        "src/low/apart: docs/design/README.md has it in high",
        "src/low/ops/x.hpp:1: the SPDX line", "src/low/ops/x.hpp:2: an open end", "long.cpp: 601 lines", "<CLI/CLI.hpp> belongs to cli",
        "new_mpi.cpp:2: MPI_Allreduce_init is not in MPI 3.1", "new_mpi.cpp:3: MPI_Session is not in MPI 3.1",
        "joined.cpp:2: fmt::join without <fmt/ranges.h>",
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found, warned = check(root)
    missed = [words for words in expected if not any(words in line for line in found)]
    if missed or len(found) != len(expected) or len(warned) != 1:
        print("missed:", missed, "\nfound:", *found, *warned, sep="\n")
        return 1
    print(f"all {len(expected)} broken rules found")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found, warned = check(root)
    for line in warned:
        print(f"warning: {line}")
    for line in found:
        print(f"error: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
