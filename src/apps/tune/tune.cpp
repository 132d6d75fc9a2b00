// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "base/quantile.hpp"
#include "base/text.hpp"
#include "device/device.hpp"

#include "model/layers.hpp"

#include "comm/communicator.hpp"
#include "comm/control/placement.hpp"
#include "comm/control/temporary_directory.hpp"
#include "reduce/layout_options.hpp"
#include "reduce/leaves.hpp"

#include "session/machine.hpp"
#include "session/plan_of.hpp"
#include "session/rank_memory.hpp"
#include "session/session.hpp"

#include "bench/fit.hpp"
#include "bench/isolated_step.hpp"
#include "deck/check.hpp"
#include "deck/job.hpp"
#include "deck/value.hpp"
#include "doctor/host_facts.hpp"
#include "plan/deck_plan.hpp"
#include "plan/scaling.hpp"
#include "tune/budget.hpp"
#include "tune/timed_steps.hpp"

namespace trireme::tune {
namespace {

constexpr std::size_t most_micro_batches = 8;
constexpr std::size_t most_runs = 5;  ///< in addition to the deck's own
constexpr int link_repetitions = 9;
constexpr std::int64_t largest_message = std::int64_t{64} << 20;
constexpr double part_of_free_memory = 0.9;
/// Shares of the time; collectives are not included.
constexpr double compute_part = 0.25, runs_part = 0.4, again_part = 0.35;

std::int64_t free_bytes(comm::World& world) {
  const std::int64_t free = doctor::usable_bytes(doctor::facts_of_this_host(world.host()));
  const double mine = part_of_free_memory * static_cast<double>(free) / world.local_size();
  const auto all = world.gather_all(std::array{mine});
  return static_cast<std::int64_t>(*std::ranges::min_element(all));
}

comm::Transport transport_of(std::string_view name) {
  for (const auto& [transport, word] : EnumNames<comm::Transport>::table)
    if (name == word)
      return transport;
  TRIREME_EXPECT(false, "unknown transport '{}'", name);
  return comm::Transport::automatic;
}

Setting with(Setting setting, const Choices::Compute& compute) {
  setting.micro_sequences = compute.micro_sequences;
  setting.recompute = compute.recompute;
  return setting;
}

std::string steps_text(const TimedSteps& timed) {
  return fmt::format("{} {}", timed.steps, timed.steps == 1 ? "step" : "steps");
}

class Tuner {
 public:
  Tuner(const deck::Deck& deck,
        const deck::Circumstances& circumstances,
        comm::World& world,
        Log& log,
        const TuneRequest& request)
      : circumstances_(circumstances), world_(world), log_(log), request_(request), deck_(deck) {}

  Tuning tune();

 private:
  [[nodiscard]] deck::Deck deck_of(const Setting& setting) const {
    deck::Deck other = deck_;
    apply(setting, other.config);
    return other;
  }
  [[nodiscard]] session::Job job_of(const Setting& setting) const {
    return deck::job_of(deck_of(setting));
  }
  [[nodiscard]] model::RecomputeChoice recompute_of(const Setting& setting) const {
    return session::decide_recompute(job_of(setting), world_, *device_, dtype_);
  }
  [[nodiscard]] std::int64_t lone_bytes(const Setting& setting) const;
  [[nodiscard]] std::optional<model::RecomputeKey> recompute_that_fits(std::int64_t micro) const;
  void find_transports();
  void find_computes();
  void measure();
  void skip_slow_computes();
  void measure_computes(int steps, double each_s);
  std::vector<Candidate> predict();
  void run(std::vector<Candidate> all);
  void run_again();
  double time(const Candidate& candidate, const TimedSteps& steps) {
    return seconds_of_a_step(job_of(candidate.setting), *data_, world_, steps);
  }
  [[nodiscard]] OwnStep own_step() const {
    return {result_.runs.front().candidate.predicted_s,
            session::most_micro_steps(deck_.config, world_.size())};
  }
  /// The value of rank 0, on every rank.
  template <class T>
  [[nodiscard]] T from_rank_0(const T& value) const {
    return unpack<T>(world_.broadcast(pack(value), 0));
  }

