// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/manifest.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "files/descriptor.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/name_values.hpp"

namespace trireme::record {
namespace {

constexpr const char* manifest_filetype = "trireme-checkpoint";
constexpr std::int64_t manifest_major = 2, manifest_minor = 2;
constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::u8};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, "x"));
}

std::vector<std::int64_t> shape_of(const std::string& text) {
  std::vector<std::int64_t> shape;
  std::istringstream stream(text);
  for (std::string extent; std::getline(stream, extent, 'x');) shape.push_back(std::stoll(extent));
  return shape;
}

h5::Type piece_type() {
  const auto u32 = h5::type_of<std::uint32_t>();
  const auto i64 = h5::type_of<std::int64_t>();
  const auto u64 = h5::type_of<std::uint64_t>();
  return h5::compound_type(sizeof(Piece), {{"state", offsetof(Piece, state), u32},
                                           {"parameter", offsetof(Piece, parameter), u32},
                                           {"rank", offsetof(Piece, rank), u32},
                                           {"zero", offsetof(Piece, zero), u32},
                                           {"begin", offsetof(Piece, begin), i64},
                                           {"count", offsetof(Piece, count), i64},
                                           {"hash", offsetof(Piece, hash), u64},
                                           {"offset", offsetof(Piece, offset), i64}});
}

template <class T>
void write_column(hid_t group, const char* name, std::span<const T> values) {
  h5::Dataset column = h5::Dataset::create_fixed(group, name, h5::type_of<T>(),
                                                 static_cast<std::int64_t>(values.size()));
  column.write(0, column.elements(), h5::type_of<T>(), values.data());
}

void write_column(hid_t group, const char* name, std::span<const std::string> values) {
  h5::Dataset::create_extendible(group, name, h5::type_of<std::string>(), 1024)
      .append<std::string>(values);
}

std::vector<std::string> read_texts(const h5::File& file, const char* path) {
  return h5::Dataset::open(file.get(), path).read_all<std::string>();
}

void write_group(const h5::File& file, const char* name, const NameValues& values) {
  const h5::Group group = h5::open_group(file.get(), name);
  for (const auto& [key, value] : values) h5::write_attribute(group.get(), key, value);
}

NameValues read_group(const h5::File& file, const char* name) {
  NameValues values;
  const h5::Group group = h5::open_group(file.get(), name);
  for (const std::string& key : h5::attribute_names(group.get()))
    values.emplace_back(key, h5::read_attribute<std::string>(group.get(), key));
  return values;
}

NameValues sorted(NameValues values) {
  std::ranges::sort(values);
  return values;
}

void write_tables(const h5::File& file, const Manifest& manifest) {
  std::vector<std::string> names, shapes;
  std::vector<std::int64_t> elements;
  for (const SavedParameter& parameter : manifest.parameters) {
    names.push_back(parameter.name);
    shapes.push_back(shape_text(parameter.shape));
    elements.push_back(parameter.elements);
  }
  const h5::Group parameters = h5::open_group(file.get(), "parameters");
  write_column(parameters.get(), "name", names);
  write_column(parameters.get(), "shape", shapes);
  write_column<std::int64_t>(parameters.get(), "elements", elements);

  std::vector<std::string> states, types;
  for (const SavedState& state : manifest.states) {
    states.push_back(state.name);
    types.emplace_back(name(state.dtype));
  }
  const h5::Group group = h5::open_group(file.get(), "states");
  write_column(group.get(), "name", states);
  write_column(group.get(), "dtype", types);
  const h5::Group files = h5::open_group(file.get(), "files");
  write_column<std::int64_t>(files.get(), "bytes", manifest.file_bytes);
  write_column<std::uint64_t>(files.get(), "frame", manifest.file_frames);
  h5::Dataset pieces = h5::Dataset::create_fixed(file.get(), "pieces", piece_type(),
                                                 static_cast<std::int64_t>(manifest.pieces.size()));
  pieces.write(0, pieces.elements(), piece_type(), manifest.pieces.data());
}

