// SPDX-License-Identifier: Apache-2.0
// A training step after warm-up allocates nothing on the heap. While steps run, this executable
// counts on all of its threads: every malloc (operator new included) when the world is one process;
// every operator new under MPI, which itself uses malloc.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "session/session.hpp"
#include "session/small_job.hpp"

namespace {
// NOLINTBEGIN: the allocator has nowhere else to count
std::atomic<bool> counting{false};
std::atomic<long> num_mallocs{0}, num_news{0};
// NOLINTEND

bool counts() {
  return counting.load(std::memory_order_relaxed);
}

void* counted(std::size_t bytes, std::size_t alignment) {
  if (counts())
    ++num_news;
  void* at = alignment == 0 ? std::malloc(bytes) : std::aligned_alloc(alignment, bytes);
  if (at == nullptr)
    throw std::bad_alloc();
  return at;
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT: glibc's own
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* old, std::size_t bytes);               // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT

void* malloc(std::size_t bytes) {
  if (counts())
    ++num_mallocs;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  if (counts())
    ++num_mallocs;
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  if (counts())
    ++num_mallocs;
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  if (counts())
    ++num_mallocs;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** at, std::size_t alignment, std::size_t bytes) {
  if (counts())
    ++num_mallocs;
  *at = __libc_memalign(alignment, bytes);
  return *at == nullptr ? ENOMEM : 0;
}
}

// Not inlined, else compilers see malloc paired with delete and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return counted(bytes, 0);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* at) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::align_val_t) noexcept {
  std::free(at);
}
[[gnu::noinline]] void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
  std::free(at);
}

namespace trireme::session {
namespace {

/// Its batches divide over four ranks.
Job even_job() {
  Job job = small_job();
  job.batch.micro_sequences = 1;
  return job;
}

struct Counted {
  long mallocs = 0, news = 0;
  std::uint64_t scratch = 0;
};

Counted count_steps(const Job& job, comm::World& world) {
  Log log(false, "test");
  const auto data = open_data(job, "unused", world, log);
  Session session(job, data, world);
  std::int64_t step = 0;
  const auto take = [&](int steps) {
    for (int i = 0; i < steps; ++i) session.step(++step, [] { return Requests{}; });
    session.engine.wait_for_parameters();
    world.barrier();
  };
  take(3);
  const std::uint64_t warm = session.scratch.num_allocations();
  num_mallocs = 0;
  num_news = 0;
  counting = true;
  take(5);
  counting = false;
  const Counted counted{num_mallocs, num_news, session.scratch.num_allocations() - warm};
  world.barrier();  // no rank leaves while a peer counts
  return counted;
}

TEST(Allocations, AStepOnOneRankAllocatesNothing) {
  const auto world = comm::make_self_world();
  for (const auto& [shard, graphs] : {std::pair{layout::Shard::optimizer, false},
                                      {layout::Shard::none, false},
                                      {layout::Shard::parameters, false},
                                      {layout::Shard::optimizer, true}}) {
    Job job = even_job();
    job.parallel.shard = shard;
    job.gpu.graphs.value = graphs;
    const Counted counted = count_steps(job, *world);
    EXPECT_EQ(counted.mallocs, 0);
    EXPECT_EQ(counted.news, 0);
    EXPECT_EQ(counted.scratch, 0U);
  }
}

TEST(Allocations, AChangingBatchAllocatesNothing) {
  const auto alone = comm::make_self_world(), ranks = comm::make_mpi_world();
  for (const bool graphs : {false, true}) {
    Job job = even_job();
    job.batch.schedule = {{5, 24}, {6, 36}, {8, 12}};  // of steps 4 to 8, which are counted
    job.gpu.graphs.value = graphs;
    EXPECT_EQ(count_steps(job, *alone).mallocs, 0);
    const Counted counted = count_steps(job, *ranks);
    EXPECT_EQ(counted.news, 0);
    EXPECT_EQ(counted.scratch, 0U);
  }
}

TEST(Allocations, AStepOfMuonAllocatesNothing) {
  const auto alone = comm::make_self_world(), ranks = comm::make_mpi_world();
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    Job job = even_job();
    job.optimizer.kind = optim::Kind::muon;
    job.parallel.shard = shard;
    EXPECT_EQ(count_steps(job, *alone).mallocs, 0) << "shard " << name;
    EXPECT_EQ(count_steps(job, *ranks).news, 0) << "shard " << name;
  }
}

TEST(Allocations, AStepOfEveryFamilyAllocatesNothing) {
  const auto alone = comm::make_self_world();
  for (const auto family : {model::Family::llama, model::Family::qwen3, model::Family::nanochat}) {
    Job job = even_job();
    model::ModelConfig config{.family = {family},
                              .layers = job.shape.layers,
                              .heads = job.shape.heads,
                              .channels = job.shape.channels,
                              .context = job.shape.context,
                              .vocabulary = job.shape.vocabulary};
    job.shape = model::resolve(config);
    const Counted counted = count_steps(job, *alone);
    EXPECT_EQ(counted.mallocs, 0) << word(family);
    EXPECT_EQ(counted.scratch, 0U) << word(family);
  }
}

TEST(Allocations, AStepUnderMpiAllocatesNothing) {
  const auto world = comm::make_mpi_world();
  for (const auto transport : {comm::Transport::automatic, comm::Transport::mpi})
    for (const auto& [shard, name] : EnumNames<layout::Shard>::table)
      for (const bool overlap : {true, false}) {
        Job job = even_job();
        job.parallel.shard = shard;
        job.parallel.transport = transport;
        job.parallel.overlap_gradients = job.parallel.overlap_parameters = overlap;
        const Counted counted = count_steps(job, *world);
        EXPECT_EQ(counted.news, 0)
            << word(transport) << ", shard " << name << ", overlap " << overlap;
        EXPECT_EQ(counted.scratch, 0U);
      }
}

TEST(Allocations, AStepWithCopiesAllocatesNothing) {
  const auto world = comm::make_mpi_world();
  if (world->size() != 4)
    GTEST_SKIP() << "two copies of two ranks";
  for (const auto transport : {comm::Transport::automatic, comm::Transport::mpi})
    for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
      if (shard == layout::Shard::none)
        continue;
      Job job = even_job();
      job.parallel.shard = shard;
      job.parallel.transport = transport;
      job.parallel.replicate.number = 2;
      const Counted counted = count_steps(job, *world);
      EXPECT_EQ(counted.news, 0) << word(transport) << ", shard " << name;
      EXPECT_EQ(counted.scratch, 0U);
    }
}

TEST(Allocations, AreCountedWithoutThePool) {
  const auto world = comm::make_self_world();
  Job job = even_job();
  job.memory.pool = false;
  job.parallel.cached_shards = false;
  const Counted counted = count_steps(job, *world);
  EXPECT_GT(counted.news, 0);
  EXPECT_GE(counted.mallocs, counted.news);
  EXPECT_GT(counted.scratch, 0U);
}

}  // namespace
}  // namespace trireme::session
