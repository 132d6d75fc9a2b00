// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/piece_reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {
namespace {

/// Elements read and hashed at a time, so that they stay in the L2 cache.
constexpr std::int64_t block_elements = std::int64_t{1} << 17;
constexpr std::size_t most_open_files = 64;

void convert(View to, ConstView from) {
  if (to.dtype == from.dtype) {
    std::memcpy(to.data, from.data, from.bytes());
  } else if (to.dtype == DType::f32 && from.dtype == DType::bf16) {
    std::transform(from.as<Bf16>(), from.as<Bf16>() + from.elements, to.as<float>(),
                   [](Bf16 value) { return static_cast<float>(value); });
  } else {
    TRIREME_EXPECT(to.dtype == DType::bf16 && from.dtype == DType::f32, "{} wanted as {}",
                   name(from.dtype), name(to.dtype));
    std::transform(from.as<float>(), from.as<float>() + from.elements, to.as<Bf16>(),
                   [](float value) { return Bf16(value); });
  }
}

/// Calls `look`, and reports an exception as damage of `file`.
template <class Look>
void note(std::vector<CheckpointDamage>& found, const std::string& file, Look&& look) {
  try {
    look();
  } catch (const UserError& error) {
    for (const Diagnostic& finding : error.findings())
      found.push_back({finding.place.file.empty() ? file : finding.place.file, finding.text});
  } catch (const StorageError& error) {
    found.push_back({file, error.what(), true});
  }
}

/// "" if the frame hash of the file of `rank` matches the manifest. Throws StorageError.
std::string frame_problem(const std::string& path, const Manifest& manifest, std::size_t rank) {
  std::vector<Extent> data;
  for (const Piece& piece : manifest.pieces)
    if (piece.rank == rank)
      data.push_back({piece.offset, piece.count * static_cast<std::int64_t>(size_bytes(
                                                      manifest.states[piece.state].dtype))});
  return frame_hash(files::InputFile(path), std::move(data)) == manifest.file_frames[rank]
             ? ""
             : "the bytes between its pieces do not match their checksum";
}

void look_at_file(const std::string& directory,
                  const Manifest& manifest,
                  std::size_t rank,
                  std::vector<CheckpointDamage>& found) {
  const std::string path = directory + "/" + rank_file(static_cast<int>(rank));
  bool there = false;
  const auto expect_none = [&](const std::string& problem) {
    there = problem.empty();
    if (!there)
      found.push_back({path, problem});
  };
  note(found, path, [&] { expect_none(file_problem(directory, manifest, rank)); });
  if (!there)
    return;
  PieceReader reader(directory, manifest);
  for (const Piece& piece : manifest.pieces)
    note(found, path, [&] {
      if (piece.rank == rank && reader.hash_of(piece) != piece.hash)
        found.push_back({path, fmt::format("{}/{}, elements [{}, {}), does not match its checksum",
                                           manifest.states[piece.state].name,
                                           manifest.parameters[piece.parameter].name, piece.begin,
                                           piece.begin + piece.count)});
    });
  note(found, path, [&] { expect_none(frame_problem(path, manifest, rank)); });
}

}  // namespace

std::size_t PieceReader::state(const std::string& name) const {
  const auto found = std::ranges::find(manifest_.states, name, &SavedState::name);
  if (found == manifest_.states.end())
    throw UserError(Place{directory_}, fmt::format("the checkpoint does not hold '{}': {}", name,
                                                   way_out(directory_)));
  return static_cast<std::size_t>(found - manifest_.states.begin());
}

