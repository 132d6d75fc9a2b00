// SPDX-License-Identifier: Apache-2.0
#include "session/saver.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "base/round_up.hpp"
#include "device/recorder.hpp"
#include "layout/budget.hpp"

#include "model/gpt.hpp"
#include "ops/elementwise.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint/manifest.hpp"
#include "weights/open.hpp"

#include "session/session.hpp"

namespace trireme::session {
namespace {

/// fp32 before bf16, so that consecutive slabs in memory are aligned to their elements.
void sort_by_width(std::vector<record::MutableSlab>& slabs) {
  std::ranges::stable_sort(slabs, std::greater(), [](const record::MutableSlab& slab) {
    return size_bytes(slab.data.dtype);
  });
}

/// Elements of a piece, in the slots that `has_slot` selects, as those of `replica`.
template <class HasSlot>
void add_slabs(std::vector<record::MutableSlab>& slabs,
               const layout::StateSlots& slots,
               const HasSlot& has_slot,
               const optim::StatePiece& piece,
               std::int64_t begin,
               std::int64_t elements,
               int replica) {
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (!piece.slots[slot].empty() && has_slot(slots[slot]))
      slabs.push_back({slots[slot].saved_name(replica), piece.parameter, begin,
                       piece.slots[slot].slice(begin - piece.parameter_begin, elements)});
}

/// All state in this rank's optimizer memory, in slots that each replica has, or in the others.
std::vector<record::MutableSlab> all_slabs(const optim::Optimizer& optimizer,
                                           bool of_replica,
                                           int replica = 0) {
  std::vector<record::MutableSlab> slabs;
  const auto has_slot = [&](const layout::StateSlot& slot) {
    return slot.of_replica == of_replica;
  };
  for (const optim::StatePiece& piece : optimizer.state())
    add_slabs(slabs, optimizer.slots(), has_slot, piece, piece.parameter_begin, piece.elements(),
              replica);
  sort_by_width(slabs);
  return slabs;
}

/// The part of the state that `rank` writes: the elements that it owns under the plan, also if
/// every rank holds everything, in the buckets of which its replica is the primary one. Slots that
/// each replica has are written by all of them.
std::vector<record::MutableSlab> owned_slabs(const layout::Plan& plan,
                                             const optim::Optimizer& optimizer,
                                             int rank) {
  std::vector<record::MutableSlab> slabs;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    const int replica = plan.replica_of(rank);
    const auto has_slot = [&](const layout::StateSlot& slot) {
      return slot.of_replica || plan.primary_replica(bucket) == replica;
    };
    for (const layout::Piece& owned : plan.find_pieces(bucket, plan.rank_in_replica(rank)))
      for (const optim::StatePiece& piece : optimizer.state())
        if (piece.parameter == owned.parameter && piece.parameter_begin <= owned.parameter_begin &&
            owned.parameter_begin + owned.elements <= piece.parameter_begin + piece.elements())
          add_slabs(slabs, optimizer.slots(), has_slot, piece, owned.parameter_begin,
                    owned.elements, replica);
  }
  sort_by_width(slabs);
  return slabs;
}

using Holder = reduce::Carried::Holder;

/// The state's name in a checkpoint. What each rank or leaf has is numbered.
std::string state_of(const reduce::Carried& one) {
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
void add_carried(std::vector<record::MutableSlab>& slabs,
                 const layout::Plan& plan,
                 const reduce::Carried& one) {
  for (const layout::Piece& piece : plan.find_pieces(one.bucket, one.begin, one.values.elements))
    slabs.push_back({state_of(one), piece.parameter, piece.parameter_begin,
                     one.values.slice(piece.shard_begin, piece.elements)});
}

/// The fact with the number of replicas whose moments a checkpoint has, if there are local steps.
constexpr std::string_view moments_fact = "replicas_of_moments";

/// The fact with Session::gradient_scale, if compression carries anything.
constexpr std::string_view scale_fact = "scale_of_gradients";

/// The name of a state after this prefix is the fact with the number of ranks that have it.
constexpr std::string_view carried_prefix = "ranks_of_";

std::string carried_fact(const reduce::Carried& carried) {
  return std::string(carried_prefix) + carried.name;
}

/// Whether a carried state is one of local steps, in the unit of weights.
bool is_outer(const reduce::Carried& carried) {
  return carried.name.starts_with("outer_");
}

bool is_stored(const record::Manifest& manifest,
               const std::string& name,
               ParameterIndex parameter) {
  const auto state = std::ranges::find(manifest.states, name, &record::SavedState::name);
  return state != manifest.states.end() &&
         !manifest
              .pieces_of(static_cast<std::size_t>(state - manifest.states.begin()), at(parameter))
              .empty();
}

/// The errors in a checkpoint that are not among those that a run carries, by parameter, with the
/// gradients to which they can be added. That of rank or leaf 0 stands for all. The same on all
/// ranks.
std::vector<reduce::Carried> other_errors(const record::Manifest& manifest,
                                          const record::NameValues& facts,
                                          const reduce::Engine& engine,
                                          const std::vector<reduce::Carried>& carried) {
  const layout::Plan& plan = engine.plan();
  std::set<std::pair<std::string, ParameterIndex>> held;
  for (const reduce::Carried& one : carried) {
    const bool by_owners = one.holder == Holder::owner || is_outer(one);
    const auto pieces = by_owners
                            ? plan.find_pieces(one.bucket, 0, plan.bucket(one.bucket).elements)
                            : plan.find_pieces(one.bucket, one.begin, one.values.elements);
    for (const layout::Piece& piece : pieces) held.emplace(one.name, piece.parameter);
  }
  std::vector<reduce::Carried> others;
  for (const auto& [fact, ranks] : facts) {
    if (!fact.starts_with(carried_prefix) || fact.find("error") == std::string::npos)
      continue;
    reduce::Carried one{.name = fact.substr(carried_prefix.size()), .bucket = {}, .values = {}};
    one.holder = one.name.ends_with("sum_error") ? Holder::owner : Holder::rank;
    for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
      const auto parameter = static_cast<ParameterIndex>(p);
      one.bucket = plan.placement(parameter).bucket;
      one.begin = plan.placement(parameter).begin - plan.bucket(one.bucket).begin;
      one.values = engine.gradient(parameter);
      if (!held.contains({one.name, parameter}) && is_stored(manifest, state_of(one), parameter))
        others.push_back(one);
    }
  }
  return others;
}

/// Slabs in host memory, which record/ fills. For a GPU they are copies, which are sent to it
/// afterwards.
class HostSlabs {
 public:
  HostSlabs(std::vector<record::MutableSlab> slabs, device::Stream& stream)
      : stream_(stream), there_(std::move(slabs)), here_(there_) {
    if (stream_.device().kind() == device::Kind::cpu)
      return;
    std::size_t bytes = 0;
    for (const auto& slab : there_) bytes += slab.data.bytes();
    memory_.resize(bytes);
    std::byte* next = memory_.data();
    for (auto& slab : here_) {
      slab.data.data = next;
      next += slab.data.bytes();
    }
  }

