// SPDX-License-Identifier: Apache-2.0
#include "bench/shards.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/quantile.hpp"

#include "comm/communicator.hpp"

#include "bench/batch.hpp"

namespace trireme::bench {
namespace {

/// The transport-independent part of a table of shards.
struct PlainShards final : comm::Shards {
  PlainShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}
};

struct BucketTables {
  std::unique_ptr<comm::Shards> gradient, parameter;
  std::vector<View> gradients, parameters;  // by piece of this rank's shard
};

class Arena {
 public:
  Arena(const layout::Plan& plan, device::Device& device)
      : plan_(plan),
        rank_(plan.ranks() / 2),
        gradients_(device.allocate(bytes(plan), "gradients")),
        parameters_(device.allocate(bytes(plan), "parameters")) {}

  [[nodiscard]] BucketTables find(BucketIndex bucket) const {
    const layout::Bucket& place = plan_.bucket(bucket);
    const auto offset = static_cast<std::size_t>(place.begin) * sizeof(float);
    BucketTables found;
    found.gradient = std::make_unique<PlainShards>(
        gradients_.view(DType::f32, offset, place.elements), rank_, plan_.ranks());
    found.parameter = std::make_unique<PlainShards>(
        parameters_.view(DType::f32, offset, place.elements), rank_, plan_.ranks());
    for (const layout::Piece& piece : plan_.find_pieces(bucket, rank_)) {
      found.gradients.push_back(found.gradient->own.slice(piece.shard_begin, piece.elements));
      found.parameters.push_back(found.parameter->own.slice(piece.shard_begin, piece.elements));
    }
    return found;
  }

 private:
  static std::size_t bytes(const layout::Plan& plan) {
    return static_cast<std::size_t>(plan.flat_elements()) * sizeof(float);
  }

  const layout::Plan& plan_;
  const int rank_;
  device::Buffer gradients_, parameters_;  // never accessed, so no pages are mapped
};

std::uintptr_t sum_of(const BucketTables& tables) {
  std::uintptr_t sum = 0;
  const auto add = [&](const std::vector<View>& views) {
    for (const View& view : views) sum += reinterpret_cast<std::uintptr_t>(view.data);
  };
  add({tables.gradient->own, tables.parameter->own});
  add(tables.gradients);
  add(tables.parameters);
  return sum;
}

/// Prevents the compiler from removing the sum of addresses.
template <class Step>
auto kept(Step& step) {
  return [&step] {
    std::uintptr_t sum = step();
    asm volatile("" : "+r"(sum) : : "memory");
  };
}

}  // namespace

ShardsBench bench_shards(const layout::Plan& plan, device::Device& device, int repetitions) {
  const Arena arena(plan, device);
  const std::size_t count = plan.buckets().size();
  std::vector<BucketTables> tables;
  for (std::size_t b = 0; b < count; ++b) tables.push_back(arena.find(static_cast<BucketIndex>(b)));
  const auto search = [&] {
    std::uintptr_t sum = 0;
    for (std::size_t b = 0; b < count; ++b) sum += sum_of(arena.find(static_cast<BucketIndex>(b)));
    return sum;
  };
  const auto read = [&] {
    std::uintptr_t sum = 0;
    for (const BucketTables& bucket : tables) sum += sum_of(bucket);
    return sum;
  };
  TRIREME_EXPECT(search() == read(), "the tables hold other addresses than a search finds");
  const auto searched = kept(search);
  const auto cached = kept(read);
  const int searched_batch = choose_batch(searched), cached_batch = choose_batch(cached);
  std::vector<double> searched_s, cached_s;
  for (int i = 0; i < repetitions; ++i) {
    searched_s.push_back(seconds_per_run(searched_batch, searched));
    cached_s.push_back(seconds_per_run(cached_batch, cached));
  }
  return {count, plan.ranks(), median(std::move(searched_s)), median(std::move(cached_s))};
}

std::string shards_table(const ShardsBench& result) {
  std::string text = fmt::format("{:<12}{:>10}{:>8}{:>16}{:>16}\n", "operation", "buckets", "ranks",
                                 "ns per step", "ns per bucket");
  const auto add = [&](const char* operation, double seconds) {
    text += fmt::format("{:<12}{:>10}{:>8}{:>16.1f}{:>16.1f}\n", operation, result.buckets,
                        result.ranks, seconds * 1e9,
                        seconds * 1e9 / static_cast<double>(result.buckets));
  };
  add("searched", result.searched_s);
  add("cached", result.cached_s);
  return text;
}

std::string shards_json(const ShardsBench& result) {
  const auto row = [&](const char* operation, double seconds) {
    return fmt::format(
        "{{\"operation\": \"{}\", \"buckets\": {}, \"ranks\": {}, \"seconds\": {:.9g}}}", operation,
        result.buckets, result.ranks, seconds);
  };
  return fmt::format("{{\"rows\": [\n  {},\n  {}\n]}}\n", row("searched", result.searched_s),
                     row("cached", result.cached_s));
}

}  // namespace trireme::bench
