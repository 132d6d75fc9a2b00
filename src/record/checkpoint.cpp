// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"

#include "comm/together.hpp"

#include "record/checkpoint_directory.hpp"
#include "record/manifest.hpp"
#include "record/piece_reader.hpp"

namespace trireme::record {
namespace {

/// What one rank wrote, as it travels: states by name, then its pieces with its own state numbers.
struct Part {
  std::vector<SavedState> states;
  std::vector<Piece> pieces;
  std::int64_t file_bytes = 0;
};

std::string packed(const Part& part) {
  std::string text = fmt::format("{} {}", part.file_bytes, part.states.size());
  for (const SavedState& state : part.states)
    text += fmt::format(" {} {}", static_cast<int>(state.dtype), state.name);
  text += '\n';
  text.append(reinterpret_cast<const char*>(part.pieces.data()),
              part.pieces.size() * sizeof(Piece));
  return text;
}

Part unpacked(const std::string& text) {
  Part part;
  const auto line_end = text.find('\n');
  std::istringstream line(text.substr(0, line_end));
  std::size_t num_states = 0;
  line >> part.file_bytes >> num_states;
  for (std::size_t s = 0; s < num_states; ++s) {
    int dtype = 0;
    std::string name;
    line >> dtype >> name;
    part.states.push_back({name, static_cast<DType>(dtype)});
  }
  part.pieces.resize((text.size() - line_end - 1) / sizeof(Piece));
  if (!part.pieces.empty())
    std::memcpy(part.pieces.data(), text.data() + line_end + 1, part.pieces.size() * sizeof(Piece));
  return part;
}

Part write_rank_file(const std::string& path,
                     int rank,
                     const layout::Plan& plan,
                     std::span<const Slab> slabs) {
  Part part;
  h5::File file = h5::create_file(path);
  h5::write_attribute(file.get(), "filetype", "trireme-checkpoint-rank");
  h5::write_attribute(file.get(), "rank", std::int64_t{rank});
  for (const Slab& slab : slabs) {
    const auto known = std::ranges::find(part.states, slab.state, &SavedState::name);
    const auto state = static_cast<std::uint32_t>(known - part.states.begin());
    if (known == part.states.end())
      part.states.push_back({slab.state, slab.data.dtype});
    TRIREME_EXPECT(part.states[state].dtype == slab.data.dtype, "state {} in two dtypes",
                   slab.state);
    if (slab.data.empty())
      continue;
    const std::string& name = plan.parameter(slab.parameter).name;
    const h5::Group group = h5::open_group(file.get(), slab.state);
    TRIREME_EXPECT(!h5::exists(group.get(), name), "two slabs of {} {} on one rank", slab.state,
                   name);
    const h5::Type type = h5::type_of(slab.data.dtype);
    h5::Dataset dataset = h5::Dataset::create_fixed(group.get(), name, type, slab.data.elements);
    dataset.write(0, slab.data.elements, type, slab.data.data);
    h5::write_attribute(dataset.id(), "begin", slab.begin);
    part.pieces.push_back({.state = state,
                           .parameter = static_cast<std::uint32_t>(slab.parameter),
                           .rank = static_cast<std::uint32_t>(rank),
                           .zero = 0,
                           .begin = slab.begin,
                           .count = slab.data.elements,
                           .hash = hash_elements(slab.data, slab.begin)});
  }
  h5::close(std::move(file));
  h5::sync_file(path);
  part.file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  return part;
}

/// The same on every rank. States are numbered by name.
Manifest assemble(const layout::Plan& plan,
                  const CheckpointFacts& facts,
                  const std::vector<std::string>& parts) {
  Manifest manifest;
  manifest.facts = facts;
  for (const layout::Parameter& parameter : plan.parameters())
    manifest.parameters.push_back({parameter.name, parameter.shape, parameter.elements()});
  std::vector<Part> all;
  all.reserve(parts.size());
  for (const std::string& part : parts) all.push_back(unpacked(part));
  for (const Part& part : all)
    for (const SavedState& state : part.states)
      if (std::ranges::find(manifest.states, state) == manifest.states.end())
        manifest.states.push_back(state);
  std::ranges::sort(manifest.states, {}, &SavedState::name);
  for (std::size_t s = 1; s < manifest.states.size(); ++s)
    TRIREME_EXPECT(manifest.states[s].name != manifest.states[s - 1].name,
                   "state {} in two dtypes on different ranks", manifest.states[s].name);
  for (const Part& part : all) {
    manifest.file_bytes.push_back(part.file_bytes);
    for (Piece piece : part.pieces) {
      const auto found = std::ranges::find(manifest.states, part.states[piece.state]);
      piece.state = static_cast<std::uint32_t>(found - manifest.states.begin());
      manifest.pieces.push_back(piece);
    }
  }
  const std::string problem = manifest.complete();
  TRIREME_EXPECT(problem.empty(), "{}", problem);
  return manifest;
}

void check_model(const std::string& directory, const NameValues& theirs, const NameValues& ours) {
  const auto value_in = [](const NameValues& values, const std::string& name) {
    const auto found = std::ranges::find(values, name, &NameValues::value_type::first);
    return found == values.end() ? std::string("not given") : found->second;
  };
  std::vector<std::string> names;
  for (const auto* values : {&ours, &theirs})
    for (const auto& [name, value] : *values) names.push_back(name);
  for (const std::string& name : names)
    if (value_in(theirs, name) != value_in(ours, name))
      throw UserError(
          Place{directory},
          fmt::format("the checkpoint is of another model: {} is {} there and {} in this run; "
                      "change the deck back, or choose another run.directory",
                      name, value_in(theirs, name), value_in(ours, name)));
}

void check_parameters(const std::string& directory,
                      const std::vector<SavedParameter>& theirs,
                      const std::vector<layout::Parameter>& ours) {
  const auto text = [](const auto& all, std::size_t i) {
    return i < all.size() ? fmt::format("{} [{}]", all[i].name, fmt::join(all[i].shape, ", "))
                          : std::string("absent");
  };
  for (std::size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i)
    if (text(theirs, i) != text(ours, i))
      throw UserError(
          Place{directory},
          fmt::format("the checkpoint is of another model: parameter {} is {} there and {} in "
                      "this run; change the deck back, or choose another run.directory",
                      i, text(theirs, i), text(ours, i)));
}

/// Sums of what all ranks read, by (state, parameter), compared with the manifest.
class Totals {
 public:
  explicit Totals(const Manifest& manifest)
      : manifest_(manifest), values_(3 * manifest.states.size() * manifest.parameters.size()) {}

