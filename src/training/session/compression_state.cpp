// SPDX-License-Identifier: Apache-2.0
#include "session/compression_state.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/round_up.hpp"

#include "ops/elementwise.hpp"

#include "comm/control/together.hpp"
#include "reduce/compression.hpp"

#include "record/checkpoint/manifest.hpp"

#include "session/session.hpp"

namespace trireme::session {
namespace {

using reduce::Carried;
using Holder = Carried::Holder;

/// The fact with Session::gradient_scale.
constexpr std::string_view scale_fact = "scale_of_gradients";

/// The name of a state after this prefix is the fact with the number of ranks that have it.
constexpr std::string_view carried_prefix = "ranks_of_";

/// The state's name in a checkpoint. What each rank or leaf has is numbered.
std::string state_of(const Carried& one) {
  switch (one.holder) {
    case Holder::rank:
    case Holder::leaf:
      return fmt::format("{}-{}", one.name, one.index);
    case Holder::all:
      return std::string(record::partial_state) + one.name;
    case Holder::owner:
      break;
  }
  return one.name;
}

/// The parts of parameters in what compression carries.
void add_parts(std::vector<record::MutableSlab>& slabs,
               const layout::Plan& plan,
               const Carried& one) {
  for (const layout::Piece& piece : plan.find_pieces(one.bucket, one.begin, one.values.elements))
    slabs.push_back({state_of(one), piece.parameter, piece.parameter_begin,
                     one.values.slice(piece.shard_begin, piece.elements)});
}

/// The number of ranks or leaves that wrote states of this name; 0: none.
std::int64_t writers_of(const Carried& one, const record::NameValues& facts) {
  const std::string writers = record::fact_of(facts, std::string(carried_prefix) + one.name);
  return writers.empty() ? 0 : std::stoll(writers);
}

/// Whether a carried state is one of local steps, in the unit of weights.
bool is_outer(const Carried& carried) {
  return carried.name.starts_with("outer_");
}

/// A state to be loaded.
struct Wanted {
  Carried state;
  std::int64_t writers = 1;
  bool is_added = false;  ///< to the gradients, by one of the ranks that add them up
};

class Load {
 public:
  Load(const std::string& directory,
       const record::NameValues& facts,
       Session& session,
       comm::World& world)
      : directory_(directory),
        facts_(facts),
        session_(session),
        world_(world),
        manifest_(comm::from_first_rank(world, [&] { return record::read_manifest(directory); })) {
    for (const Carried& own : session.optimizer.carried())
      if (const auto writers = writers_of(own, facts); writers > 0)
        wanted_.push_back({own, writers});
  }

  /// Adds the errors that this run does not carry, or warns that they are dropped.
  void add_others(Log& log) {
    auto others = other_errors();
    if (others.empty())
      return;
    const bool outer = is_outer(others.front().state);
    if (!outer && !session_.engine.gradients_share_slots()) {
      session_.engine.begin_with_errors();
      log.info("the first gradient includes the errors of compressed gradients in {}", directory_);
      std::ranges::move(others, std::back_inserter(wanted_));
    } else if (world_.rank() == 0) {
      log.warning("the errors of {} in {} are dropped, because {}. To keep them, resume with {}",
                  outer ? "the changes of weights" : "compressed gradients", directory_,
                  outer ? "this run does not encode these changes"
                        : "with this parallel.shard no rank has whole gradients",
                  outer ? "several replicas and an optimizer.outer.dtype from int8 on"
                        : "shard: optimizer for at least one step");
    }
  }

  /// The states of ranks r, r + N, r + 2N, … of the run that wrote them become the sum of rank r.
  void run() {
    std::int64_t rounds = 0;
    for (const auto& [state, writers, is_added] : wanted_)
      rounds = std::max(rounds, divided_up(writers, state.ranks));
    for (std::int64_t round = 0; round < rounds; ++round) load_round(round);
  }

 private:
  [[nodiscard]] bool is_stored(const std::string& name, ParameterIndex parameter) const {
    const auto state = std::ranges::find(manifest_.states, name, &record::SavedState::name);
    return state != manifest_.states.end() &&
           !manifest_
                .pieces_of(static_cast<std::size_t>(state - manifest_.states.begin()),
                           at(parameter))
                .empty();
  }

