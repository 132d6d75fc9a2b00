// SPDX-License-Identifier: Apache-2.0
// The bytes between hosts are those that `trireme plan` prints: every message of a collective is
// counted when it is passed to MPI. The tests run on one host, which the transports treat as
// several.
#include "comm/collective/traffic.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/transport/transports.hpp"

namespace {

/// The host of each rank of the world while messages are counted, else null.
const std::vector<int>* counted_hosts = nullptr;  // NOLINT(*-avoid-non-const-global-variables)
std::atomic<std::int64_t> bytes_off_host;         // NOLINT(*-avoid-non-const-global-variables)

void count(int bytes, int to, MPI_Comm comm) {
  MPI_Group ours = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &ours);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  int world_rank = -1, mine = -1;
  PMPI_Group_translate_ranks(ours, 1, &to, all, &world_rank);
  PMPI_Comm_rank(MPI_COMM_WORLD, &mine);
  PMPI_Group_free(&ours);
  PMPI_Group_free(&all);
  const auto host = [](int rank) { return (*counted_hosts)[static_cast<std::size_t>(rank)]; };
  if (host(mine) != host(world_rank))
    bytes_off_host += bytes;
}

}  // namespace

// MPI's profiling interface: this definition replaces MPI's function.
extern "C" int MPI_Isend(const void* at,
                         int elements,
                         MPI_Datatype type,
                         int to,
                         int tag,
                         MPI_Comm comm,
                         MPI_Request* request) {
  if (counted_hosts != nullptr) {
    int size = 0;
    PMPI_Type_size(type, &size);
    count(elements * size, to, comm);
  }
  return PMPI_Isend(at, elements, type, to, tag, comm, request);
}

namespace trireme::comm {
namespace {

std::vector<std::vector<int>> placements(int ranks) {
  std::vector<int> blocks, dealt, unequal, apart, around;
  for (int rank = 0; rank < ranks; ++rank) {
    blocks.push_back(rank < (ranks + 1) / 2 ? 0 : 1);
    dealt.push_back(rank % 3);
    unequal.push_back(rank == 0 ? 0 : rank < 3 ? 1 : 2);
    apart.push_back(rank);
    around.push_back(rank < ranks / 3 || rank >= ranks - ranks / 3 ? 0 : 1);
  }
  return {blocks, dealt, unequal, apart, around};
}

class Traffic : public ::testing::Test {
 protected:
  /// The bytes that the ranks of each host sent.
  template <class Call>
  std::vector<std::int64_t> counted(const std::vector<int>& host_of,
                                    const Hosts& hosts,
                                    Call call) {
    bytes_off_host = 0;
    world_.barrier();
    counted_hosts = &host_of;
    call();
    stream_->synchronize();
    counted_hosts = nullptr;
    std::vector<std::int64_t> sums(static_cast<std::size_t>(hosts.count()));
    sums[static_cast<std::size_t>(hosts.host_of(world_.rank()))] = bytes_off_host;
    world_.sum(sums);
    return sums;
  }

  std::unique_ptr<Communicator> connect(Transport transport,
                                        Reduction reduction,
                                        const std::vector<int>& host_of) {
    const Options options{.chunk_bytes = 1024};
    if (transport == Transport::mpi)
      return make_communicator(transport, reduction, world_, *device_, options);
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split(world_.comm(), host_of[static_cast<std::size_t>(world_.rank())], world_.rank(),
                   &node);
    return make_node_communicator(transport, reduction, world_, *device_, options, OwnedComm(node));
  }

  MpiWorld world_;
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ =
      device_->make_stream(device::StreamMode::inlined, "comm");
};

TEST_F(Traffic, EqualsThePrediction) {
  const std::int64_t shard = 777;
  for (const std::vector<int>& host_of : placements(world_.size()))
    for (const Transport transport : {Transport::mpi, Transport::hierarchical})
      for (const Reduction reduction : {Reduction::sum, Reduction::ordered, Reduction::tree})
        for (const DType dtype : {DType::f32, DType::bf16}) {
          const Hosts hosts(host_of);
          SCOPED_TRACE(std::string(word(transport)) + " " + word(reduction) + " " + name(dtype) +
                       " on " + std::to_string(hosts.count()) + " hosts");
          const auto communicator = connect(transport, reduction, host_of);
          const auto buffer = communicator->allocate(
              static_cast<std::size_t>(shard * world_.size()) * size_bytes(dtype), "test bucket");
          const auto shards = communicator->shards(buffer.view(dtype));
          EXPECT_EQ(
              counted(host_of, hosts,
                      [&] { communicator->reduce_scatter(*shards, BucketIndex{0}, *stream_); }),
              reduce_traffic(transport, reduction, dtype, hosts, {world_.size(), 1},
                             shard * world_.size(), false));
          EXPECT_EQ(
              counted(host_of, hosts,
                      [&] { communicator->all_gather(*shards, BucketIndex{0}, *stream_); }),
              gather_traffic(transport, dtype, hosts, {world_.size(), 1}, shard * world_.size()));
          world_.barrier();
        }
}

/// Hosts of consecutive ranks; there may be more or fewer hosts than replicas.
TEST_F(Traffic, WithReplicasEqualsThePrediction) {
  for (const int replicas : {2, 3})
    for (const int num_hosts : {2, 3, 4})
      for (const Transport transport : {Transport::mpi, Transport::shared_memory})
        for (const Reduction reduction : {Reduction::sum, Reduction::ordered})
          for (const DType dtype : {DType::f32, DType::bf16}) {
            if (world_.size() % replicas != 0 || world_.size() == replicas ||
                num_hosts > world_.size() ||
                (transport == Transport::shared_memory && num_hosts > replicas))
              continue;  // ranks on one host share memory
            const Hosts hosts = Hosts::in_blocks(world_.size(), num_hosts);
            std::vector<int> host_of;
            for (int rank = 0; rank < world_.size(); ++rank) host_of.push_back(hosts.host_of(rank));
            SCOPED_TRACE(std::string(word(transport)) + " " + word(reduction) + " " + name(dtype) +
                         " on " + std::to_string(num_hosts) + " hosts with " +
                         std::to_string(replicas) + " replicas");
            const auto communicator =
                make_communicator(transport, reduction, world_, *device_,
                                  {.chunk_bytes = 1024, .replicas = {world_.size(), replicas}});
            const std::int64_t elements = std::int64_t{260} * replicas * communicator->size();
            const auto buffer = communicator->allocate(
                static_cast<std::size_t>(elements) * size_bytes(dtype), "test bucket");
            const auto shards = communicator->shards(buffer.view(dtype));
            EXPECT_EQ(
                counted(host_of, hosts,
                        [&] { communicator->reduce_scatter(*shards, BucketIndex{0}, *stream_); }),
                reduce_traffic(transport, reduction, dtype, hosts, {world_.size(), replicas},
                               elements, false));
            EXPECT_EQ(counted(host_of, hosts,
                              [&] { communicator->all_gather(*shards, BucketIndex{0}, *stream_); }),
                      gather_traffic(transport, dtype, hosts, {world_.size(), replicas}, elements));
            world_.barrier();
          }
}

}  // namespace
}  // namespace trireme::comm
