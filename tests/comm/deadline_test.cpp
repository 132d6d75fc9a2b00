// SPDX-License-Identifier: Apache-2.0
// A collective in which somebody is missing ends with an error that names the bucket and the rank.
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.hpp"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Deadline : public ::testing::TestWithParam<Transport> {};

TEST_P(Deadline, NamesTheBucketAndTheRankThatNeverArrived) {
  const auto world = make_mpi_world();
  if (world->size() == 1)
    return;  // nobody can be late
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::concurrent, "comm");
  const auto communicator = make_communicator(GetParam(), Reduction::ordered, *world, *device,
                                              {.deadline_s = 0.5, .chunk_bytes = 4096});
  const auto buffer = communicator->allocate(
      static_cast<std::size_t>(64 * world->size()) * sizeof(float), "test bucket");
  const auto shards = communicator->shards(buffer.view(DType::f32));
  const int late = world->size() - 1;
  std::string words;
  if (world->rank() != late) {
    communicator->reduce_scatter(*shards, BucketIndex{7}, *stream);
    try {
      stream->synchronize();
    } catch (const CommError& error) {
      words = error.what();
    }
  }
  const auto all = world->gather_all(words);
  const std::string late_host = world->gather_all(world->host())[static_cast<std::size_t>(late)];
  for (int r = 0; r < world->size(); ++r) {
    if (r == late)
      continue;
    const std::string& said = all[static_cast<std::size_t>(r)];
    EXPECT_THAT(said, HasSubstr("reduce_scatter of bucket 7")) << "on rank " << r;
    EXPECT_THAT(said,
                HasSubstr("rank " + std::to_string(late) + " on " + late_host + " never arrived"));
    // Only the late one is named.
    EXPECT_THAT(said, Not(HasSubstr("rank 0")));
  }
}

INSTANTIATE_TEST_SUITE_P(,
                         Deadline,
                         ::testing::Values(Transport::mpi,
                                           Transport::shared_memory,
                                           Transport::hierarchical),
                         [](const auto& tested) { return std::string(word(tested.param)); });

}  // namespace
}  // namespace trireme::comm