  [[nodiscard]] const std::vector<record::MutableSlab>& slabs() const { return here_; }

  void send_back() {
    if (memory_.empty())
      return;
    for (std::size_t i = 0; i < here_.size(); ++i)
      stream_.device().copy(there_[i].data, here_[i].data, stream_);
    stream_.synchronize();
  }

 private:
  device::Stream& stream_;
  std::vector<record::MutableSlab> there_, here_;
  std::vector<std::byte> memory_;
};

/// Whether a checkpoint is written from a copy: record/ reads only host memory.
bool takes_snapshot(const record::CheckpointConfig& config, device::Kind kind) {
  return config.asynchronous || kind != device::Kind::cpu;
}

}  // namespace

record::CheckpointFacts facts_of(const Job& job) {
  return {.seed = static_cast<std::uint64_t>(job.run.seed),
          .model = model_facts(job.shape),
          .more = job.build,
          .deck = job.deck,
          .tokenizer = job.tokenizer ? job.tokenizer->serialized() : ""};
}

bool keeps_memory_copies(const Sections& config, int ranks) {
  return config.checkpoint.memory_every_steps > 0 && why_no_memory_copies(config, ranks).empty();
}

std::string why_no_memory_copies(const Sections& config, int ranks) {
  if (config.checkpoint.memory_every_steps == 0)
    return "";
  const std::string why = config.parallel.on_lost_rank == reduce::OnLostRank::stop
                              ? "parallel.on_lost_rank is stop: set it to shrink"
                          : ranks == 1 ? "the run has 1 rank"
                                       : comm::why_losses_end_all_ranks();
  return why.empty() ? "" : "checkpoint.memory_every_steps has no effect: " + why;
}

