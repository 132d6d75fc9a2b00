// SPDX-License-Identifier: Apache-2.0
// After construction a step of the engine allocates nothing: this executable counts every call of
// operator new during steps.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "reduce/engine.hpp"
#include "reduce/thread_ranks.hpp"

namespace {
std::atomic<long> num_allocations{0};  // NOLINT: operator new has nowhere else to count
}  // namespace

// Not inlined, otherwise compilers see malloc paired with delete and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++num_allocations;
  if (void* at = std::malloc(bytes))
    return at;
  throw std::bad_alloc();
}
// The standard library's version calls the operator above, but the address sanitizer's does not,
// and its memory must not be passed to free().
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++num_allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}

namespace trireme::reduce {
namespace {

using trireme::testing::run_ranks;
using trireme::testing::ThreadRank;

void step(Engine& engine) {
  const auto count = static_cast<std::int32_t>(engine.plan().parameters().size());
  engine.begin_step();
  engine.wait_for_parameters();
  for (std::int64_t leaf = 1; leaf < engine.leaves(); ++leaf) engine.next_leaf();
  for (std::int32_t p = count; p-- > 0;) {
    engine.before_write(ParameterIndex{p});
    engine.mark_ready(ParameterIndex{p});
  }
  engine.finish_reduction();
  for (std::size_t b = engine.owned().size(); b-- > 0;) {
    engine.wait_for_shard(static_cast<BucketIndex>(b));
    engine.mark_updated(static_cast<BucketIndex>(b));
  }
}

long allocations_of_steps(const ParallelConfig& config) {
  long counted = 0;
  run_ranks(2, [&](ThreadRank& rank) {
    const std::vector<layout::Parameter> table{{"a", {3, 50}}, {"b", {70}}, {"c", {200}}};
    const layout::Plan plan(table, {2, 100, layout::Padding::aligned});
    Engine engine(plan, DType::f32, config, rank.communicator, *rank.device, *rank.compute);
    step(engine);
    engine.wait_for_parameters();
    rank.world.barrier();
    const long before = num_allocations;
    for (int i = 0; i < 5; ++i) step(engine);
    engine.wait_for_parameters();
    rank.world.barrier();
    if (rank.world.rank() == 0)
      counted = num_allocations - before;
    rank.world.barrier();
  });
  return counted;
}

TEST(Allocations, StepAllocatesNothing) {
  EXPECT_EQ(allocations_of_steps({}), 0);
  for (const layout::Shard shard :
       {layout::Shard::none, layout::Shard::gradients, layout::Shard::parameters}) {
    ParallelConfig config;
    config.shard = shard;
    EXPECT_EQ(allocations_of_steps(config), 0) << word(shard);
  }
  ParallelConfig kept;
  kept.shard = layout::Shard::parameters;
  kept.reshard_after_forward = false;
  EXPECT_EQ(allocations_of_steps(kept), 0);
  ParallelConfig inlined;
  inlined.overlap_gradients = inlined.overlap_parameters = false;
  EXPECT_EQ(allocations_of_steps(inlined), 0);
  ParallelConfig tree;
  tree.reduction = comm::Reduction::tree;
  tree.logical_shards.value = 8;
  EXPECT_EQ(allocations_of_steps(tree), 0);
}

TEST(Allocations, StepAllocatesWhereShardsAreComputedEveryStep) {
  ParallelConfig searching;
  searching.cached_shards = false;
  EXPECT_GT(allocations_of_steps(searching), 0);
}

}  // namespace
}  // namespace trireme::reduce
