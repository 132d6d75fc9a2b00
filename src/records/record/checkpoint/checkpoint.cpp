// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/checkpoint_writer.hpp"
#include "record/checkpoint/piece_reader.hpp"

namespace trireme::record {
namespace {

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

/// Collective. The first (state, parameter) whose data does not match the stored hash. `hashes` and
/// `counts` are those of the elements that this rank read, by state and parameter.
std::optional<std::pair<std::size_t, std::size_t>> first_wrong(
    const Manifest& manifest,
    std::span<const std::uint64_t> hashes,
    std::span<std::int64_t> counts,
    comm::World& world) {
  const std::vector<std::uint64_t> sums = comm::sums_modulo(world, hashes);
  world.sum(counts);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::pair which(i / manifest.parameters.size(), i % manifest.parameters.size());
    const std::int64_t elements =
        std::max<std::int64_t>(manifest.stored_elements(which.first, which.second), 1);
    TRIREME_EXPECT(counts[i] % elements == 0, "{} elements of {} {} wanted, {} each", counts[i],
                   manifest.states[which.first].name, manifest.parameters[which.second].name,
                   elements);
    if (sums[i] != static_cast<std::uint64_t>(counts[i] / elements) *
                       manifest.content_hash(which.first, which.second))
      return which;
  }
  return std::nullopt;
}

/// Reads the manifest of a checkpoint. The error for a damaged one says what to do.
Manifest usable_manifest(const std::string& directory) {
  Manifest manifest;
  try {
    manifest = read_manifest(directory);
  } catch (const UserError& error) {
    const Diagnostic& finding = error.findings().front();
    throw UserError(finding.place, finding.text + ": " + way_out(directory));
  }
  if (const std::string problem = name_problem(directory, manifest.facts.step); !problem.empty())
    throw UserError(Place{directory}, problem);
  return manifest;
}

/// Called by rank 0. The manifest of a checkpoint from which this run can resume.
Manifest expected_manifest(const std::string& directory,
                           const layout::Plan& plan,
                           const NameValues& model) {
  Manifest manifest = usable_manifest(directory);
  expect_model(directory, manifest.facts.model, model);
  check_parameters(directory, manifest.parameters, plan.parameters());
  return manifest;
}

/// Collective. Called if a parameter of a state does not match its hash, but each rank read only
/// parts of its pieces. The ranks read these pieces completely to find the damaged one. Throws.
[[noreturn]] void name_damage(const std::string& directory,
                              const Manifest& manifest,
                              std::pair<std::size_t, std::size_t> which,
                              PieceReader& reader,
                              comm::World& world) {
  const std::size_t state = which.first, parameter = which.second;
  comm::together(world, [&] {
    for (const Piece& piece : manifest.pieces_of(state, parameter))
      if (static_cast<int>(piece.rank) % world.size() == world.rank())
        reader.check(piece);
  });
  throw UserError(
      Place{directory},
      fmt::format("{} {} does not match its content hash: {}", manifest.states[state].name,
                  manifest.parameters[parameter].name, way_out(directory)));
}

}  // namespace

void expect_model(const std::string& directory, const NameValues& theirs, const NameValues& ours) {
  const auto value_in = [](const NameValues& values, const std::string& name) {
    const std::string* found = find_fact(values, name);
    return found == nullptr ? "not given" : *found;
  };
  std::vector<std::string> names;
  for (const auto* values : {&ours, &theirs})
    for (const auto& [name, value] : *values)
      if (std::ranges::find(names, name) == names.end())
        names.push_back(name);
  std::vector<Diagnostic> found;
  for (const std::string& name : names)
    if (value_in(theirs, name) != value_in(ours, name))
      found.push_back(
          {{directory},
           "",
           fmt::format("the checkpoint is of another model: {} is {} there and {} in this run; "
                       "change the deck back, or choose another run.directory",
                       name, value_in(theirs, name), value_in(ours, name))});
  if (!found.empty())
    throw UserError(std::move(found));
}

CheckpointFacts read_facts(const std::string& directory) {
  return usable_manifest(directory).facts;
}

SavedCheckpoint save_checkpoint(const std::string& run_directory,
                                const layout::Plan& plan,
                                const CheckpointFacts& facts,
                                std::span<const Slab> mine,
                                Retention retention,
                                comm::World& world) {
  CheckpointWriter writer(run_directory, plan, retention, world);
  writer.start(facts, {mine.begin(), mine.end()});
  return writer.finish();
}

CheckpointFacts load_checkpoint(const std::string& directory,
                                const layout::Plan& plan,
                                const NameValues& model,
                                std::span<const MutableSlab> wanted,
                                comm::World& world) {
  const Manifest manifest =
      comm::from_first_rank(world, [&] { return expected_manifest(directory, plan, model); });
  comm::together(world, [&] { check_rank_files(directory, manifest, world.rank(), world.size()); });
  PieceReader reader(directory, manifest);
  std::vector<std::uint64_t> hashes(manifest.states.size() * manifest.parameters.size());
  std::vector<std::int64_t> counts(hashes.size());
  comm::together(world, [&] {
    for (const MutableSlab& slab : wanted) {
      if (slab.data.empty())
        continue;
      const std::size_t state = reader.state(slab.state);
      const std::size_t which = state * manifest.parameters.size() + at(slab.parameter);
      hashes[which] += reader.read(state, at(slab.parameter), slab.begin, slab.data);
      counts[which] += slab.data.elements;
    }
  });
  if (const auto wrong = first_wrong(manifest, hashes, counts, world))
    name_damage(directory, manifest, *wrong, reader, world);
  return manifest.facts;
}

}  // namespace trireme::record
