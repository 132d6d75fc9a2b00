// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/checkpoint_writer.hpp"
#include "record/checkpoint/manifest_share.hpp"
#include "record/checkpoint/piece_reader.hpp"

namespace trireme::record {
namespace {

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
  explicit Totals(const ManifestShare& share)
      : manifest_(share.manifest),
        content_hashes_(share.content_hashes),
        values_(3 * content_hashes_.size()) {}

  void add(std::size_t state, std::size_t parameter, std::uint64_t hash, std::int64_t count) {
    // Halves, because World adds signed numbers: 2^31 ranks fit.
    std::int64_t* entry = &values_[3 * (state * manifest_.parameters.size() + parameter)];
    const std::uint64_t so_far =
        (static_cast<std::uint64_t>(entry[1]) << 32U) + static_cast<std::uint64_t>(entry[0]) + hash;
    entry[0] = static_cast<std::int64_t>(so_far & 0xffffffffU);
    entry[1] = static_cast<std::int64_t>(so_far >> 32U);
    entry[2] += count;
  }

  /// The first (state, parameter) of which the ranks read something else than was written.
  [[nodiscard]] std::optional<std::pair<std::size_t, std::size_t>> wrong(comm::World& world) {
    world.sum(values_);
    for (std::size_t i = 0; i < content_hashes_.size(); ++i) {
      const std::pair which(i / manifest_.parameters.size(), i % manifest_.parameters.size());
      const std::int64_t* entry = &values_[3 * i];
      const std::int64_t elements = manifest_.parameters[which.second].elements;
      TRIREME_EXPECT(entry[2] % elements == 0, "{} elements of {} {} wanted, {} each", entry[2],
                     manifest_.states[which.first].name, manifest_.parameters[which.second].name,
                     elements);
      const auto copies = static_cast<std::uint64_t>(entry[2] / elements);
      const std::uint64_t sum =
          (static_cast<std::uint64_t>(entry[1]) << 32U) + static_cast<std::uint64_t>(entry[0]);
      if (sum != copies * content_hashes_[i])
        return which;
    }
    return std::nullopt;
  }

 private:
  const Manifest& manifest_;
  const std::vector<std::uint64_t>& content_hashes_;
  std::vector<std::int64_t> values_;
};

/// The first rank's manifest, of a checkpoint from which this run can resume.
Manifest expected_manifest(const std::string& directory,
                           const layout::Plan& plan,
                           const NameValues& model) {
  Manifest manifest;
  try {
    manifest = read_manifest(directory);
  } catch (const UserError& error) {
    const Diagnostic& finding = error.findings().front();
    throw UserError(finding.place, finding.text + ": " + way_out(directory));
  }
  if (const std::string problem = name_problem(directory, manifest.facts.step); !problem.empty())
    throw UserError(Place{directory}, problem);
  check_model(directory, manifest.facts.model, model);
  check_parameters(directory, manifest.parameters, plan.parameters());
  return manifest;
}

/// Collective, after the ranks read something else than was written of one parameter in one state,
/// each only a part of its pieces: every rank reads these pieces of its files whole. Throws.
[[noreturn]] void name_damage(const std::string& directory,
                              const ManifestShare& share,
                              std::pair<std::size_t, std::size_t> which,
                              PieceReader& reader,
                              comm::World& world) {
  const std::size_t state = which.first, parameter = which.second;
  comm::together(world, [&] {
    for (const Piece& piece : share.manifest.pieces_of(state, parameter))
      if (std::ranges::binary_search(share.files, piece.rank))
        reader.check(piece);
  });
  throw UserError(
      Place{directory},
      fmt::format("{} {} does not match its content hash: {}", share.manifest.states[state].name,
                  share.manifest.parameters[parameter].name, way_out(directory)));
}

}  // namespace

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
  Manifest whole;
  comm::on_first_rank(world, [&] { whole = expected_manifest(directory, plan, model); });
  const ManifestShare share = share_manifest(std::move(whole), wanted, world);
  comm::together(world, [&] { check_rank_files(directory, share.manifest, share.files); });
  PieceReader reader(directory, share.manifest);
  Totals totals(share);
  comm::together(world, [&] {
    for (const MutableSlab& slab : wanted) {
      if (slab.data.empty())
        continue;
      const std::size_t state = reader.state(slab.state);
      const std::uint64_t hash = reader.read(state, at(slab.parameter), slab.begin, slab.data);
      totals.add(state, at(slab.parameter), hash, slab.data.elements);
    }
  });
  if (const auto wrong = totals.wrong(world))
    name_damage(directory, share, *wrong, reader, world);
  return share.manifest.facts;
}

}  // namespace trireme::record
