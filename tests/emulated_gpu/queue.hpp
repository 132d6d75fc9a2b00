// SPDX-License-Identifier: Apache-2.0
// An emulated GPU: what implements CUDA's functions where tests run without one.
//
// Streams hold work in order. One thread of the process, "the GPU", does it: of the streams whose
// next item can go, the seed chooses one. So everything that CUDA leaves open (which of two streams
// goes first, how far a stream has come when the host looks) differs from seed to seed, and what
// only works in one order fails in another.
//
// 1. An item runs when those before it on its stream are done and the events that the stream waits
//    for are reached. Items never overlap; an item that waits for something inside holds up the
//    whole GPU.
// 2. TRIREME_EMULATED_QUEUE=lazy: an item runs only when a host thread waits for it or asks for it,
//    directly or through events. It finds what the host takes for done without having waited. Not
//    for work that needs another process's GPU. Any other value, or none: as soon as it can.
// 3. TRIREME_EMULATED_SEED: 0 (or none) takes streams, blocks and threads in order, 1 in reverse,
//    others shuffle. The same seed gives the same order on the GPU, but the host's threads keep
//    their own.
// 4. A stream that captures keeps its items for the graph, which launches them again and again. A
//    closure therefore owns what it needs by value, and may run any number of times.
//
// What emulation cannot show: speed; two warps or blocks that race within what every order of whole
// stretches between barriers hides; what the true libraries refuse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime_api.h>

namespace emulated {

/// Puts work after what is on `stream`; `what` names it in errors. Any thread.
cudaError_t enqueue(cudaStream_t stream, std::string what, std::function<void()> work);

/// From now on each item called `what` takes so many seconds more, by the GPU's own clock: events
/// after it show them, and the host does not wait.
void charge(const std::string& what, double seconds);

/// How many times the host has given work to the GPU: kernels, copies, products and collectives
/// that are not captured, and launches of graphs, but no events.
std::uint64_t num_submissions();

}  // namespace emulated