  void add(std::size_t state, std::size_t parameter, std::uint64_t hash, std::int64_t count) {
    // Halves, because World adds signed numbers: 2^31 ranks fit.
    std::int64_t* entry = &values_[3 * (state * manifest_.parameters.size() + parameter)];
    const std::uint64_t so_far =
        (static_cast<std::uint64_t>(entry[1]) << 32U) + static_cast<std::uint64_t>(entry[0]) + hash;
    entry[0] = static_cast<std::int64_t>(so_far & 0xffffffffU);
    entry[1] = static_cast<std::int64_t>(so_far >> 32U);
    entry[2] += count;
  }

  void compare(const std::string& directory, comm::World& world) {
    world.sum(values_);
    for (std::size_t s = 0; s < manifest_.states.size(); ++s)
      for (std::size_t p = 0; p < manifest_.parameters.size(); ++p) {
        const std::int64_t* entry = &values_[3 * (s * manifest_.parameters.size() + p)];
        const std::int64_t elements = manifest_.parameters[p].elements;
        const std::string what = manifest_.states[s].name + " " + manifest_.parameters[p].name;
        TRIREME_EXPECT(entry[2] % elements == 0, "{} elements of {} wanted, {} each", entry[2],
                       what, elements);
        const auto copies = static_cast<std::uint64_t>(entry[2] / elements);
        const std::uint64_t sum =
            (static_cast<std::uint64_t>(entry[1]) << 32U) + static_cast<std::uint64_t>(entry[0]);
        if (sum != copies * manifest_.content_hash(s, p))
          throw UserError(Place{directory}, fmt::format("{} does not match its content hash: {}",
                                                        what, way_out(directory)));
      }
  }

 private:
  const Manifest& manifest_;
  std::vector<std::int64_t> values_;
};

}  // namespace

SavedCheckpoint save_checkpoint(const std::string& run_directory,
                                const layout::Plan& plan,
                                const CheckpointFacts& facts,
                                std::span<const Slab> mine,
                                std::int64_t keep,
                                comm::World& world) {
  const std::string checkpoints = checkpoints_of(run_directory);
  const std::string temporary = checkpoints + "/" + temporary_name(facts.step);
  SavedCheckpoint saved;
  saved.directory = checkpoints + "/" + checkpoint_name(facts.step);
  comm::on_first_rank(world, [&] { prepare_temporary(run_directory, facts.step); });
  try {
    Part part;
    comm::together(world, [&] {
      part = write_rank_file(temporary + "/" + rank_file(world.rank()), world.rank(), plan, mine);
    });
    const Manifest manifest = assemble(plan, facts, world.gather_all(packed(part)));
    for (const std::int64_t bytes : manifest.file_bytes) saved.bytes += bytes;
    comm::on_first_rank(world, [&] {
      write_manifest(temporary, manifest);
      commit_temporary(run_directory, facts.step);
      saved.warning = prune(run_directory, facts.step, keep);
    });
  } catch (...) {
    if (world.rank() == 0)
      remove_temporary(run_directory, facts.step);
    throw;
  }
  return saved;
}

CheckpointFacts load_checkpoint(const std::string& directory,
                                const layout::Plan& plan,
                                const NameValues& model,
                                std::span<const MutableSlab> wanted,
                                comm::World& world) {
  Manifest manifest;
  comm::together(world, [&] {
    try {
      manifest = read_manifest(directory);
    } catch (const UserError& error) {
      const Diagnostic& finding = error.findings().front();
      throw UserError(finding.place, finding.text + ": " + way_out(directory));
    }
    check_model(directory, manifest.facts.model, model);
    check_parameters(directory, manifest.parameters, plan.parameters());
    const std::string problem = missing_files(directory, manifest);
    if (!problem.empty())
      throw UserError(Place{directory}, fmt::format("the checkpoint is damaged: {}: {}", problem,
                                                    way_out(directory)));
  });
  Totals totals(manifest);
  comm::together(world, [&] {
    PieceReader reader(directory, manifest);
    for (const MutableSlab& slab : wanted) {
      if (slab.data.empty())
        continue;
      const std::size_t state = reader.state(slab.state);
      const std::uint64_t hash = reader.read(state, at(slab.parameter), slab.begin, slab.data);
      totals.add(state, at(slab.parameter), hash, slab.data.elements);
    }
  });
  totals.compare(directory, world);
  return manifest.facts;
}

}  // namespace trireme::record