  const deck::Circumstances& circumstances_;
  comm::World& world_;
  Log& log_;
  const TuneRequest& request_;
  deck::Deck deck_;  ///< with the resolved precision
  Setting own_;
  int replicas_ = 1;  ///< of the state: parallel.replicate
  std::unique_ptr<device::Device> device_;
  DType dtype_{};
  std::optional<comm::TemporaryDirectory> cache_;
  std::optional<batches::Split> data_;
  Choices choices_;
  Tuning result_;
};

/// Memory of a rank, on `ranks` ranks and `hosts` hosts.
std::int64_t rank_bytes(const deck::Deck& deck, int ranks, int hosts) {
  return plan::whole_bytes(plan::plan_of(deck, ranks, hosts), 0);
}

/// Memory of the isolated step that measures compute, which is not sharded
/// (bench/isolated_step.hpp).
std::int64_t Tuner::lone_bytes(const Setting& setting) const {
  deck::Deck isolated = deck_of(setting);
  isolated.config.model.recompute = recompute_of(setting).recompute.key();  // like the run
  isolated.config.parallel = {};
  return rank_bytes(isolated, 1, 1);
}

/// The deck's transport and the others that can be used on these hosts.
void Tuner::find_transports() {
  using comm::Transport;
  const auto wire_of = [&](Transport transport) {
    return transport_of(comm::make_communicator(transport, deck_.config.parallel.reduction, world_,
                                                *device_, {.replicas = replicas_})
                            ->name());
  };
  const Transport own = own_.transport, own_wire = wire_of(own);
  choices_.transports = {{own, own_wire}};
  if (world_.size() == 1)
    return;
  if (const Transport best = wire_of(Transport::automatic); best != own_wire)
    choices_.transports.push_back({Transport::automatic, best});
  if (std::ranges::find(choices_.transports, Transport::mpi, &Choices::Option::wire) ==
      choices_.transports.end())
    choices_.transports.push_back({Transport::mpi, Transport::mpi});
}

/// Micro-batches, each with the least recomputation that fits, or with the deck's limit; the deck's
/// own first.
void Tuner::find_computes() {
  const auto& config = deck_.config;
  const std::int64_t leaves = session::batches_of(config, 1, world_.size()).leaves;
  choices_.computes = {{own_.micro_sequences, own_.recompute}};
  if (lone_bytes(own_) > result_.memory_bytes)
    throw UserError(fmt::format(
        "a single rank needs {} for this deck, but may use only {}, so its compute time cannot be "
        "measured. Use fewer ranks per host or a smaller batch.micro_sequences.",
        bytes_text(static_cast<double>(lone_bytes(own_))),
        bytes_text(static_cast<double>(result_.memory_bytes))));
  for (const std::int64_t micro :
       nearest(micro_batches(config.batch, leaves > 0 ? leaves : world_.size()),
               own_.micro_sequences, most_micro_batches)) {
    if (request_.same_bits && micro != own_.micro_sequences)
      continue;
    const auto recompute = recompute_that_fits(micro);
    if (recompute && (micro != own_.micro_sequences || *recompute != own_.recompute))
      choices_.computes.push_back({micro, *recompute});
  }
}

/// The deck's limit, or the least recomputation with which both a rank of the run and the isolated
/// step fit into memory: a word, or a limit in bytes. Nothing if none fits.
std::optional<model::RecomputeKey> Tuner::recompute_that_fits(std::int64_t micro) const {
  const auto choice_of = [&](const model::RecomputeKey& key) {
    return recompute_of(with(own_, {micro, key}));
  };
  if (own_.recompute.limit() != nullptr) {
    const bool fits = choice_of(own_.recompute).fits &&
                      lone_bytes(with(own_, {micro, own_.recompute})) <= result_.memory_bytes;
    return fits ? std::optional(own_.recompute) : std::nullopt;
  }
  // All three sums contain the same activations; `other` is the rest.
  const Setting any = with(own_, {micro, model::Recompute::block});
  const std::int64_t all =
      std::max(lone_bytes(any), rank_bytes(deck_of(any), world_.size(), result_.hosts));
  const std::int64_t other = std::max<std::int64_t>(0, all - recompute_of(any).bytes);
  const std::int64_t budget = result_.memory_bytes - other;
  if (budget <= 0)
    return std::nullopt;
  // Round down by at most 1/256, for few digits.
  const auto granule = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(budget / 256, 1))));
  const Bytes limit{budget / granule * granule};
  const model::RecomputeChoice choice = choice_of(model::RecomputeKey(limit));
  if (!choice.fits)
    return std::nullopt;
  return choice.recompute.list().empty() ? choice.recompute.key() : model::RecomputeKey(limit);
}

