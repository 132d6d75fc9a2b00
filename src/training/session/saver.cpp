// SPDX-License-Identifier: Apache-2.0
#include "session/saver.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"
#include "device/recorder.hpp"
#include "layout/budget.hpp"

#include "model/gpt.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "weights/open.hpp"

#include "session/compression_state.hpp"
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

/// The fact with the number of replicas whose moments a checkpoint has, if there are local steps.
constexpr std::string_view moments_fact = "replicas_of_moments";

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
  const auto facts = session_.load(directory, std::move(wanted), world_);
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
  load_compression(directory, facts, session_, world_, log);
  session_.optimizer.publish_parameters();
  log.info("resumed from {}: step {}, sample {}", directory, facts.step, facts.next_sample);
  return Resumed{directory, facts};
}

/// A replica has the moments of replica r modulo G of the run that wrote them, which had G.
void Saver::load_moments(const std::string& directory, const record::CheckpointFacts& facts) {
  const std::string writers = record::fact_of(facts.more, moments_fact);
  if (writers.empty())
    return;
  session_.load(directory,
                all_slabs(session_.optimizer, true,
                          session_.plan.replica_of(world_.rank()) % std::stoi(writers)),
                world_);
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
  std::vector<record::MutableSlab> slabs = compression_slabs(session_, world_.rank());
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
  std::ranges::move(compression_facts(session_), std::back_inserter(facts.more));
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
