// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/manifest_share.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "files/input_file.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {
namespace {

/// Pieces that travel at a time: 768 KiB.
constexpr std::size_t block_pieces = std::size_t{1} << 14;

void pack(Packer& to, const NameValues& values) {
  to.number(values.size());
  for (const auto& [name, value] : values) {
    to.text(name);
    to.text(value);
  }
}

NameValues unpack_values(Unpacker& from) {
  NameValues values(from.number<std::size_t>());
  for (auto& [name, value] : values) {
    name = from.text();
    value = from.text();
  }
  return values;
}

/// All but the pieces, of which their number and the content hashes go.
std::string packed_head(const Manifest& whole) {
  Packer to;
  to.number(whole.facts.step);
  to.number(whole.facts.next_sample);
  to.number(whole.facts.seed);
  for (const NameValues* values : {&whole.facts.model, &whole.facts.more, &whole.facts.deck})
    pack(to, *values);
  to.number(whole.parameters.size());
  for (const SavedParameter& parameter : whole.parameters) {
    to.text(parameter.name);
    to.array(parameter.shape);
    to.number(parameter.elements);
  }
  to.number(whole.states.size());
  for (const SavedState& state : whole.states) {
    to.text(state.name);
    to.number(state.dtype);
  }
  to.array(whole.file_bytes);
  to.array(whole.file_frames);
  std::vector<std::uint64_t> hashes;
  for (std::size_t s = 0; s < whole.states.size(); ++s)
    for (std::size_t p = 0; p < whole.parameters.size(); ++p)
      hashes.push_back(whole.content_hash(s, p));
  to.array(hashes);
  to.number(whole.pieces.size());
  return to.take();
}

std::size_t unpack_head(Unpacker from, ManifestShare& share) {
  Manifest& manifest = share.manifest;
  manifest.facts.step = from.number<std::int64_t>();
  manifest.facts.next_sample = from.number<std::uint64_t>();
  manifest.facts.seed = from.number<std::uint64_t>();
  for (NameValues* values : {&manifest.facts.model, &manifest.facts.more, &manifest.facts.deck})
    *values = unpack_values(from);
  manifest.parameters.resize(from.number<std::size_t>());
  for (SavedParameter& parameter : manifest.parameters) {
    parameter.name = from.text();
    parameter.shape = from.array<std::int64_t>();
    parameter.elements = from.number<std::int64_t>();
  }
  manifest.states.resize(from.number<std::size_t>());
  for (SavedState& state : manifest.states) {
    state.name = from.text();
    state.dtype = from.number<DType>();
  }
  manifest.file_bytes = from.array<std::int64_t>();
  manifest.file_frames = from.array<std::uint64_t>();
  share.content_hashes = from.array<std::uint64_t>();
  return from.number<std::size_t>();
}

/// Which pieces a rank keeps.
class Wants {
 public:
  Wants(const Manifest& manifest, std::span<const MutableSlab> wanted, comm::World& world)
      : rank_(static_cast<std::uint32_t>(world.rank())),
        ranks_(static_cast<std::uint32_t>(world.size())) {
    for (const MutableSlab& slab : wanted) {
      const auto state = std::ranges::find(manifest.states, slab.state, &SavedState::name);
      if (state != manifest.states.end() && !slab.data.empty())
        ranges_.emplace(std::pair(static_cast<std::uint32_t>(state - manifest.states.begin()),
                                  static_cast<std::uint32_t>(at(slab.parameter))),
                        std::pair(slab.begin, slab.begin + slab.data.elements));
    }
  }

  [[nodiscard]] bool keep(const Piece& piece) const {
    if (piece.rank % ranks_ == rank_)
      return true;
    const auto [first, last] = ranges_.equal_range({piece.state, piece.parameter});
    return std::any_of(first, last, [&](const auto& one) {
      const auto& [begin, end] = one.second;
      return piece.begin < end && begin < piece.begin + piece.count;
    });
  }

 private:
  std::uint32_t rank_, ranks_;
  /// By (state, parameter): first element, and the one after the last.
  std::multimap<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::int64_t, std::int64_t>>
      ranges_;
};

}  // namespace

ManifestShare share_manifest(Manifest whole,
                             std::span<const MutableSlab> wanted,
                             comm::World& world) {
  const bool first = world.rank() == 0;
  ManifestShare share;
  const std::string head = world.broadcast(first ? packed_head(whole) : std::string(), 0);
  const std::size_t num_pieces = unpack_head(Unpacker(head), share);
  const Wants wants(share.manifest, wanted, world);
  for (std::size_t done = 0; done < num_pieces; done += block_pieces) {
    Packer block;
    if (first) {
      const auto begin = whole.pieces.begin() + static_cast<std::ptrdiff_t>(done);
      const auto count = std::min(block_pieces, num_pieces - done);
      block.array(std::vector<Piece>(begin, begin + static_cast<std::ptrdiff_t>(count)));
    }
    const std::string bytes = world.broadcast(block.take(), 0);
    for (const Piece& piece : Unpacker(bytes).array<Piece>())
      if (wants.keep(piece))
        share.manifest.pieces.push_back(piece);
  }
  for (auto file = static_cast<std::uint32_t>(world.rank());
       file < share.manifest.file_bytes.size(); file += static_cast<std::uint32_t>(world.size()))
    share.files.push_back(file);
  return share;
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
      damaged(path, "what lies between its pieces does not match its checksum");
  }
}

}  // namespace trireme::record