void Tuner::measure() {
  const session::Job job = job_of(own_);
  const layout::Plan plan = session::plan_of(job, world_, *device_);
  const double each =
      compute_part * request_.seconds / static_cast<double>(choices_.computes.size());
  bench::FitRequest fit{.collectives = {}, .chooses_sizes = false, .most_s = each};
  fit.collectives.repetitions = link_repetitions;
  if (world_.size() > 1) {
    choices_.bucket_elements = bucket_sizes(plan);
    fit.collectives.bytes = bench::fit_sizes(
        std::min(plan.flat_elements() * static_cast<std::int64_t>(sizeof(float)), largest_message));
    for (std::size_t i = 1; i < choices_.transports.size(); ++i)
      fit.further_transports.push_back(choices_.transports[i].transport);
  }
  result_.machine = bench::measure_machine(job, *data_, world_, fit);
  skip_slow_computes();
  if (choices_.computes.size() > 1)
    measure_computes(fit.steps, each);
}

/// Drops larger micro-batches whose measurement would take longer than the time for tune.
void Tuner::skip_slow_computes() {
  const plan::Compute& own = result_.machine.compute.front();
  const double sequence_s = own.micro_step_s / static_cast<double>(own.micro_sequences);
  double left_s = request_.seconds;
  std::string left_out;
  std::erase_if(choices_.computes, [&](const Choices::Compute& compute) {
    const double all_s =
        bench::least_isolated_seconds(sequence_s * static_cast<double>(compute.micro_sequences));
    if (compute.micro_sequences > own.micro_sequences && all_s > left_s) {
      left_out += fmt::format("{}{}", left_out.empty() ? "" : ", ", compute.micro_sequences);
      return true;
    }
    left_s -= all_s;
    return false;
  });
  if (!left_out.empty())
    log_.info(
        "skipped micro-batches of {} sequences, because their steps take too long. Increase "
        "--seconds to measure them.",
        left_out);
}

/// Measures micro-batches, interleaving as many as fit into memory.
void Tuner::measure_computes(int steps, double each_s) {
  result_.machine.compute.clear();
  for (std::size_t begin = 0; begin < choices_.computes.size();) {
    std::vector<std::unique_ptr<bench::IsolatedStep>> kept;
    std::vector<bench::IsolatedStep*> isolated_steps;
    std::int64_t bytes = 0;
    for (; begin < choices_.computes.size(); ++begin) {
      const Setting setting = with(own_, choices_.computes[begin]);
      bytes += lone_bytes(setting);
      if (bytes > result_.memory_bytes && !kept.empty())
        break;
      kept.push_back(
          std::make_unique<bench::IsolatedStep>(job_of(setting), *data_, world_, dtype_));
      isolated_steps.push_back(kept.back().get());
    }
    std::ranges::move(
        bench::measure_alternately(isolated_steps, steps,
                                   each_s * static_cast<double>(isolated_steps.size())),
        std::back_inserter(result_.machine.compute));
  }
}

/// Candidates with predicted memory and time, the deck's own first, without those that are invalid
/// or too large.
std::vector<Candidate> Tuner::predict() {
  const Additions additions{world_.size() / replicas_, deck_.config.parallel.reduction, replicas_};
  std::vector<Candidate> all = candidates(own_, choices_, additions), possible;
  for (Candidate& one : all) {
    if (request_.same_bits && one.changes_bits)
      continue;
    deck::Deck deck = deck_of(one.setting);
    std::vector<Diagnostic> findings;
    deck::check(deck, circumstances_, findings);
    if (!findings.empty())
      continue;
    deck.config.parallel.transport = one.wire;
    const plan::ScalingRow prediction =
        plan::scaling_row(deck, result_.machine, world_.size(), result_.hosts, 1);
    TRIREME_EXPECT(prediction.strong, "no measurement for a step with {}",
                   words_of(values_of(one.setting)));
    ++result_.predicted;
    one.memory_bytes = prediction.memory_bytes.value_or(0);
    one.predicted_s = prediction.strong->step_s;
    const Bytes* limit = one.setting.recompute.limit();
    const std::int64_t most =
        limit != nullptr ? std::min(limit->count, result_.memory_bytes) : result_.memory_bytes;
    if (one.memory_bytes > most && !possible.empty())
      ++result_.too_large;
    else
      possible.push_back(std::move(one));
  }
  return possible;
}

