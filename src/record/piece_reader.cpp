// SPDX-License-Identifier: Apache-2.0
#include "record/piece_reader.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "h5/dataset.hpp"

#include "record/checkpoint_directory.hpp"
#include "record/rank_file.hpp"

namespace trireme::record {
namespace {

constexpr std::int64_t read_elements = std::int64_t{1} << 19;
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

}  // namespace

PieceReader::PieceReader(const std::string& directory, const Manifest& manifest)
    : directory_(directory),
      manifest_(manifest),
      block_(static_cast<std::size_t>(read_elements) * sizeof(double)) {}

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
    hash += read_piece(piece, from, data.slice(from - begin, to - from));
    found += to - from;
  }
  if (found != data.elements)
    throw UserError(
        Place{directory_},
        fmt::format("the checkpoint does not hold '{}' of {}: {}", manifest_.states[state].name,
                    manifest_.parameters[parameter].name, way_out(directory_)));
  return hash;
}

std::uint64_t PieceReader::read_piece(const Piece& piece, std::int64_t begin, View data) {
  const SavedState& state = manifest_.states[piece.state];
  const std::string name = state.name + "/" + manifest_.parameters[piece.parameter].name;
  const std::string path = directory_ + "/" + rank_file(static_cast<int>(piece.rank));
  std::uint64_t whole = 0, wanted = 0;
  try {
    const h5::Dataset dataset = h5::Dataset::open(file(piece.rank).get(), name);
    const h5::Type type = h5::type_of(state.dtype);
    if (dataset.elements() != piece.count)
      throw h5::DamagedError("HDF5", "reading " + name, "it has another length", __FILE__,
                             __LINE__);
    for (std::int64_t at = 0; at < piece.count; at += read_elements) {
      const std::int64_t count = std::min(read_elements, piece.count - at);
      dataset.read(at, count, type, block_.data());
      const ConstView block(block_.data(), count, state.dtype);
      const std::int64_t first = piece.begin + at;  // in the parameter, as `begin`
      whole += hash_elements(block, first);
      const std::int64_t from = std::max(begin, first);
      const std::int64_t to = std::min(begin + data.elements, first + count);
      if (from >= to)
        continue;
      const ConstView part = block.slice(from - first, to - from);
      wanted += hash_elements(part, from);
      convert(data.slice(from - begin, to - from), part);
    }
  } catch (const h5::DamagedError& problem) {
    throw UserError(Place{path}, fmt::format("the checkpoint is damaged: {}: {}", problem.what(),
                                             way_out(directory_)));
  }
  if (whole != piece.hash)
    throw UserError(Place{path}, fmt::format("the checkpoint is damaged: {} does not match its "
                                             "checksum: {}",
                                             name, way_out(directory_)));
  return wanted;
}

const h5::File& PieceReader::file(std::uint32_t rank) {
  const auto known = files_.find(rank);
  if (known != files_.end())
    return known->second;
  if (files_.size() == most_open_files)
    files_.clear();
  const std::string path = directory_ + "/" + rank_file(static_cast<int>(rank));
  if (!framed_.contains(rank)) {
    std::vector<Extent> data;
    for (const Piece& piece : manifest_.pieces)
      if (piece.rank == rank)
        data.push_back({piece.offset, piece.count * static_cast<std::int64_t>(size_bytes(
                                                        manifest_.states[piece.state].dtype))});
    if (frame_hash(h5::RawFile(path, h5::Access::read), std::move(data)) !=
        manifest_.file_frames[rank])
      throw h5::DamagedError("checkpoint", "reading " + path,
                             "its frame does not match its checksum", __FILE__, __LINE__);
    framed_.insert(rank);
  }
  return files_.emplace(rank, h5::open_file(path, h5::Access::read)).first->second;
}

}  // namespace trireme::record
