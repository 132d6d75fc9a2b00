// SPDX-License-Identifier: Apache-2.0
#include "device/pool.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "device/cpu/cpu_stream.hpp"

namespace trireme::device {
namespace {

/// The first request exactly; later at least `factor` times the current size; in whole pages.
std::size_t grown(std::size_t current, std::size_t needed, double factor) {
  constexpr std::size_t page = 4096;
  const auto larger = static_cast<std::size_t>(static_cast<double>(current) * factor);
  const std::size_t target = std::max(needed, larger);
  return (target + page - 1) / page * page;
}

}  // namespace

Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), block_(other.block_), view_(other.view_) {}

Lease::~Lease() {
  if (pool_ != nullptr)
    pool_->give_back(block_);
}

Lease ScratchPool::lease(std::string_view name,
                         DType dtype,
                         std::int64_t elements,
                         Stream& stream) {
  TRIREME_EXPECT(elements >= 0, "lease of {} elements under '{}'", elements, name);
  auto found = std::ranges::find_if(
      blocks_, [&](const Block& block) { return block.dtype == dtype && block.name == name; });
  if (found == blocks_.end()) {
    blocks_.push_back({std::string(name), dtype, nullptr, {}, 0, false});
    found = blocks_.end() - 1;
  }
  TRIREME_EXPECT(!found->leased, "scratch '{}' is leased twice at the same time", name);
  TRIREME_EXPECT(found->stream == nullptr || found->stream == &stream,
                 "scratch '{}' is leased on two streams", name);
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_bytes(dtype);
  if (bytes > found->buffer.bytes()) {
    TRIREME_EXPECT(!frozen_ || !options_.pooled,
                   "scratch '{}' grows from {} to {} bytes after warm-up", name,
                   found->buffer.bytes(), bytes);
    const std::size_t target =
        options_.pooled ? grown(found->buffer.bytes(), bytes, options_.growth) : bytes;
    if (found->buffer.bytes() > 0)
      stream.synchronize();  // earlier tasks may still use the old memory
    found->buffer = Buffer();
    found->buffer = device_.allocate(target, std::string("scratch ") + found->name);
    ++num_allocations_;
  }
  found->stream = &stream;
  found->leased = true;
  found->high_water_bytes = std::max(found->high_water_bytes, bytes);
  const View view = found->buffer.view(dtype, 0, elements);
  if (options_.poison && elements > 0 && device_.kind() == Kind::cpu)
    cpu::stream_of(stream).run([view] { std::memset(view.data, 0xff, view.bytes()); });
  return {*this, static_cast<std::size_t>(found - blocks_.begin()), view};
}

void ScratchPool::give_back(std::size_t block) noexcept {
  Block& mine = blocks_[block];
  mine.leased = false;
  if (options_.pooled || mine.buffer.bytes() == 0)
    return;
  try {
    mine.stream->synchronize();
  } catch (...) {
    // The failure stays with the stream; the next call that waits for it reports it.
  }
  mine.buffer = Buffer();
}

std::size_t ScratchPool::allocated_bytes() const {
  std::size_t sum = 0;
  for (const Block& block : blocks_) sum += block.buffer.bytes();
  return sum;
}

std::vector<ScratchPool::Usage> ScratchPool::usage() const {
  std::vector<Usage> all;
  all.reserve(blocks_.size());
  for (const Block& block : blocks_) all.push_back({block.name, block.high_water_bytes});
  return all;
}

}  // namespace trireme::device
