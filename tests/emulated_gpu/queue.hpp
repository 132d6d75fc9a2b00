// SPDX-License-Identifier: Apache-2.0
// An emulated GPU: an implementation of CUDA's functions for tests on machines without a GPU.
//
// Streams hold work in order. One thread of the process, "the GPU", runs it: the seed chooses one
// of the streams whose next item can run. So everything that CUDA leaves open (which of two streams
// runs first, how far a stream is when the host looks) differs between seeds. Code that works only
// in one order fails in another.
//
// 1. An item runs when earlier items of its stream are done and the events that the stream waits
//    for are reached. Items never overlap; an item that waits inside blocks the whole GPU.
// 2. TRIREME_EMULATED_QUEUE=lazy: an item runs only when a host thread waits for it or queries it,
//    directly or through events. This finds results that the host uses without having waited. It
//    does not work if the item needs the GPU of another process. Otherwise items run when they can.
// 3. TRIREME_EMULATED_SEED: 0 (or unset) runs streams, blocks and threads in order, 1 in reverse,
//    other values shuffle. A seed determines the order on the GPU, but not that of host threads.
// 4. A captured stream keeps its items for the graph, which may be launched many times. So a
//    closure owns its data by value and may run any number of times.
//
// Emulation cannot show speed, races between two warps or blocks that no order of whole stretches
// between barriers reveals, or calls that the real libraries refuse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace emulated {

/// Appends work to `stream`; `what` names it in error messages. Callable from any thread.
cudaError_t enqueue(cudaStream_t stream, std::string what, std::function<void()> work);

/// From now on each item named `what` takes this many seconds more on the GPU's clock: later events
/// show them, but the host does not wait.
void charge(const std::string& what, double seconds);

/// Number of submissions by the host: kernels, copies, products and collectives outside of
/// captures, and graph launches, but not events.
std::uint64_t num_submissions();

}  // namespace emulated