void write_tensors(const h5::File& file, const Manifest& manifest) {
  for (std::size_t s = 0; s < manifest.states.size(); ++s) {
    const SavedState& state = manifest.states[s];
    const h5::Group group = h5::open_group(file.get(), "tensors/" + state.name);
    for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
      const SavedParameter& parameter = manifest.parameters[p];
      std::vector<h5::VirtualPiece> parts;
      std::set<std::uint32_t> ranks;
      for (const Piece& piece : manifest.pieces_of(s, p)) {
        const bool first = ranks.insert(piece.rank).second;
        const std::string name =
            first ? parameter.name : name_of_later_range(parameter.name, piece.begin);
        parts.push_back({piece.begin, piece.count, rank_file(static_cast<int>(piece.rank)),
                         "/" + state.name + "/" + name});
      }
      if (parts.empty())
        continue;
      const h5::Dataset tensor = h5::create_virtual(
          group.get(), parameter.name, h5::type_of(state.dtype), parameter.elements, parts);
      h5::write_attribute(tensor.id(), "shape", parameter.shape);
      h5::write_attribute(tensor.id(), "content_hash", manifest.content_hash(s, p));
    }
  }
}

Manifest read_tables(const h5::File& file) {
  Manifest manifest;
  CheckpointFacts& facts = manifest.facts;
  manifest.date_and_time = h5::read_attribute<std::string>(file.get(), "date_and_time");
  facts.step = h5::read_attribute<std::int64_t>(file.get(), "step");
  facts.next_sample = h5::read_attribute<std::uint64_t>(file.get(), "next_sample");
  facts.seed = h5::read_attribute<std::uint64_t>(file.get(), "seed");
  facts.model = read_group(file, "model");
  facts.more = read_group(file, "more");
  if (h5::exists(file.get(), "deck"))
    facts.deck = read_group(file, "deck");
  if (h5::exists(file.get(), "tokenizer"))
    for (const std::string& line : read_texts(file, "tokenizer")) facts.tokenizer += line;
  const auto names = read_texts(file, "parameters/name");
  const auto shapes = read_texts(file, "parameters/shape");
  const auto elements =
      h5::Dataset::open(file.get(), "parameters/elements").read_all<std::int64_t>();
  for (std::size_t p = 0; p < names.size(); ++p)
    manifest.parameters.push_back({names[p], shape_of(shapes.at(p)), elements.at(p)});
  const auto states = read_texts(file, "states/name"), types = read_texts(file, "states/dtype");
  for (std::size_t s = 0; s < states.size(); ++s) {
    const auto* dtype =
        std::ranges::find_if(dtypes, [&](DType known) { return types.at(s) == name(known); });
    if (dtype == std::end(dtypes))
      throw std::out_of_range("a state of unknown type " + types.at(s));
    manifest.states.push_back({states[s], *dtype});
  }
  manifest.file_bytes = h5::Dataset::open(file.get(), "files/bytes").read_all<std::int64_t>();
  manifest.file_frames = h5::Dataset::open(file.get(), "files/frame").read_all<std::uint64_t>();
  if (manifest.file_frames.size() != manifest.file_bytes.size())
    throw std::out_of_range("files without a hash");
  const h5::Dataset pieces = h5::Dataset::open(file.get(), "pieces");
  manifest.pieces.resize(static_cast<std::size_t>(pieces.stored_elements()));
  pieces.read(0, pieces.elements(), piece_type(), manifest.pieces.data());
  return manifest;
}

/// Checks the manifest's hash before HDF5 opens it.
void expect_sum(const std::string& directory) {
  const std::string path = directory + "/" + manifest_file;
  const std::string sum_path = directory + "/" + manifest_sum_file;
  if (!files::exists(path))
    throw UserError(Place{directory}, "not a checkpoint: there is no manifest.h5");
  if (!files::exists(sum_path))
    throw UserError(Place{sum_path}, "missing: the checkpoint is damaged, or older than format 2");
  if (files::read_whole(sum_path) != manifest_sum(directory))
    throw UserError(Place{path},
                    "the checkpoint is truncated or damaged: manifest.xxh64 does not match it");
}

}  // namespace