  /// The errors in the checkpoint that are not among those that the run carries, by parameter, with
  /// the gradients to which they can be added. That of rank or leaf 0 stands for all. The same on
  /// all ranks.
  [[nodiscard]] std::vector<Wanted> other_errors() const {
    const layout::Plan& plan = session_.plan;
    std::set<std::pair<std::string, ParameterIndex>> held;
    for (const auto& [one, writers, is_added] : wanted_) {
      const bool by_owners = one.holder == Holder::owner || is_outer(one);
      const auto pieces = by_owners
                              ? plan.find_pieces(one.bucket, 0, plan.bucket(one.bucket).elements)
                              : plan.find_pieces(one.bucket, one.begin, one.values.elements);
      for (const layout::Piece& piece : pieces) held.emplace(one.name, piece.parameter);
    }
    std::vector<Wanted> others;
    for (const auto& [fact, ranks] : facts_) {
      if (!fact.starts_with(carried_prefix) || fact.find("error") == std::string::npos)
        continue;
      Carried one{.name = fact.substr(carried_prefix.size()), .bucket = {}, .values = {}};
      one.holder = one.name.ends_with("sum_error") ? Holder::owner : Holder::rank;
      for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
        const auto parameter = static_cast<ParameterIndex>(p);
        one.bucket = plan.placement(parameter).bucket;
        one.begin = plan.placement(parameter).begin - plan.bucket(one.bucket).begin;
        one.values = session_.engine.gradient(parameter);
        if (!held.contains({one.name, parameter}) && is_stored(state_of(one), parameter))
          others.push_back({one, writers_of(one, facts_), true});
      }
    }
    return others;
  }

  void load_round(std::int64_t round) {
    // One rank of those that add up their gradients.
    const bool adds_others =
        (session_.job.optimizer.outer.on() ? session_.plan.rank_in_replica(world_.rank())
                                           : world_.rank()) == 0;
    std::vector<record::MutableSlab> slabs;
    std::vector<device::Buffer> memory;
    std::vector<ops::Add> sums;
    for (const auto& [state, writers, is_added] : wanted_) {
      Carried one = state;
      if (one.holder == Holder::rank)
        one.index += round * one.ranks;
      const bool exists = one.holder == Holder::rank ? one.index < writers : round == 0;
      if (!exists || (is_added && !adds_others))
        continue;
      if (round > 0 || is_added) {
        memory.push_back(
            session_.device->allocate(one.values.bytes(), "errors of gradients to be added"));
        const View term = memory.back().view(DType::f32);
        sums.push_back({.sum = one.values, .term = term});
        one.values = term;
      }
      add_parts(slabs, session_.plan, one);
    }
    // Another way of sending gradients may have left no errors of some parameters.
    std::erase_if(slabs, [&](const record::MutableSlab& slab) {
      const bool stored = is_stored(slab.state, slab.parameter);
      if (!stored)
        session_.device->fill_zero(slab.data, *session_.compute_stream);
      return !stored;
    });
    session_.load(directory_, std::move(slabs), world_);
    for (const ops::Add& sum : sums) ops::run(sum, *session_.compute_stream);
    session_.compute_stream->synchronize();
  }

  const std::string& directory_;
  const record::NameValues& facts_;
  Session& session_;
  comm::World& world_;
  const record::Manifest manifest_;
  std::vector<Wanted> wanted_;
};

}  // namespace

std::vector<record::MutableSlab> compression_slabs(const Session& session, int rank) {
  std::vector<record::MutableSlab> slabs;
  for (const Carried& one : session.optimizer.carried())
    if (rank == 0 || one.holder != Holder::all)
      add_parts(slabs, session.plan, one);
  return slabs;
}

record::NameValues compression_facts(const Session& session) {
  record::NameValues facts;
  const auto carried = session.optimizer.carried();
  if (!carried.empty())
    facts.emplace_back(scale_fact, fmt::format("{}", session.gradient_scale));
  for (const Carried& one : carried)
    if (writers_of(one, facts) == 0)
      facts.emplace_back(std::string(carried_prefix) + one.name, std::to_string(one.ranks));
  return facts;
}

void load_compression(const std::string& directory,
                      const record::CheckpointFacts& facts,
                      Session& session,
                      comm::World& world,
                      Log& log) {
  if (std::ranges::none_of(facts.more,
                           [](const auto& fact) { return fact.first.starts_with(carried_prefix); }))
    return;
  if (const std::string scale = record::fact_of(facts.more, scale_fact); !scale.empty())
    session.gradient_scale = std::stod(scale);
  Load load(directory, facts.more, session, world);
  load.add_others(log);
  load.run();
}

}  // namespace trireme::session