bool holds_snapshot(const record::CheckpointConfig& config, device::Kind kind) {
  return config.regular() && takes_snapshot(config, kind);
}

Saver::Saver(Session& session, comm::World& world)
    : session_(session), job_(session.job), world_(world) {}

std::optional<Saver::Resumed> Saver::load_newest(const std::string& run_directory,
                                                 Log& log,
                                                 const Allow& expect_allowed) {
  std::string directory;
  std::int64_t weights_alone = 0;
  comm::on_first_rank(world_, [&] {
    record::restore_replaced(run_directory);
    const auto newest = record::newest_checkpoint(run_directory);
    if (!newest)
      return;
    directory = newest->directory;
    weights_alone = newest->step == 0 ? 1 : 0;
    if (expect_allowed)
      expect_allowed({directory, record::read_facts(directory)});
    if (const auto doubt = record::doubt_latest(run_directory, directory); !doubt.empty())
      log.warning("{}", doubt);
  });
  directory = world_.broadcast(std::move(directory), 0);
  if (directory.empty())
    return std::nullopt;

  world_.max({&weights_alone, 1});
  auto wanted = all_slabs(session_.optimizer, false);
  if (weights_alone != 0)  // the other state starts at zero
    std::erase_if(wanted, [&](const record::MutableSlab& slab) {
      return slab.state != session_.optimizer.slots().front().name;
    });
  HostSlabs slabs(std::move(wanted), *session_.compute_stream);
  const auto facts = record::load_checkpoint(directory, session_.plan, model_facts(job_.shape),
                                             slabs.slabs(), world_);
  slabs.send_back();
  if (const std::string told = record::fact_of(facts.more, "precision");
      !told.empty() && told != precision())
    throw UserError(std::vector<Diagnostic>{
        {{},
         "run.precision",
         fmt::format("{0}{1} here, but {2} was written with {3}; resume with run.precision={3}, or "
                     "use another run.directory",
                     precision(), job_.run.precision == Precision::automatic ? " (auto)" : "",
                     directory, told)}});
  load_moments(directory, facts);
  load_carried(directory, facts, log);
  session_.optimizer.publish_parameters();
  log.info("resumed from {}: step {}, sample {}", directory, facts.step, facts.next_sample);
  return Resumed{directory, facts};
}

/// A replica has the moments of replica r modulo G of the run that wrote them, which had G.
void Saver::load_moments(const std::string& directory, const record::CheckpointFacts& facts) {
  const std::string writers = record::fact_of(facts.more, moments_fact);
  if (writers.empty())
    return;
  HostSlabs slabs(all_slabs(session_.optimizer, true,
                            session_.plan.replica_of(world_.rank()) % std::stoi(writers)),
                  *session_.compute_stream);
  record::load_checkpoint(directory, session_.plan, model_facts(job_.shape), slabs.slabs(), world_);
  slabs.send_back();
}