std::uint64_t PieceReader::read(std::size_t state,
                                std::size_t parameter,
                                std::int64_t begin,
                                View data) {
  TRIREME_EXPECT(parameter < manifest_.parameters.size() && begin >= 0 &&
                     begin + data.elements <= manifest_.parameters[parameter].elements,
                 "elements [{}, {}) of parameter {}", begin, begin + data.elements, parameter);
  std::int64_t found = 0;
  std::uint64_t hash = 0;
  for (const Piece& piece : manifest_.pieces_of(state, parameter)) {
    const std::int64_t from = std::max(begin, piece.begin);
    const std::int64_t to = std::min(begin + data.elements, piece.begin + piece.count);
    if (from >= to)
      continue;
    const std::uint64_t part = read_part(piece, from, data.slice(from - begin, to - from));
    if (to - from == piece.count && part != piece.hash)
      refuse(piece);
    hash += part;
    found += to - from;
  }
  if (found != data.elements)
    throw UserError(
        Place{directory_},
        fmt::format("the checkpoint does not hold '{}' of {}: {}", manifest_.states[state].name,
                    manifest_.parameters[parameter].name, way_out(directory_)));
  return hash;
}

void PieceReader::check(const Piece& piece) {
  if (hash_of(piece) != piece.hash)
    refuse(piece);
}

std::uint64_t PieceReader::hash_of(const Piece& piece) {
  const DType dtype = manifest_.states[piece.state].dtype;
  block_.resize(static_cast<std::size_t>(block_elements) * size_bytes(dtype));
  std::uint64_t hash = 0;
  for (std::int64_t done = 0; done < piece.count; done += block_elements)
    hash += read_part(piece, piece.begin + done,
                      {block_.data(), std::min(block_elements, piece.count - done), dtype});
  return hash;
}

void PieceReader::refuse(const Piece& piece) const {
  throw UserError(Place{directory_ + "/" + rank_file(static_cast<int>(piece.rank))},
                  fmt::format("the checkpoint is damaged: {}/{} does not match its checksum: {}",
                              manifest_.states[piece.state].name,
                              manifest_.parameters[piece.parameter].name, way_out(directory_)));
}

std::uint64_t PieceReader::read_part(const Piece& piece, std::int64_t begin, View data) {
  const SavedState& state = manifest_.states[piece.state];
  const auto element_bytes = static_cast<std::int64_t>(size_bytes(state.dtype));
  block_.resize(static_cast<std::size_t>(block_elements * element_bytes));
  std::uint64_t hash = 0;
  for (std::int64_t done = 0; done < data.elements; done += block_elements) {
    const View part = data.slice(done, std::min(block_elements, data.elements - done));
    const bool in_place = part.dtype == state.dtype;
    const View block(in_place ? part.data : block_.data(), part.elements, state.dtype);
    file(piece.rank)
        .read(piece.offset + (begin + done - piece.begin) * element_bytes,
              {block.data, block.bytes()});
    hash += hash_elements(block, begin + done);
    if (!in_place)
      convert(part, block);
  }
  return hash;
}

const files::InputFile& PieceReader::file(std::uint32_t rank) {
  const auto known = files_.find(rank);
  if (known != files_.end())
    return known->second;
  if (files_.size() == most_open_files)
    files_.clear();
  return files_
      .emplace(rank, files::InputFile(directory_ + "/" + rank_file(static_cast<int>(rank))))
      .first->second;
}

void check_rank_files(const std::string& directory, const Manifest& manifest, int rank, int ranks) {
  const auto expect_none = [&](const std::string& place, const std::string& problem) {
    if (!problem.empty())
      throw UserError(Place{place}, fmt::format("the checkpoint is damaged: {}: {}", problem,
                                                way_out(directory)));
  };
  for (int file = rank; file < manifest.ranks(); file += ranks) {
    const auto number = static_cast<std::size_t>(file);
    const std::string path = directory + "/" + rank_file(file);
    expect_none(directory, file_problem(directory, manifest, number));
    expect_none(path, frame_problem(path, manifest, number));
  }
}

std::vector<CheckpointDamage> damage_of(const std::string& directory) {
  std::vector<CheckpointDamage> found;
  note(found, directory, [&] {
    const Manifest manifest = read_manifest(directory);
    if (const std::string problem = name_problem(directory, manifest.facts.step); !problem.empty())
      found.push_back({directory, problem});
    for (std::size_t rank = 0; rank < manifest.file_bytes.size(); ++rank)
      look_at_file(directory, manifest, rank, found);
  });
  return found;
}

}  // namespace trireme::record
