// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/rank_file.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <utility>

#include <fcntl.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/threads.hpp"
#include "device/device.hpp"
#include "device/recorder.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"

namespace trireme::record {
namespace {

/// Bytes of the file that are composed and written at a time.
constexpr std::int64_t block_bytes = std::int64_t{8} << 20;
/// O_DIRECT requires multiples of this (or less) for offset, address and size.
constexpr std::size_t page_bytes = 4096;
static_assert(block_bytes % page_bytes == 0);

/// A piece, its data, and the number of its elements that were hashed.
struct Placed {
  Piece piece;
  ConstView data;
  std::int64_t hashed = 0;
  bool finite = true;

  [[nodiscard]] std::int64_t end() const {
    return piece.offset + static_cast<std::int64_t>(data.bytes());
  }
};

/// Infinities and NaN have all exponent bits set; `exponent` is the mask of these bits in Bits.
template <class Bits>
bool all_finite(ConstView data, Bits exponent) {
  unsigned found = 0;
  for (std::int64_t i = 0; i < data.elements; ++i) {
    Bits bits;
    std::memcpy(&bits, data.data + static_cast<std::size_t>(i) * sizeof bits, sizeof bits);
    found |= (bits & exponent) == exponent ? 1U : 0U;
  }
  return found == 0;
}

/// Always true for types other than fp32 and bf16.
bool all_finite(ConstView data) {
  if (data.dtype == DType::f32)
    return all_finite<std::uint32_t>(data, 0x7f800000U);
  return data.dtype != DType::bf16 || all_finite<std::uint16_t>(data, 0x7f80U);
}

std::uint32_t number_of(std::vector<SavedState>& states, const Slab& slab) {
  const auto known = std::ranges::find(states, slab.state, &SavedState::name);
  const auto number = static_cast<std::uint32_t>(known - states.begin());
  if (known == states.end())
    states.push_back({slab.state, slab.data.dtype});
  TRIREME_EXPECT(states[number].dtype == slab.data.dtype, "state {} in two dtypes", slab.state);
  return number;
}

std::vector<Placed> lay_out(const std::string& path,
                            int rank,
                            const layout::Plan& plan,
                            std::span<const Slab> slabs,
                            std::vector<SavedState>& states) {
  std::vector<Placed> placed;
  h5::File file = h5::create_file(path);
  h5::write_attribute(file.get(), "filetype", "trireme-checkpoint-rank");
  h5::write_attribute(file.get(), "rank", std::int64_t{rank});
  for (const Slab& slab : slabs) {
    const std::uint32_t state = number_of(states, slab);
    if (slab.data.empty())
      continue;
    const h5::Group group = h5::open_group(file.get(), slab.state);
    std::string name = plan.parameter(slab.parameter).name;
    if (h5::exists(group.get(), name))
      name = name_of_later_range(name, slab.begin);
    const h5::Dataset dataset = h5::Dataset::create_fixed(
        group.get(), name, h5::type_of(slab.data.dtype), slab.data.elements);
    h5::write_attribute(dataset.id(), "begin", slab.begin);
    placed.push_back({.piece = {.state = state,
                                .parameter = static_cast<std::uint32_t>(slab.parameter),
                                .rank = static_cast<std::uint32_t>(rank),
                                .zero = 0,
                                .begin = slab.begin,
                                .count = slab.data.elements,
                                .hash = 0,
                                .offset = dataset.file_offset()},
                      .data = slab.data});
  }
  h5::close(std::move(file));
  return placed;
}

/// Composes `block`, which begins at offset `begin` of the file, from the pieces in memory and
/// HDF5's bytes between them. Hashes the elements. `pieces` are in file order, from the first that
/// overlaps the block.
void compose(std::span<std::byte> block,
             std::int64_t begin,
             const files::InputFile& file,
             std::span<Placed> pieces) {
  const std::int64_t end = begin + std::ssize(block);
  const auto part = [&](std::int64_t from, std::int64_t to) {
    return block.subspan(static_cast<std::size_t>(from - begin),
                         static_cast<std::size_t>(to - from));
  };
  std::int64_t at = begin;
  for (Placed& placed : pieces) {
    if (placed.piece.offset >= end)
      break;
    const std::int64_t from = std::max(begin, placed.piece.offset),
                       to = std::min(end, placed.end());
    file.read(at, part(at, from));
    const std::int64_t skip = from - placed.piece.offset;
    std::memcpy(part(from, to).data(), placed.data.data + skip,
                static_cast<std::size_t>(to - from));
    // An element may span two blocks: it is hashed with the second.
    const auto element = static_cast<std::int64_t>(size_bytes(placed.data.dtype));
    const std::int64_t whole = (to - placed.piece.offset) / element;
    const ConstView fresh = placed.data.slice(placed.hashed, whole - placed.hashed);
    placed.piece.hash += hash_elements(fresh, placed.piece.begin + placed.hashed);
    placed.finite = placed.finite && all_finite(fresh);
    placed.hashed = whole;
    at = to;
  }
  file.read(at, part(at, end));
}

/// Opens the file with O_DIRECT; not open if the file system does not support that.
files::Descriptor open_direct(const std::string& path) {
  try {
    return {path, O_WRONLY | O_DIRECT};
  } catch (const StorageError&) {
    return {};
  }
}

/// Writes a block whose address and offset are aligned to pages. Whole pages are written with
/// O_DIRECT, which needs little CPU time. The rest, or all without O_DIRECT, goes through the page
/// cache, and the kernel is asked to start writeback at once.
void write_block(const files::Descriptor& file,
                 files::Descriptor& direct,
                 std::int64_t offset,
                 std::span<const std::byte> block) {
  const std::size_t pages = direct.is_open() ? block.size() / page_bytes * page_bytes : 0;
  try {
    direct.write_at(offset, block.first(pages));
    file.write_at(offset + static_cast<std::int64_t>(pages), block.subspan(pages));
  } catch (const StorageError&) {
    if (!direct.is_open())
      throw;
    direct = {};  // larger alignment needed, or disk full, which a cached write reports
    file.write_at(offset, block);
  }
  file.begin_transfer(offset, std::ssize(block));
}

/// Composes a block while another thread writes the previous one.
void write_blocks(const files::InputFile& frame,
                  std::span<Placed> placed,
                  const std::stop_token& stop) {
  const auto memory = device::make_cpu_device(1);
  const device::Buffer blocks =
      memory->allocate(2 * static_cast<std::size_t>(block_bytes), "blocks of a checkpoint");
  const auto file = files::Descriptor::regular(frame.path(), O_WRONLY);
  files::Descriptor direct = open_direct(frame.path());
  std::future<void> writing;  // last: it ends before the variables that it uses
  for (std::int64_t at = 0; at < frame.size(); at += block_bytes) {
    if (stop.stop_requested())
      throw StorageError("checkpoint", "writing", "the run ended before it was complete");
    const std::span block(blocks.data() + at / block_bytes % 2 * block_bytes,
                          static_cast<std::size_t>(std::min(block_bytes, frame.size() - at)));
    while (!placed.empty() && placed.front().end() <= at) placed = placed.subspan(1);
    compose(block, at, frame, placed);
    if (writing.valid())
      writing.get();
    writing = start_async("write-blocks", [&, at, block] { write_block(file, direct, at, block); });
  }
  writing.get();
  file.sync();
}

}  // namespace

std::uint64_t frame_hash(const files::InputFile& file, std::vector<Extent> data) {
  std::ranges::sort(data, {}, &Extent::begin);
  data.push_back({file.size(), 0});
  std::uint64_t hash = 0;
  std::int64_t at = 0;
  std::string bytes;
  for (const Extent& extent : data) {
    // Read in blocks: offsets in a damaged manifest may be far apart.
    while (at < extent.begin) {
      bytes.resize(static_cast<std::size_t>(std::min(extent.begin - at, std::int64_t{1} << 20)));
      file.read(at, std::as_writable_bytes(std::span(bytes)));
      hash = hash_bytes(bytes, hash);
      at += std::ssize(bytes);
    }
    at = std::max(at, extent.begin + extent.bytes);
  }
  return hash;
}

Part write_rank_file(const std::string& path,
                     int rank,
                     const layout::Plan& plan,
                     std::span<const Slab> slabs,
                     const std::stop_token& stop) {
  const double begin = device::steady_seconds();
  Part part;
  part.rank = rank;
  std::vector<Placed> placed = lay_out(path, rank, plan, slabs, part.states);
  std::ranges::sort(placed, {}, [](const Placed& one) { return one.piece.offset; });
  const files::InputFile frame(path);
  std::vector<Extent> data;
  data.reserve(placed.size());
  for (const Placed& one : placed)
    data.push_back({one.piece.offset, static_cast<std::int64_t>(one.data.bytes())});
  part.frame = frame_hash(frame, std::move(data));
  write_blocks(frame, placed, stop);
  for (const Placed& one : placed) {
    part.pieces.push_back(one.piece);
    if (!one.finite && part.bad_state < 0) {
      part.bad_state = one.piece.state;
      part.bad_parameter = one.piece.parameter;
    }
  }
  part.file_bytes = frame.size();
  part.seconds = device::steady_seconds() - begin;
  return part;
}

}  // namespace trireme::record
