// SPDX-License-Identifier: Apache-2.0
#include "block.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device.hpp"
#include "fiber.hpp"
#include "gpu.hpp"
#include "queue.hpp"
#include "settings.hpp"

#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated {

uint3 threadIdx{}, blockIdx{};
dim3 blockDim{}, gridDim{};

namespace {

/// The kernel's name if the sanitizer knows it, else its address.
std::string name_of(const void* kernel) {
  char text[512];
#ifdef EMULATED_UNDER_ADDRESS_SANITIZER
  __sanitizer_symbolize_pc(const_cast<void*>(kernel), "%f", text, sizeof text);
#else
  std::snprintf(text, sizeof text, "kernel at %p", kernel);
#endif
  return text;
}

enum class State : std::uint8_t { fresh, ready, at_barrier, at_exchange, ended };

struct Thread {
  State state = State::fresh;
  Fiber* fiber = nullptr;
  unsigned mask = 0;
  int source = -1;
  std::uint64_t value = 0, taken = 0;
  unsigned times_given = 0;
  uint3 index{};
};

/// One bit per lane.
struct Warp {
  unsigned present = 0, ended = 0, exchanging = 0;
};

/// The running block. Used by the GPU's thread only.
class Block {
 public:
  void run(const void* kernel, const std::function<void()>& thread);
  void wait_for_block();
  std::uint64_t exchange(unsigned mask, std::uint64_t value, int source);
  const Given& give_all(const Words& words);
  void copy_at_wait(void* to, const Copied& value);
  void wait_for_copies();
  [[nodiscard]] unsigned current() const { return current_; }

 private:
  static void fiber_body();
  void run_threads();
  void run_one(unsigned index);
  void end_thread();
  void yield();
  Fiber& next_fiber();
  void become(unsigned index);
  void release(std::vector<std::uint32_t>& ascending);
  void release_barrier();
  void release_lanes(unsigned warp, unsigned mask);
  [[noreturn]] void stuck() const;

  const void* kernel_ = nullptr;
  const std::function<void()>* thread_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::array<Given, 2>> given_;                    // by warp, two used alternately
  std::vector<std::vector<std::pair<void*, Copied>>> copies_;  // by thread
  std::vector<std::uint32_t> fresh_;                           // not begun, the next one last
  std::vector<std::uint32_t> ready_;  // threads that can continue, the next one at first_ready_
  std::size_t first_ready_ = 0;
  bool newest_first_ = false;  // false: the one that has waited longest first
  std::uint32_t num_ended_ = 0, num_at_barrier_ = 0;
  std::uint32_t current_ = 0;
  Chooser chooser_;
  Fiber main_;
  Fiber* running_ = &main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<std::uint32_t> released_;  // scratch
};

/// Created by the GPU's thread, never destroyed.
Block* block = nullptr;

void Block::fiber_body() {
  block->run_threads();
}

void Block::run(const void* kernel, const std::function<void()>& thread) {
  kernel_ = kernel;
  thread_ = &thread;
  const auto count = blockDim.x * blockDim.y * blockDim.z;
  threads_.assign(count, {});
  warps_.assign((count + warp_lanes - 1) / warp_lanes, {});
  given_.resize(warps_.size());
  copies_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    warps_[i / warp_lanes].present |= 1U << i % warp_lanes;
    threads_[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  }
  chooser_.permutation(fresh_, count);
  std::reverse(fresh_.begin(), fresh_.end());
  ready_.clear();
  first_ready_ = 0;
  newest_first_ = chooser_.one_of(2) == 1;
  num_ended_ = num_at_barrier_ = 0;
  running_ = &next_fiber();
  main_.switch_to(*running_);
}

/// The fiber of a thread that can continue, or a fiber that can start threads.
Fiber& Block::next_fiber() {
  const bool can_continue = first_ready_ < ready_.size(), can_begin = !fresh_.empty();
  if (!can_continue && !can_begin)
    stuck();
  if (can_continue && (!can_begin || chooser_.one_of(2) == 0)) {
    const auto index = newest_first_ ? ready_.back() : ready_[first_ready_++];
    if (newest_first_)
      ready_.pop_back();
    if (first_ready_ == ready_.size()) {
      ready_.clear();
      first_ready_ = 0;
    }
    become(index);
    return *threads_[index].fiber;
  }
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(&Block::fiber_body));
    return *fibers_.back();
  }
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

