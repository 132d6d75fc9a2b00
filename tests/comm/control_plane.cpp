// SPDX-License-Identifier: Apache-2.0
// Measures the memory and the time per step of the control plane, as functions of the number of
// ranks. Not a test: control_plane.py runs it at several rank counts, fits the growth and prints
// it.
//
// A step has the exchanges of a training step except buckets: the words of norm and loss, the
// maximum on which the ranks agree, and one action with together() (comm/control/together.hpp).
// Memory is the process's own resident memory (anonymous pages and heap, without shared memory),
// after each stage.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/quantile.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

/// RssAnon of this process, in KiB.
double resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssAnon:") {
      double kib = 0;
      status >> kib;
      return kib;
    }
  return 0;
}

void measure(int steps) {
  constexpr std::int64_t words = 142;  // layout::words_of_step_sums
  const double before = resident_kib();
  MpiWorld world;
  const double with_world = resident_kib();
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  const auto communicator = make_communicator(Transport::mpi, Reduction::ordered, world, *device);
  const std::int64_t elements = (words + world.size() - 1) / world.size() * world.size();
  const auto buffer = communicator->allocate(
      static_cast<std::size_t>(elements) * sizeof(std::int64_t), "the step's sums");
  const auto sums = communicator->shards(buffer.view(DType::i64));
  const double with_communicator = resident_kib();
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    communicator->all_reduce(*sums, sums_of_the_step, *stream);
    stream->synchronize();
    std::array<std::int64_t, 3> asked{};
    world.max(asked);
    together(world, [] {});
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const double with_steps = resident_kib();
  const auto all = world.gather_all(std::array{median(seconds), *std::ranges::min_element(seconds),
                                               with_world - before, with_communicator - with_world,
                                               with_steps - with_communicator});
  if (world.rank() != 0)
    return;
  std::array<double, 5> most{};
  for (std::size_t i = 0; i < all.size(); ++i) most[i % 5] = std::max(most[i % 5], all[i]);
  std::printf(
      "{\"ranks\": %d, \"step_us\": %.1f, \"least_us\": %.1f, \"world_kib\": %.0f, "
      "\"communicator_kib\": %.0f, "
      "\"steps_kib\": %.0f}\n",
      world.size(), most[0] * 1e6, most[1] * 1e6, most[2], most[3], most[4]);
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) {
  const trireme::comm::MpiScope mpi(argc, argv);
  trireme::comm::measure(argc > 1 ? std::stoi(argv[1]) : 200);
  return 0;
}
