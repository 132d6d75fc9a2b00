#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the source tree that no compiler checks.

The floors are those of the table of rooms in docs/architecture.md: a room includes only rooms on lower floors, links what it includes, and
third-party libraries stay in the rooms that own them. Besides: file sizes, the SPDX line, no open end without an owner, no function of
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
MAP = "docs/architecture.md"
HARD_LINES = 600
HEADER_LINES = 250
OWNERS = {  # what a header's name starts with: the rooms that may include it
    "yaml-cpp/": {"deck"},
    "mpi.h": {"comm", "bench"},
    "nccl.h": {"comm"},
    "cuda_runtime": {"device", "ops", "comm", "bench"},
    "cublasLt.h": {"ops"},
    "cudnn": {"ops"},
    "hdf5": {"h5"},
    "H5": {"h5"},
    "oneapi/": {"ops"},
    "dnnl": {"ops"},
    "nlohmann/": {"text", "tokens", "data", "corpus", "weights", "doctor"},
    "zlib.h": {"tokens"},
    "zstd.h": {"tokens"},
    "CLI/": {"cli"},
    "spdlog/": {"base"},
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


def floors_of(page):
    """The rows `| 2 | `ops` | … |` of its table."""
    rows = re.findall(r"^\|\s*(\d+)\s*\|\s*`([\w.]+)`\s*\|", page, re.MULTILINE)
    return {room: int(floor) for floor, room in rows}


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def check_rooms(root, floors, found):
    source = root / "src"
    folders = {p.name for p in source.iterdir() if p.is_dir()}
    for room in sorted(folders - floors.keys()):
        found.append(f"src/{room}: not in the table of rooms in {MAP}")
    for room in sorted(floors.keys() - folders - {"main.cpp"}):
        found.append(f"{MAP}: the table has a room '{room}' that src/ does not have")
    for room in sorted(folders & floors.keys()):
        cmake = source / room / "CMakeLists.txt"
        links = set(re.findall(r"trireme::(\w+)", cmake.read_text(encoding="utf-8"))) if cmake.exists() else set()
        for link in sorted(links):
            if floors.get(link, 99) >= floors[room]:
                found.append(f"src/{room}/CMakeLists.txt: links {link}, which is not on a lower floor")
        for path in sorted(p for p in (source / room).rglob("*") if p.suffix in SOURCES):
            check_includes(root, path, room, floors, links, found)
    for path in sorted(p for p in source.glob("*") if p.suffix in SOURCES):
        check_includes(root, path, "", floors, folders, found)


def check_includes(root, path, room, floors, links, found):
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
        elif other == room or (room == "" and ("/" not in name or other in floors)):
            continue
        elif other not in floors:
            found.append(f"{where}: '{other}' is no room")
        elif floors[other] >= floors[room]:
            found.append(f"{where}: {room} (floor {floors[room]}) includes {other} (floor {floors[other]})")
        elif other not in links:
            found.append(f"{where}: {room} includes {other} without linking trireme::{other}")


def check_files(root, found, warned):
    for top in ("src", "tests", "jobs", "modules", "postproc", "cmake"):
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
    floors = floors_of((root / MAP).read_text(encoding="utf-8"))
    if not floors:
        found.append(f"{MAP}: no table of rooms")
    check_rooms(root, floors, found)
    check_files(root, found, warned)
    return found, warned


def self_test():
    spdx = "// SPDX-License-Identifier: Apache-2.0\n"
    files = {
        MAP: "| floor | room | what |\n|---|---|---|\n| 0 | `base` | x |\n| 1 | `h5` | x |\n| 2 | `ops` | x |\n| 2 | `gone` | x |\n",
        "src/base/CMakeLists.txt": "trireme_room(base LINKS trireme::ops)",
        "src/base/up.hpp": spdx + '#include "ops/x.hpp"\n#include <mpi.h>\n#include "bare.hpp"\n#include "nowhere/x.hpp"\n',
        "src/ops/CMakeLists.txt": "trireme_room(ops LINKS trireme::base)",
        "src/ops/x.hpp": "int no_licence();\n// TO" "DO later\n",
        "src/ops/y.hpp": spdx + '#include "h5/file.hpp"\n',
        "src/ops/long.cpp": spdx + "\n" * HARD_LINES,
        "src/ops/wide.hpp": spdx + "\n" * HEADER_LINES,
        "src/ops/new_mpi.cpp": spdx + "MPI_Allreduce_init(MPI_Bcast_c(MPI_Send_init(MPI_Comm_f2c(MPI_Init_thread()))));\nMPI_Session session;\n",
        "src/ops/joined.cpp": spdx + 'fmt::join(words, ", ");\n',
        "src/h5/file.hpp": spdx + '#include "ops/x.hpp"\n',
        "src/attic/x.hpp": spdx,
        "src/main.cpp": spdx + '#include "ops/x.hpp"\n#include <CLI/CLI.hpp>\n',
    }
    expected = [
        "src/attic: not in the table", "room 'gone'", "links ops", "base (floor 0) includes ops (floor 2)", "<mpi.h> belongs to bench and comm",
        '"bare.hpp" does not name its room', "'nowhere' is no room", "without linking trireme::h5", "h5 (floor 1) includes ops (floor 2)",
        "src/ops/x.hpp:1: the SPDX line", "src/ops/x.hpp:2: an open end", "long.cpp: 601 lines", "<CLI/CLI.hpp> belongs to cli",
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