void Block::become(unsigned index) {
  current_ = index;
  threadIdx = threads_[index].index;
}

/// The body of every fiber: it runs threads one after another until one has to wait.
void Block::run_threads() {
  for (;;) {
    while (!fresh_.empty()) {
      const auto index = fresh_.back();
      fresh_.pop_back();
      threads_[index].fiber = running_;
      become(index);
      (*thread_)();
      end_thread();
    }
    Fiber& mine = *running_;
    idle_.push_back(&mine);
    running_ = num_ended_ == threads_.size() ? &main_ : &next_fiber();
    mine.switch_to(*running_);
  }
}

void Block::end_thread() {
  if (!copies_[current_].empty())
    fail("%s: thread %u of block (%u, %u, %u) ends without waiting for its copies",
         name_of(kernel_).c_str(), current_, blockIdx.x, blockIdx.y, blockIdx.z);
  threads_[current_].state = State::ended;
  ++num_ended_;
  // Other threads may have waited for this one only.
  release_barrier();
  const unsigned warp = current_ / warp_lanes;
  warps_[warp].ended |= 1U << current_ % warp_lanes;
  for (unsigned i = 0; i < warp_lanes; ++i)
    if ((warps_[warp].exchanging >> i & 1U) != 0)
      release_lanes(warp, threads_[warp * warp_lanes + i].mask);
}

void Block::yield() {
  Fiber& mine = *running_;
  Fiber& next = next_fiber();
  if (&next == &mine)
    return;
  running_ = &next;
  mine.switch_to(next);
}

/// Makes these threads ready, in an order that the seed determines.
void Block::release(std::vector<std::uint32_t>& ascending) {
  chooser_.arrange(ascending);
  for (const auto index : ascending) {
    threads_[index].state = State::ready;
    ready_.push_back(index);
  }
}

void Block::release_barrier() {
  if (num_at_barrier_ == 0 || num_at_barrier_ + num_ended_ < threads_.size())
    return;
  released_.clear();
  for (std::uint32_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].state == State::at_barrier)
      released_.push_back(i);
  num_at_barrier_ = 0;
  release(released_);
}

void Block::wait_for_block() {
  threads_[current_].state = State::at_barrier;
  ++num_at_barrier_;
  release_barrier();
  yield();
}

/// Releases the lanes of `mask` when all that have not ended have arrived.
void Block::release_lanes(unsigned warp, unsigned mask) {
  Warp& lanes = warps_[warp];
  const unsigned expected = mask & lanes.present & ~lanes.ended;
  if (expected == 0 || (lanes.exchanging & expected) != expected)
    return;
  Thread* const threads = &threads_[warp * warp_lanes];
  released_.clear();
  for (unsigned i = 0; i < warp_lanes; ++i) {
    if ((expected >> i & 1U) == 0)
      continue;
    if (threads[i].mask != mask)
      fail("%s: lanes of warp %u of block (%u, %u, %u) wait with masks 0x%08x and 0x%08x",
           name_of(kernel_).c_str(), warp, blockIdx.x, blockIdx.y, blockIdx.z, mask,
           threads[i].mask);
    if (threads[i].source >= 0) {
      const auto source = static_cast<unsigned>(threads[i].source);
      if ((expected >> source & 1U) == 0)
        fail(
            "%s: lane %u of warp %u of block (%u, %u, %u) takes the value of lane %u, which gives "
            "none",
            name_of(kernel_).c_str(), i, warp, blockIdx.x, blockIdx.y, blockIdx.z, source);
      threads[i].taken = threads[source].value;
    }
    released_.push_back(warp * warp_lanes + i);
  }
  lanes.exchanging &= ~expected;
  release(released_);
}

std::uint64_t Block::exchange(unsigned mask, std::uint64_t value, int source) {
  const unsigned warp = current_ / warp_lanes, lane = current_ % warp_lanes;
  if ((mask >> lane & 1U) == 0)
    fail("%s: lane %u of warp %u is not in its own mask 0x%08x", name_of(kernel_).c_str(), lane,
         warp, mask);
  Thread& thread = threads_[current_];
  thread.state = State::at_exchange;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  warps_[warp].exchanging |= 1U << lane;
  release_lanes(warp, mask);
  yield();
  return thread.taken;
}