std::string name_of_later_range(const std::string& parameter, std::int64_t begin) {
  return fmt::format("{}@{}", parameter, begin);
}

std::string rank_file(int rank) {
  return fmt::format("rank-{:05}.h5", rank);
}

std::span<const Piece> Manifest::pieces_of(std::size_t state, std::size_t parameter) const {
  const auto before = [](const Piece& piece, const std::pair<std::size_t, std::size_t>& key) {
    return std::pair<std::size_t, std::size_t>(piece.state, piece.parameter) < key;
  };
  const auto begin =
      std::lower_bound(pieces.begin(), pieces.end(), std::pair(state, parameter), before);
  return {begin, std::lower_bound(begin, pieces.end(), std::pair(state, parameter + 1), before)};
}

std::uint64_t Manifest::content_hash(std::size_t state, std::size_t parameter) const {
  const auto all = pieces_of(state, parameter);
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Piece& piece) { return sum + piece.hash; });
}

std::int64_t Manifest::stored_elements(std::size_t state, std::size_t parameter) const {
  const auto all = pieces_of(state, parameter);
  return all.empty() ? 0 : all.back().begin + all.back().count;
}

std::string Manifest::complete() {
  for (const SavedParameter& parameter : parameters) {
    std::int64_t elements = 1;
    bool countable = true;
    for (const std::int64_t extent : parameter.shape)
      countable = countable && extent > 0 && !__builtin_mul_overflow(elements, extent, &elements);
    if (!countable || elements != parameter.elements)
      return fmt::format("{} has {} elements of shape {}", parameter.name, parameter.elements,
                         shape_text(parameter.shape));
  }
  std::ranges::sort(pieces, {}, [](const Piece& piece) {
    return std::tuple(piece.state, piece.parameter, piece.begin);
  });
  for (const Piece& piece : pieces)
    if (piece.state >= states.size() || piece.parameter >= parameters.size() ||
        piece.rank >= file_bytes.size() || piece.count < 1)
      return "a piece of nothing";
  for (std::size_t s = 0; s < states.size(); ++s)
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto all = pieces_of(s, p);
      std::int64_t end = 0;
      for (const Piece& piece : all) {
        const auto bytes = static_cast<std::int64_t>(size_bytes(states[s].dtype));
        if (piece.offset < 0 || piece.count > parameters[p].elements ||
            piece.offset > file_bytes[piece.rank] ||
            piece.count > (file_bytes[piece.rank] - piece.offset) / bytes)
          return "a piece that is in no file";
        if (piece.begin != end)
          return fmt::format("the pieces of {} {} {} at element {}", states[s].name,
                             parameters[p].name, piece.begin < end ? "overlap" : "leave a hole",
                             std::min(piece.begin, end));
        end += piece.count;
      }
      if (!all.empty() && end != parameters[p].elements &&
          !states[s].name.starts_with(partial_state))
        return fmt::format("the pieces of {} {} end at element {} of {}", states[s].name,
                           parameters[p].name, end, parameters[p].elements);
    }
  return "";
}

std::uint64_t Manifest::fingerprint() const {
  std::string text = fmt::format("{} {} {};", facts.step, facts.next_sample, facts.seed);
  for (const auto* values : {&facts.model, &facts.more, &facts.deck})
    for (const auto& [key, value] : sorted(*values)) text += fmt::format("{}\n{}\n", key, value);
  text += facts.tokenizer;
  for (const SavedParameter& one : parameters)
    text += one.name + ":" + shape_text(one.shape) + fmt::format(":{};", one.elements);
  for (const SavedState& one : states) text += one.name + ":" + name(one.dtype) + ";";
  for (const std::int64_t bytes : file_bytes) text += std::to_string(bytes) + ";";
  for (const std::uint64_t frame : file_frames) text += std::to_string(frame) + ";";
  for (const Piece& one : pieces)
    text += fmt::format("{} {} {} {} {} {} {};", one.state, one.parameter, one.rank, one.begin,
                        one.count, one.hash, one.offset);
  return hash_bytes(text);
}