void Saver::load_carried(const std::string& directory,
                         const record::CheckpointFacts& facts,
                         Log& log) {
  if (std::ranges::none_of(facts.more,
                           [](const auto& fact) { return fact.first.starts_with(carried_prefix); }))
    return;
  if (const std::string scale = record::fact_of(facts.more, scale_fact); !scale.empty())
    session_.gradient_scale = std::stod(scale);
  const auto manifest =
      comm::from_first_rank(world_, [&] { return record::read_manifest(directory); });
  std::vector<reduce::Carried> carried = session_.optimizer.carried();
  std::erase_if(carried, [&](const auto& one) {
    return record::fact_of(facts.more, carried_fact(one)).empty();
  });
  const std::size_t num_own = carried.size();
  std::ranges::move(to_first_gradient(other_errors(manifest, facts.more, session_.engine, carried),
                                      directory, log),
                    std::back_inserter(carried));
  // One rank of those that add up their gradients.
  const bool adds_others = job_.optimizer.outer.on()
                               ? session_.plan.rank_in_replica(world_.rank()) == 0
                               : world_.rank() == 0;
  const auto writers_of = [&](const reduce::Carried& one) {
    return std::stoi(record::fact_of(facts.more, carried_fact(one)));
  };
  std::int64_t rounds = 0;
  for (const auto& one : carried) rounds = std::max(rounds, divided_up(writers_of(one), one.ranks));
  // Another way of sending gradients may have left no errors of some parameters: they start at zero.
  const auto is_absent = [&](const record::MutableSlab& slab) {
    if (is_stored(manifest, slab.state, slab.parameter))
      return false;
    session_.device->fill_zero(slab.data, *session_.compute_stream);
    return true;
  };
  // The states of ranks r, r + N, r + 2N, … of the run that wrote them become the sum of rank r.
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<record::MutableSlab> wanted;
    std::vector<device::Buffer> memory;
    std::vector<ops::Add> sums;
    for (std::size_t i = 0; i < carried.size(); ++i) {
      const bool other = i >= num_own;
      reduce::Carried one = carried[i];
      if (one.holder == Holder::rank)
        one.index += round * one.ranks;
      if ((one.holder == Holder::rank ? one.index >= writers_of(one) : round > 0) ||
          (other && !adds_others))
        continue;
      if (round > 0 || other) {
        memory.push_back(
            session_.device->allocate(one.values.bytes(), "errors of gradients to be added"));
        const View term = memory.back().view(DType::f32);
        sums.push_back({.sum = one.values, .term = term});
        one.values = term;
      }
      add_carried(wanted, session_.plan, one);
    }
    std::erase_if(wanted, is_absent);
    HostSlabs slabs(std::move(wanted), *session_.compute_stream);
    record::load_checkpoint(directory, session_.plan, model_facts(job_.shape), slabs.slabs(),
                            world_);
    slabs.send_back();
    for (const ops::Add& sum : sums) ops::run(sum, *session_.compute_stream);
    session_.compute_stream->synchronize();
  }
}

std::vector<reduce::Carried> Saver::to_first_gradient(std::vector<reduce::Carried> others,
                                                      const std::string& directory,
                                                      Log& log) {
  if (others.empty())
    return others;
  const bool outer = is_outer(others.front());
  if (!outer && !session_.engine.gradients_share_slots()) {
    session_.engine.begin_with_errors();
    log.info("the first gradient includes the errors of compressed gradients in {}", directory);
    return others;
  }
  if (world_.rank() == 0)
    log.warning("the errors of {} in {} are dropped, because {}. To keep them, resume with {}",
                outer ? "the changes of weights" : "compressed gradients", directory,
                outer ? "this run does not encode these changes"
                      : "with this parallel.shard no rank has whole gradients",
                outer ? "several replicas and an optimizer.outer.dtype from int8 on"
                      : "shard: optimizer for at least one step");
  return {};
}

void Saver::write_masters(
    const std::function<void(const record::MutableSlab& slab, View values)>& fill) {
  const auto slabs = all_slabs(session_.optimizer, false);
  std::int64_t largest = 0;
  for (const auto& slab : slabs) largest = std::max(largest, slab.data.elements);
  const device::Buffer scratch = session_.device->allocate_shared_with_host(
      static_cast<std::size_t>(largest) * sizeof(float), "initial values");
  for (const auto& slab : slabs) {
    if (slab.state != session_.optimizer.slots().front().name)
      continue;
    const View values = scratch.view(DType::f32, 0, slab.data.elements);
    fill(slab, values);
    session_.device->copy(slab.data, values, *session_.compute_stream);
    session_.compute_stream->synchronize();  // the scratch is used again
  }
}

