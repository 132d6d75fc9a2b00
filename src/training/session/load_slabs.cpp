// SPDX-License-Identifier: Apache-2.0
#include "session/load_slabs.hpp"

#include <cstddef>

#include "weights/checkpoint_weights.hpp"

#include "session/session.hpp"

namespace trireme::session {

record::CheckpointFacts load_slabs(const std::string& directory,
                                   std::vector<record::MutableSlab> slabs,
                                   Session& session,
                                   comm::World& world) {
  // record/ fills only host memory: for a GPU a copy, which is sent to it afterwards.
  const bool copies = session.device->kind() != device::Kind::cpu;
  const std::vector<record::MutableSlab> there = slabs;
  std::vector<std::byte> memory;
  if (copies) {
    std::size_t bytes = 0;
    for (const auto& slab : slabs) bytes += slab.data.bytes();
    memory.resize(bytes);
    std::byte* next = memory.data();
    for (auto& slab : slabs) {
      slab.data.data = next;
      next += slab.data.bytes();
    }
  }
  auto facts = record::load_checkpoint(directory, session.plan,
                                       weights::model_facts(session.job.shape), slabs, world);
  if (copies) {
    for (std::size_t i = 0; i < slabs.size(); ++i)
      session.device->copy(there[i].data, slabs[i].data, *session.compute_stream);
    session.compute_stream->synchronize();
  }
  return facts;
}

}  // namespace trireme::session
