// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/manifest_share.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "files/descriptor.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {
namespace {

/// Pieces that travel at a time: 768 KiB.
constexpr std::size_t block_pieces = std::size_t{1} << 14;

/// All of a share that every rank has: the manifest without its pieces, the content hashes, the
/// stored elements, and the number of pieces.
auto head_of(ManifestShare& share, std::size_t& num_pieces) {
  Manifest& m = share.manifest;
  return std::tie(m.facts.step, m.facts.next_sample, m.facts.seed, m.facts.model, m.facts.more,
                  m.facts.deck, m.parameters, m.states, m.file_bytes, m.file_frames,
                  share.content_hashes, share.stored_elements, num_pieces);
}

/// The elements that a rank wants, by (state, parameter): the first, and the one after the last.
using Ranges =
    std::multimap<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::int64_t, std::int64_t>>;

Ranges ranges_of(std::span<const MutableSlab> wanted, const Manifest& manifest) {
  Ranges ranges;
  for (const MutableSlab& slab : wanted) {
    const auto state = std::ranges::find(manifest.states, slab.state, &SavedState::name);
    if (state != manifest.states.end() && !slab.data.empty())
      ranges.emplace(std::pair(static_cast<std::uint32_t>(state - manifest.states.begin()),
                               static_cast<std::uint32_t>(at(slab.parameter))),
                     std::pair(slab.begin, slab.begin + slab.data.elements));
  }
  return ranges;
}

}  // namespace

ManifestShare share_manifest(Manifest whole,
                             std::span<const MutableSlab> wanted,
                             comm::World& world) {
  const bool first = world.rank() == 0;
  ManifestShare all, share;
  all.manifest = std::move(whole);
  const std::vector<Piece>& pieces = all.manifest.pieces;
  for (std::size_t s = 0; first && s < all.manifest.states.size(); ++s)
    for (std::size_t p = 0; p < all.manifest.parameters.size(); ++p) {
      all.content_hashes.push_back(all.manifest.content_hash(s, p));
      all.stored_elements.push_back(all.manifest.stored_elements(s, p));
    }
  std::size_t num_pieces = pieces.size();
  const std::string head = first ? pack(head_of(all, num_pieces)) : std::string();
  unpack_to(head_of(share, num_pieces), world.broadcast(head, 0));
  const auto rank = static_cast<std::uint32_t>(world.rank());
  const auto ranks = static_cast<std::uint32_t>(world.size());
  const Ranges ranges = ranges_of(wanted, share.manifest);
  const auto keeps = [&](const Piece& piece) {
    const auto [begin, end] = ranges.equal_range({piece.state, piece.parameter});
    return piece.rank % ranks == rank || std::any_of(begin, end, [&](const auto& one) {
             return piece.begin < one.second.second && one.second.first < piece.begin + piece.count;
           });
  };
  for (std::size_t done = 0; done < num_pieces; done += block_pieces) {
    std::vector<Piece> block;
    if (first) {
      const auto begin = pieces.begin() + static_cast<std::ptrdiff_t>(done);
      const auto count = std::min(block_pieces, num_pieces - done);
      block.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    block = unpack<std::vector<Piece>>(world.broadcast(pack(block), 0));
    std::ranges::copy_if(block, std::back_inserter(share.manifest.pieces), keeps);
  }
  for (std::uint32_t file = rank; file < share.manifest.file_bytes.size(); file += ranks)
    share.files.push_back(file);
  return share;
}

std::vector<std::uint64_t> sums_modulo(std::span<const std::uint64_t> values, comm::World& world) {
  std::vector<std::int64_t> halves;  // because World adds signed numbers: 2^31 ranks fit
  for (const std::uint64_t value : values) {
    halves.push_back(static_cast<std::int64_t>(value & 0xffffffffU));
    halves.push_back(static_cast<std::int64_t>(value >> 32U));
  }
  world.sum(halves);
  std::vector<std::uint64_t> sums;
  for (std::size_t i = 0; i < halves.size(); i += 2)
    sums.push_back(static_cast<std::uint64_t>(halves[i]) +
                   (static_cast<std::uint64_t>(halves[i + 1]) << 32U));
  return sums;
}

void check_rank_files(const std::string& directory,
                      const Manifest& manifest,
                      std::span<const std::uint32_t> files) {
  const auto damaged = [&](const std::string& place, const std::string& problem) {
    throw UserError(Place{place},
                    fmt::format("the checkpoint is damaged: {}: {}", problem, way_out(directory)));
  };
  std::map<std::uint32_t, std::vector<Extent>> data;  // of each file
  for (const std::uint32_t file : files) {
    if (const std::string problem = file_problem(directory, manifest, file); !problem.empty())
      damaged(directory, problem);
    data[file];
  }
  for (const Piece& piece : manifest.pieces)
    if (const auto wanted = data.find(piece.rank); wanted != data.end())
      wanted->second.push_back(
          {piece.offset, piece.count * static_cast<std::int64_t>(
                                           size_bytes(manifest.states[piece.state].dtype))});
  for (auto& [file, extents] : data) {
    const std::string path = directory + "/" + rank_file(static_cast<int>(file));
    if (frame_hash(files::InputFile(path), std::move(extents)) != manifest.file_frames[file])
      damaged(path, "the bytes between its pieces do not match their checksum");
  }
}

}  // namespace trireme::record