void Saver::initialize() {
  const model::Layers layers(job_.shape);
  write_masters([&](const record::MutableSlab& slab, View values) {
    layers.registry.initialize(slab.parameter, static_cast<std::uint64_t>(job_.run.seed), values,
                               slab.begin);
  });
  session_.optimizer.publish_parameters();
}

record::NameValues Saver::start_from_files(Log& log) {
  record::NameValues facts;
  weights::read_from(job_.run.initial_weights, -1, world_,
                     [&](const std::string& place) { facts = start_from(place, log); });
  return facts;
}

record::NameValues Saver::start_from(const std::string& place, Log& log) {
  const weights::ExpectedModel expected{job_.shape, job_.run.initial_rows, job_.tokenizer};
  auto stored = weights::open_together(
      place, job_.tokenizer != nullptr, world_, [&](const weights::StoredModel& found) {
        if (auto findings = weights::find_differences(found, expected); !findings.empty())
          throw UserError(std::move(findings));
      });
  weights::InitialWeights initial(std::move(stored), job_.shape,
                                  static_cast<std::uint64_t>(job_.run.seed), world_);
  std::vector<std::uint64_t> hashes(session_.plan.parameters().size());
  // If every rank holds everything, each rank counts only its own part, so that each element counts
  // once.
  const auto owned = owned_slabs(session_.plan, session_.optimizer, world_.rank());
  comm::together(world_, [&] {
    write_masters([&](const record::MutableSlab& slab, View values) {
      initial.read(slab.parameter, slab.begin, values);
      for (const auto& mine : owned)
        if (mine.state == slab.state && mine.parameter == slab.parameter &&
            mine.begin >= slab.begin &&
            mine.begin + mine.data.elements <= slab.begin + slab.data.elements)
          hashes[at(slab.parameter)] +=
              hash_elements(values.slice(mine.begin - slab.begin, mine.data.elements), mine.begin);
    });
  });
  const weights::Origin origin = initial.settle(hashes);
  session_.optimizer.publish_parameters();
  log.info("initial weights: {} ({}), hash {:016x}", origin.path, origin.format, origin.hash);
  for (const std::string& note : initial.notes()) log.info("initial weights: {}", note);
  return origin.facts();
}

void Saver::prepare(const std::string& run_directory, record::NameValues more) {
  more_ = std::move(more);
  if (holds_snapshot(job_.checkpoint, session_.device->kind()))
    make_snapshot();
  writer_.emplace(run_directory, session_.plan, retention(), world_);
}

void Saver::make_snapshot() {
  snapshot_ = session_.device->allocate_shared_with_host(
      static_cast<std::size_t>(layout::snapshot_bytes(session_.plan, session_.optimizer.slots()) +
                               compression_bytes(job_, session_.plan).carried),
      "the snapshot of a checkpoint");
  std::fill_n(snapshot_.data(), snapshot_.bytes(), std::byte{0});  // writing allocates the pages
}

std::vector<record::MutableSlab> Saver::slabs_to_write() const {
  std::vector<record::MutableSlab> slabs;
  for (const reduce::Carried& one : session_.optimizer.carried())
    if (world_.rank() == 0 || one.holder != Holder::all)
      add_carried(slabs, session_.plan, one);
  std::ranges::move(owned_slabs(session_.plan, session_.optimizer, world_.rank()),
                    std::back_inserter(slabs));
  return slabs;
}

