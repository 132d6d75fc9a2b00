#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the files of a new operation: contract, checks and dispatch, bodies for CPU and CUDA, and a test in CMake that fails until its
reference is written.

usage: dev/new_op.py NAME [--root PROJECT]        NAME in lower case: soft_cap

What it makes computes y = x, element by element; contract and bodies are then yours. Nothing that exists is overwritten."""
import argparse
import pathlib
import re
import sys

CONTRACT = """// SPDX-License-Identifier: Apache-2.0
// What @NAME@ computes, with its source (paper and section):
//
//   y = x
#pragma once

#include "ops/operation.hpp"

namespace trireme::ops {

struct @CAMEL@ {
  static constexpr const char* name = "@NAME@";
  View y;       ///< of T, as many elements as x
  ConstView x;  ///< of T
};
TRIREME_OPERATION(@CAMEL@);

}  // namespace trireme::ops
"""

DISPATCH = """// SPDX-License-Identifier: Apache-2.0
#include "ops/@NAME@.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const @CAMEL@& call, device::Stream& stream) {
  expect_operands(call.name, {{"y", call.y, call.x.elements, call.x.dtype}});
  enqueue(call, call.x.dtype, stream);
}

}  // namespace trireme::ops
"""

CPU_BODY = """// SPDX-License-Identifier: Apache-2.0
#include "ops/@NAME@.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_CLONES void @NAME@_kernel(T* y, const T* x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(to_float(x[i]));
}

}  // namespace

template <class T>
void run(Threads, const @CAMEL@& call) {
  for_chunks(call.x.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    @NAME@_kernel(call.y.as<T>() + begin, call.x.as<T>() + begin, end - begin);
  });
}

TRIREME_CPU_BODIES(@CAMEL@);

}  // namespace trireme::ops::cpu
"""

CUDA_BODY = """// SPDX-License-Identifier: Apache-2.0
#include "ops/@NAME@.hpp"

#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct @CAMEL@Loop {
  @CAMEL@ call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    call.y.as<T>()[i] = from_float<T>(to_float(call.x.as<T>()[i]));
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const @CAMEL@& call) {
  loop<1>(call.name, @CAMEL@Loop<T>{call}, call.x.elements, false, queue.stream);
}

TRIREME_CUDA_BODIES(@CAMEL@);

}  // namespace trireme::ops::cuda
"""

TEST = """// SPDX-License-Identifier: Apache-2.0
#include "ops/@NAME@.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class @CAMEL@Test : public OpsTest {};

/// In double precision.
Values @NAME@_reference(const Values& x) {
  ADD_FAILURE() << "the reference of @NAME@ is not written yet";
  return x;
}

TEST_P(@CAMEL@Test, ComputesAsTheReferenceDoes) {
  for (const std::int64_t n : {1, 63, 64, 1000}) {
    const auto x = rounded_to(dtype(), normals(1, n));
    auto from = tensor(dtype(), x);
    auto to = tensor(dtype(), n);
    run(ops::@CAMEL@{.y = to.view(), .x = from.view()}, stream());
    expect_near(to.values(), @NAME@_reference(x), tolerance().elementwise, "y");
  }
}

TEST_P(@CAMEL@Test, DoesNotDependOnThreads) {
  auto from = tensor(dtype(), rounded_to(dtype(), normals(1, 100'000)));
  expect_same_on_threads([&] {
    auto to = tensor(dtype(), 100'000);
    run(ops::@CAMEL@{.y = to.view(), .x = from.view()}, stream());
    return to.bytes();
  });
}

TEST_P(@CAMEL@Test, RejectsWrongViews) {
  auto from = tensor(dtype(), 8);
  auto to = tensor(dtype(), 7);
  EXPECT_THROW(run(ops::@CAMEL@{.y = to.view(), .x = from.view()}, stream()), ContractError);
}

TRIREME_ON_BACKENDS(@CAMEL@Test);

}  // namespace
}  // namespace trireme::test
"""


def filled(template, name):
    words = {"NAME": name, "CAMEL": "".join(part.capitalize() for part in name.split("_"))}
    return re.sub(r"@([A-Z]+)@", lambda found: words[found.group(1)], template)


def files_of(name):
    return {f"src/compute/ops/{name}.hpp": filled(CONTRACT, name),
            f"src/compute/ops/{name}.cpp": filled(DISPATCH, name),
            f"src/compute/ops/cpu/{name}.cpp": filled(CPU_BODY, name),
            f"src/compute/ops/cuda/{name}.cu": filled(CUDA_BODY, name),
            f"tests/ops/{name}_test.cpp": filled(TEST, name)}


def with_source(text, begin, source):
    """Inserts `source` into the list of files that follows `begin`, in alphabetical order among the files of its folder."""
    match = re.search(re.escape(begin) + r"([\w./]+(?:\s+[\w./]+)*)", text)
    if not match:
        sys.exit(f"error: no list after '{begin}' in CMakeLists.txt")
    parts = re.split(r"(\s+)", match.group(1))  # names at even indices, separators at odd indices
    folder = pathlib.PurePath(source).parent
    siblings = [i for i in range(0, len(parts), 2) if pathlib.PurePath(parts[i]).parent == folder]
    after = [i for i in siblings if parts[i] < source]
    at = after[-1] + 1 if after else siblings[0]
    parts[at:at] = [" ", source] if after else [source, " "]
    return text[:match.start(1)] + "".join(parts) + text[match.end(1):]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    arguments = parser.parse_args()
    name = arguments.name
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        sys.exit(f"error: '{name}' is not a name of an operation: use lower case, words joined by '_'")
    files = files_of(name)
    there = [path for path in files if (arguments.root / path).exists()]
    if there:
        sys.exit(f"error: {', '.join(there)} exists already; nothing was written")
    path = "tests/ops/CMakeLists.txt"
    lists = {path: with_source((arguments.root / path).read_text(), "SOURCES ", f"{name}_test.cpp")}
    for path, text in {**files, **lists}.items():
        (arguments.root / path).write_text(text)
        print(("changed " if path in lists else "made    ") + path)
    print(f"next: the contract in src/compute/ops/{name}.hpp, then the reference in tests/ops/{name}_test.cpp, which fails until it is written")


if __name__ == "__main__":
    main()