/// Two buffers suffice: a lane that gives a second time has seen all lanes give in between, so all
/// have read the first values.
const Given& Block::give_all(const Words& words) {
  const unsigned warp = current_ / warp_lanes, time = ++threads_[current_].times_given;
  Given& given = given_[warp][time % 2];
  given[current_ % warp_lanes] = words;
  exchange(0xffffffffU, 0, -1);
  for (unsigned i = warp * warp_lanes; i < (warp + 1) * warp_lanes; ++i)
    if (i >= threads_.size() || threads_[i].times_given < time)
      fail("%s: warp %u of block (%u, %u, %u) multiplies without its lane %u",
           name_of(kernel_).c_str(), warp, blockIdx.x, blockIdx.y, blockIdx.z, i % warp_lanes);
  return given;
}

void Block::copy_at_wait(void* to, const Copied& value) {
  copies_[current_].emplace_back(to, value);
}

void Block::wait_for_copies() {
  for (const auto& [to, value] : copies_[current_]) std::memcpy(to, value.data(), sizeof value);
  copies_[current_].clear();
}

void Block::stuck() const {
  std::string who;
  for (std::size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].state == State::at_barrier || threads_[i].state == State::at_exchange) {
      if (who.size() > 200) {
        who += " …";
        break;
      }
      who += " " + std::to_string(i) + (threads_[i].state == State::at_barrier ? "b" : "w");
    }
  fail(
      "%s: block (%u, %u, %u) cannot go on; threads that wait at a barrier (b) or for their warp "
      "(w):%s",
      name_of(kernel_).c_str(), blockIdx.x, blockIdx.y, blockIdx.z, who.c_str());
}

void run_grid(const cudaLaunchConfig_t& config,
              const void* kernel,
              const std::function<void()>& thread) {
  static auto* chooser = new Chooser;
  if (block == nullptr)
    block = new Block;
  gridDim = config.gridDim;
  blockDim = config.blockDim;
  static std::vector<std::uint32_t> order;
  chooser->permutation(order, gridDim.x * gridDim.y * gridDim.z);
  for (const auto index : order) {
    blockIdx = {index % gridDim.x, index / gridDim.x % gridDim.y, index / gridDim.x / gridDim.y};
    block->run(kernel, thread);
  }
}

bool fits(const cudaLaunchConfig_t& config) {
  const dim3 grid = config.gridDim, threads = config.blockDim;
  constexpr unsigned most_x = 0x7fffffffU, most_yz = 65535, most_threads = 1024, most_z = 64;
  return grid.x > 0 && grid.y > 0 && grid.z > 0 && threads.x > 0 && threads.y > 0 &&
         threads.z > 0 && grid.x <= most_x && grid.y <= most_yz && grid.z <= most_yz &&
         threads.x <= most_threads && threads.y <= most_threads && threads.z <= most_z &&
         std::uint64_t{threads.x} * threads.y * threads.z <= most_threads;
}

}  // namespace

unsigned lane() {
  return block->current() % warp_lanes;
}

void wait_for_block() {
  block->wait_for_block();
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, int source) {
  return block->exchange(mask, value, source);
}

const Given& give_all(const Words& words) {
  return block->give_all(words);
}

void copy_at_wait(void* to, const Copied& value) {
  block->copy_at_wait(to, value);
}

void wait_for_copies() {
  block->wait_for_copies();
}

cudaError_t launch(const cudaLaunchConfig_t& config,
                   const void* kernel,
                   std::function<void()> thread) {
  if (!fits(config))
    return told(cudaErrorInvalidConfiguration);
  if (config.dynamicSmemBytes > 0 || config.numAttrs > 0)
    return told(cudaErrorNotSupported);
  return enqueue(config.stream, "kernel", [config, kernel, thread = std::move(thread)] {
    run_grid(config, kernel, thread);
  });
}

void check_pointer(const void* kernel, const void* pointer) {
  if (pointer != nullptr && !reaches(pointer))
    fail("%s is given %p, memory of the host that is not page-locked", name_of(kernel).c_str(),
         pointer);
}

}  // namespace emulated
