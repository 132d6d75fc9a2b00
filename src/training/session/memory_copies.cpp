// SPDX-License-Identifier: Apache-2.0
#include "session/memory_copies.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/packing.hpp"

namespace trireme::session {

Partners partners_of(const std::vector<std::string>& hosts, int rank) {
  std::vector<int> by_host(hosts.size());
  std::iota(by_host.begin(), by_host.end(), 0);
  std::ranges::stable_sort(by_host, {}, [&](int r) { return hosts[static_cast<std::size_t>(r)]; });
  // A shift by the ranks of the largest host leaves every host.
  std::ptrdiff_t shift = 0;
  for (const std::string& host : hosts) shift = std::max(shift, std::ranges::count(hosts, host));
  const auto ranks = std::ssize(hosts);
  if (shift == ranks)
    shift = 1;
  const auto at = std::ranges::find(by_host, rank) - by_host.begin();
  const auto rank_at = [&](std::ptrdiff_t place) {
    return by_host[static_cast<std::size_t>(place % ranks)];
  };
  return {rank_at(at + shift), rank_at(at + ranks - shift)};
}

void MemoryCopies::choose_partners(comm::World& world) {
  partners_ = partners_of(world.gather_all(world.host()), world.rank());
}

void MemoryCopies::take(const record::CheckpointFacts& facts,
                        std::span<const record::MutableSlab> state,
                        device::Stream& compute,
                        comm::World& world) {
  world.barrier();  // all ranks have completed the newest copy, so the older one may go
  generation_ = 1 - generation_;
  Copy &mine = mine_[generation_], &theirs = theirs_[generation_];
  mine.head = {.rank = world.rank(), .ranks = world.size(), .own = true};
  theirs.head = {};
  std::size_t bytes = 0;
  for (const auto& slab : state) bytes += slab.data.bytes();
  if (mine.bytes.size() != bytes) {
    mine.bytes = {};  // first, so that both are never held
    mine.bytes.resize(bytes);
  }
  auto* next = reinterpret_cast<std::byte*>(mine.bytes.data());
  for (const auto& [name, parameter, begin, data] : state) {
    mine.head.slices.push_back({name, parameter, begin, data.elements, data.dtype});
    compute.device().copy(View(next, data.elements, data.dtype), data, compute);
    next += data.bytes();
  }
  compute.synchronize();
  world.expect_no_loss();
  mine.head.step = facts.step;
  if (world.rank() == 0)
    mine.head.facts = facts;
  std::string head;
  world.exchange(pack(mine.head), partners_.to, head, partners_.from);
  world.exchange(mine.bytes, partners_.to, theirs.bytes, partners_.from);
  theirs.head = unpack<Head>(head);
  theirs.head.own = false;
}

std::optional<MemoryCopies::Found> MemoryCopies::newest(std::int64_t newer_than,
                                                        comm::World& world) const {
  std::vector<const Copy*> held;
  std::vector<Head> heads;
  for (const auto* of_two : {&mine_, &theirs_})
    for (const Copy& copy : *of_two)
      if (copy.head.step > newer_than) {
        held.push_back(&copy);
        heads.push_back(copy.head);
        heads.back().slices.clear();
      }
  struct Together {
    std::vector<int> writers;  // by rank: who writes its file; -1: no copy is left
    record::CheckpointFacts facts;
  };
  using Key = std::pair<std::int64_t, int>;  // step, ranks
  std::map<Key, Together> all;
  const auto texts = world.gather_all(pack(heads));
  for (int holder = 0; holder < world.size(); ++holder)
    for (Head& head : unpack<std::vector<Head>>(texts[static_cast<std::size_t>(holder)])) {
      auto& [writers, facts] = all[{head.step, head.ranks}];
      writers.resize(static_cast<std::size_t>(head.ranks), -1);
      if (int& writer = writers[static_cast<std::size_t>(head.rank)]; head.own || writer < 0)
        writer = holder;
      if (head.rank == 0)
        facts = std::move(head.facts);
    }
  std::erase_if(all, [](const auto& one) {
    return std::ranges::find(one.second.writers, -1) != one.second.writers.end();
  });
  if (all.empty())
    return std::nullopt;
  const auto& [key, together] = *all.rbegin();
  Found found{together.facts, {}};
  for (const Copy* copy : held) {
    const Head& head = copy->head;
    if (Key(head.step, head.ranks) != key ||
        together.writers[static_cast<std::size_t>(head.rank)] != world.rank())
      continue;
    auto& slabs = found.files.emplace_back(record::RankSlabs{head.rank, {}}).slabs;
    const auto* next = reinterpret_cast<const std::byte*>(copy->bytes.data());
    for (const Slice& slice : head.slices) {
      const ConstView data(next, slice.elements, slice.dtype);
      slabs.push_back({slice.state, slice.parameter, slice.begin, data});
      next += data.bytes();
    }
  }
  return found;
}

}  // namespace trireme::session