void Tuner::run(std::vector<Candidate> all) {
  for (const std::size_t i : from_rank_0(shortlist(all, most_runs)))
    result_.runs.push_back({all[i], {}, {}});
  if (result_.runs.size() == 1)
    return;
  const TuneBudget budget =
      from_rank_0(budget_for_runs(runs_part * request_.seconds, own_step(), result_.runs.size()));
  const std::size_t count = budget.blocks;
  result_.runs.resize(count);
  log_.info(
      "predicted {} settings, {} of which need too much memory; running the best {} and the deck's "
      "values in {} rounds of {}",
      result_.predicted, result_.too_large, count - 1, budget.rounds, steps_text(budget.timed));
  // Each round begins with another setting.
  for (std::size_t round = 0; round < static_cast<std::size_t>(budget.rounds); ++round)
    for (std::size_t turn = 0; turn < count; ++turn) {
      Run& one = result_.runs[(round + turn) % count];
      one.seconds.push_back(time(one.candidate, budget.timed));
    }
  for (Run& one : result_.runs) one.ratio = ratio_of(one.seconds, result_.runs.front().seconds);
}

void Tuner::run_again() {
  std::vector<Trial> trials;
  trials.reserve(result_.runs.size());
  for (const Run& one : result_.runs)
    trials.push_back(
        {one.ratio, one.candidate.changes_bits, differences(own_, one.candidate.setting).size()});
  const std::size_t position = from_rank_0(best_of(trials).value_or(0));
  if (position == 0)
    return;
  Repeated again{.run = position, .seconds = {}, .own_seconds = {}, .ratio = {}};
  const Candidate& own = result_.runs.front().candidate;
  const Candidate& other = result_.runs[position].candidate;
  const TuneBudget budget =
      from_rank_0(budget_for_repetition(again_part * request_.seconds, own_step()));
  log_.info("running the best setting again: {} rounds of {} x {}", budget.rounds,
            2 * budget.blocks, steps_text(budget.timed));
  std::size_t pairs = 0;
  for (int round = 0; round < budget.rounds; ++round) {
    double own_s = 0, other_s = 0;
    for (std::size_t pair = 0; pair < budget.blocks; ++pair) {
      const bool own_first = pairs++ % 2 == 0;
      if (own_first)
        own_s += time(own, budget.timed);
      other_s += time(other, budget.timed);
      if (!own_first)
        own_s += time(own, budget.timed);
    }
    again.own_seconds.push_back(own_s / static_cast<double>(budget.blocks));
    again.seconds.push_back(other_s / static_cast<double>(budget.blocks));
  }
  again.ratio = ratio_of(again.seconds, again.own_seconds);
  result_.repeated = std::move(again);
}

Tuning Tuner::tune() {
  session::expect_cpus(world_, "trireme tune", deck_.config.run.device,
                       device::count_cuda_devices());
  deck_.config.run.device = session::DeviceChoice::cpu;
  const int threads = session::choose_threads(deck_.config.run.threads, world_);
  omp_set_num_threads(threads);
  device_ = session::open_device(session::DeviceChoice::cpu, threads, world_);
  dtype_ = session::choose_dtype(deck_.config.run.precision, *device_, world_);
  deck_.config.run.precision =
      dtype_ == DType::bf16 ? session::Precision::bf16 : session::Precision::fp32;
  own_ = setting_of(deck_.config);
  replicas_ = reduce::replicas(deck_.config.parallel, world_);
  result_.ranks = world_.size();
  result_.hosts = static_cast<int>(comm::gather_placement(world_, threads).hosts().size());
  result_.memory_bytes = request_.memory_bytes > 0 ? request_.memory_bytes : free_bytes(world_);
  cache_.emplace(world_);
  data_.emplace(session::open_data(job_of(own_), cache_->path(), world_, log_));
  (void)session::decided(job_of(own_), world_, *device_, dtype_);  // throws if nothing fits
  find_transports();
  find_computes();
  std::string micro_batches;
  for (const auto& [micro, recompute] : choices_.computes)
    micro_batches += fmt::format("{}{} (recompute: {})", micro_batches.empty() ? "" : ", ", micro,
                                 deck::yaml_text(recompute));
  log_.info("measuring {} and micro-batches of {} sequences on {} {}",
            choices_.transports.size() == 1
                ? "1 transport"
                : fmt::format("{} transports", choices_.transports.size()),
            micro_batches, world_.size(), world_.size() == 1 ? "rank" : "ranks");
  measure();
  run(predict());
  run_again();
  return std::move(result_);
}

}  // namespace

Tuning tune(const deck::Deck& deck,
            const deck::Circumstances& circumstances,
            comm::World& world,
            Log& log,
            const TuneRequest& request) {
  return Tuner(deck, circumstances, world, log, request).tune();
}

}  // namespace trireme::tune