std::vector<record::Slab> Saver::owned_state() {
  if (snapshot_.bytes() == 0 && takes_snapshot(job_.checkpoint, session_.device->kind()))
    make_snapshot();
  std::vector<record::Slab> slabs;
  std::size_t used = 0;
  for (const auto& slab : slabs_to_write()) {
    View kept = slab.data;
    if (snapshot_.bytes() > 0) {
      TRIREME_EXPECT(slab.data.bytes() <= snapshot_.bytes() - used, "a snapshot of {} bytes",
                     snapshot_.bytes());
      kept = snapshot_.view(slab.data.dtype, used, slab.data.elements);
      used += slab.data.bytes();
      session_.device->copy(kept, slab.data, *session_.compute_stream);
    }
    slabs.push_back({slab.state, slab.parameter, slab.begin, kept});
  }
  session_.compute_stream->synchronize();
  return slabs;
}

std::string Saver::precision() const {
  return name(session_.engine.parameter(ParameterIndex{}).dtype);
}

record::CheckpointFacts Saver::facts_of_step(std::int64_t step,
                                             const record::NameValues& now) const {
  record::CheckpointFacts facts = facts_of(job_);
  facts.step = step;
  facts.next_sample = session_.next_sample;
  facts.more.emplace_back("precision", precision());
  facts.more.insert(facts.more.end(), more_.begin(), more_.end());
  facts.more.insert(facts.more.end(), now.begin(), now.end());
  if (job_.optimizer.outer.on())
    facts.more.emplace_back(moments_fact, std::to_string(session_.plan.replicas()));
  const auto carried = session_.optimizer.carried();
  if (!carried.empty())
    facts.more.emplace_back(scale_fact, fmt::format("{}", session_.gradient_scale));
  for (const reduce::Carried& one : carried)
    if (record::fact_of(facts.more, carried_fact(one)).empty())
      facts.more.emplace_back(carried_fact(one), std::to_string(one.ranks));
  return facts;
}

void Saver::copy_to(MemoryCopies& copies, std::int64_t step, const record::NameValues& now) {
  record::CheckpointFacts facts;
  facts.step = step;
  if (world_.rank() == 0)  // the others' are not read, and hold a whole tokenizer
    facts = facts_of_step(step, now);
  copies.take(facts, slabs_to_write(), *session_.compute_stream, world_);
}

std::optional<Saver::Saved> Saver::write_from(const MemoryCopies& copies,
                                              const std::string& run_directory,
                                              Log& log) {
  const double begin = device::steady_seconds();
  const auto on_disk = comm::from_first_rank(world_, [&] {
    record::restore_replaced(run_directory);
    const auto newest = record::newest_checkpoint(run_directory);
    return newest ? newest->step : -1;
  });
  auto found = copies.newest(on_disk, world_);
  if (!found)
    return std::nullopt;
  if (found->facts.model != model_facts(job_.shape))
    throw UserError(
        "the model of the deck was changed during the run, and the copies of its state in memory "
        "do not fit the new one; restore the deck and start the same command again");
  record::CheckpointWriter writer(run_directory, session_.plan, retention(), world_);
  writer.start_files(found->facts, std::move(found->files));
  record::SavedCheckpoint files = writer.finish();
  for (const std::string& warning : files.warnings) log.warning("{}", warning);
  log.info("wrote {} from the copies in memory", files.directory);
  return Saved{.files = std::move(files),
               .step = found->facts.step,
               .begin = begin,
               .stall_s = device::steady_seconds() - begin};
}

void Saver::begin(std::int64_t step, const record::NameValues& now) {
  saved_ = {.files = {}, .step = step, .begin = device::steady_seconds()};
  auto slabs = owned_state();
  if (snapshot_.bytes() > 0)
    saved_.copy_s = device::steady_seconds() - saved_.begin;
  writer_->start(facts_of_step(step, now), std::move(slabs));
  saved_.stall_s = device::steady_seconds() - saved_.begin;
}

std::optional<Saver::Saved> Saver::advance() {
  const double begin = device::steady_seconds();
  auto files = writer_->advance();
  saved_.stall_s += device::steady_seconds() - begin;
  if (!files)
    return std::nullopt;
  saved_.files = *std::move(files);
  saved_.needed_s = saved_.copy_s + saved_.files.seconds;
  return saved_;
}

Saver::Saved Saver::finish() {
  for (;;)
    if (auto saved = advance())
      return *std::move(saved);
}

}  // namespace trireme::session