void write_manifest(const std::string& directory, const Manifest& manifest) {
  const std::string path = directory + "/" + manifest_file;
  h5::File file = h5::create_file(path);
  h5::write_attribute(file.get(), "filetype", manifest_filetype);
  h5::write_attribute(file.get(), "version",
                      std::vector<std::int64_t>{manifest_major, manifest_minor});
  h5::write_attribute(file.get(), "date_and_time", date_and_time());
  h5::write_attribute(file.get(), "step", manifest.facts.step);
  h5::write_attribute(file.get(), "next_sample", manifest.facts.next_sample);
  h5::write_attribute(file.get(), "seed", manifest.facts.seed);
  h5::write_attribute(file.get(), "ranks", std::int64_t{manifest.ranks()});
  h5::write_attribute(file.get(), "self_hash", manifest.fingerprint());
  write_group(file, "model", manifest.facts.model);
  write_group(file, "more", manifest.facts.more);
  write_group(file, "deck", manifest.facts.deck);
  if (!manifest.facts.tokenizer.empty())
    write_column(file.get(), "tokenizer", std::span(&manifest.facts.tokenizer, 1));
  write_tables(file, manifest);
  write_tensors(file, manifest);
  h5::close(std::move(file));
  files::sync_file(path);
  files::write_file(directory + "/" + manifest_sum_file, manifest_sum(directory));
}

std::string manifest_sum(const std::string& directory) {
  return fmt::format("{:016x}  {}\n",
                     hash_bytes(files::read_whole(directory + "/" + manifest_file)), manifest_file);
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = directory + "/" + manifest_file;
  expect_sum(directory);
  try {
    const h5::File file = h5::open_file(path);
    if (!h5::has_attribute(file.get(), "filetype") ||
        h5::read_attribute<std::string>(file.get(), "filetype") != manifest_filetype)
      throw UserError(Place{path}, "not a checkpoint of trireme");
    const auto version = h5::read_attribute<std::vector<std::int64_t>>(file.get(), "version");
    if (version.size() != 2 || version[0] != manifest_major)
      throw UserError(Place{path},
                      fmt::format("checkpoint format {}; this trireme reads format {}.x: use the "
                                  "version that wrote it",
                                  fmt::join(version, "."), manifest_major));
    Manifest manifest = read_tables(file);
    if (manifest.fingerprint() != h5::read_attribute<std::uint64_t>(file.get(), "self_hash") ||
        !manifest.complete().empty())
      throw UserError(Place{path}, "the checkpoint is damaged: its manifest contradicts itself");
    return manifest;
  } catch (const h5::DamagedError& problem) {
    throw UserError(Place{path}, fmt::format("the checkpoint is damaged: {}", problem.what()));
  } catch (const std::logic_error& problem) {  // invalid numbers, tables of unequal length
    throw UserError(Place{path}, fmt::format("the checkpoint is damaged: {}", problem.what()));
  }
}

std::string file_problem(const std::string& directory, const Manifest& manifest, std::size_t rank) {
  const std::string name = rank_file(static_cast<int>(rank));
  const std::string path = directory + "/" + name;
  std::error_code problem;
  const auto status = std::filesystem::status(path, problem);
  if (status.type() == std::filesystem::file_type::not_found)
    return name + " is missing";
  if (!problem && !std::filesystem::is_regular_file(status))
    return name + " is not a file";
  const auto bytes = problem ? 0 : std::filesystem::file_size(path, problem);
  if (problem)
    throw StorageError("file system", "look at " + path, problem.message());
  if (static_cast<std::int64_t>(bytes) != manifest.file_bytes[rank])
    return fmt::format("{} has {} bytes instead of {}", name, bytes, manifest.file_bytes[rank]);
  return "";
}

std::string missing_files(const std::string& directory, const Manifest& manifest) {
  std::string problem;
  for (std::size_t rank = 0; rank < manifest.file_bytes.size() && problem.empty(); ++rank)
    problem = file_problem(directory, manifest, rank);
  return problem;
}

}  // namespace trireme::record
