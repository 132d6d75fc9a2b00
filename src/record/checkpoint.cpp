// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint.hpp"

#include <algorithm>

#include "base/error.hpp"

#include "comm/together.hpp"

#include "record/checkpoint_directory.hpp"
#include "record/checkpoint_writer.hpp"
#include "record/manifest.hpp"
#include "record/piece_reader.hpp"

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
  CheckpointWriter writer(run_directory, plan, keep, world);
  writer.start(facts, {mine.begin(), mine.end()});
  return writer.finish();
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
    if (const std::string problem = name_problem(directory, manifest.facts.step); !problem.empty())
      throw UserError(Place{directory}, problem);
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
