// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include "comm/transports.hpp"

namespace trireme::comm {

Shards::Shards(View bucket, int rank, int size) : full(bucket) {
  const std::int64_t shard_elements = bucket.elements / size;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks.push_back(bucket.slice(r * shard_elements, shard_elements));
  own = ranks[static_cast<std::size_t>(rank)];
}

void expect_bucket(View full, int size) {
  TRIREME_EXPECT(full.dtype == DType::f32 || full.dtype == DType::bf16, "a bucket of {}",
                 name(full.dtype));
  TRIREME_EXPECT(full.elements % size == 0, "a bucket of {} elements for {} ranks", full.elements,
                 size);
}

std::unique_ptr<Communicator> make_communicator(Transport transport,
                                                Reduction reduction,
                                                World& world,
                                                device::Device& device,
                                                const Options& options) {
  if (transport == Transport::automatic)
    transport = world.size() == 1 ? Transport::self : Transport::mpi;
  if (transport == Transport::self) {
    if (world.size() > 1)
      throw UserError(fmt::format("parallel.transport: self carries one rank, and this run has {}",
                                  world.size()));
    return make_self_communicator(device);
  }
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr)
    throw UserError(fmt::format("parallel.transport: {} needs MPI, and this run was made without",
                                word(transport)));
  return make_mpi_communicator(reduction, *mpi, device, options);
}

}  // namespace trireme::comm
