// SPDX-License-Identifier: Apache-2.0
#include "tune/tune.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/device.hpp"

#include "comm/communicator.hpp"
#include "comm/control/placement.hpp"
#include "reduce/layout_options.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"
#include "session/session.hpp"

#include "deck/check.hpp"
#include "deck/survey.hpp"
#include "deck/value.hpp"
#include "doctor/host_facts.hpp"
#include "plan/deck_plan.hpp"
#include "tune/budget.hpp"

namespace trireme::tune {
namespace {

constexpr std::size_t most_micro_batches = 8;
/// Settings that are run in rounds, in addition to the deck's own: those of other computes, and
/// those of other transports and buckets.
constexpr std::size_t computes_to_run = 2, links_to_run = 3;
/// Rounds of these settings, and of the best one against the deck's own (confirms()).
constexpr int rounds_of_runs = 4, rounds_again = 8;
constexpr std::size_t searches = 2;
constexpr std::size_t least_searched = 3;  // settings in a search, however long a step takes
constexpr double part_of_free_memory = 0.9;
constexpr double search_part = 0.4, runs_part = 0.3, again_part = 0.3;  // shares of the time

std::int64_t free_bytes(comm::World& world) {
  const std::int64_t free = doctor::usable_bytes(doctor::facts_of_this_host(world.host()));
  const double mine = part_of_free_memory * static_cast<double>(free) / world.local_size();
  const auto all = world.gather_all(std::array{mine});
  return static_cast<std::int64_t>(*std::ranges::min_element(all));
}

deck::JobConfig with(deck::JobConfig config,
                     std::int64_t micro_sequences,
                     const model::RecomputeKey& recompute) {
  config.batch.micro_sequences = micro_sequences;
  config.model.recompute = recompute;
  return config;
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
  [[nodiscard]] deck::Deck deck_of(const deck::JobConfig& config) const {
    deck::Deck other = deck_;
    other.config = config;
    return other;
  }
  [[nodiscard]] session::Job job_of(const deck::JobConfig& config) const {
    return deck::job_of(deck_of(config));
  }
  [[nodiscard]] model::RecomputeChoice recompute_of(const deck::JobConfig& config) const {
    const session::Job job = job_of(config);
    return session::decide_recompute(
        {job, job.shape, session::plan_of(job, world_, *device_), {dtype_, device_->kind()}});
  }
  [[nodiscard]] std::int64_t bytes_of(const deck::JobConfig& config) const;
  [[nodiscard]] std::optional<model::RecomputeKey> recompute_that_fits(std::int64_t micro) const;
  void find_transports();
  [[nodiscard]] std::vector<Candidate> computes(std::size_t most) const;
  [[nodiscard]] std::vector<Candidate> links(const deck::JobConfig& best) const;
  [[nodiscard]] std::vector<Candidate> possible(std::vector<Candidate> all);
  [[nodiscard]] std::vector<Candidate> halve(std::vector<Candidate> field, std::size_t keep) const;
  void search();
  void run();
  void run_again();
  [[nodiscard]] std::vector<std::vector<double>> in_rounds(const std::vector<std::size_t>& runs,
                                                           const TuneBudget& budget) const;
  [[nodiscard]] double time(const Candidate& candidate, const TimedSteps& steps) const {
    return seconds_of_a_step(job_of(candidate.config), *data_, world_, steps);
  }

  const deck::Circumstances& circumstances_;
  comm::World& world_;
  Log& log_;
  const TuneRequest& request_;
  deck::Deck deck_;                ///< with the resolved precision
  layout::ReplicaRanks replicas_;  ///< of the state: parallel.replicate
  std::unique_ptr<device::Device> device_;
  DType dtype_{};
  std::optional<session::TemporaryCache> cache_;
  std::optional<batches::Split> data_;
  /// As in the deck, and the actual one, never auto; the deck's own first.
  std::vector<std::pair<comm::Transport, comm::Transport>> transports_;
  std::vector<std::int64_t> bucket_elements_;  ///< other than the deck's
  OwnStep own_step_;
  Tuning result_;
};

std::int64_t Tuner::bytes_of(const deck::JobConfig& config) const {
  return plan::whole_bytes(plan::plan_of(deck_of(config), world_.size(), result_.hosts), 0);
}

/// The deck's transport and the others that can be used on these hosts, and sizes of buckets.
void Tuner::find_transports() {
  using comm::Transport;
  const auto wire_of = [&](Transport transport) {
    const auto made = comm::make_communicator(transport, deck_.config.parallel.reduction, world_,
                                              *device_, {.replicas = replicas_});
    return value_named<Transport>(made->name()).value();
  };
  const Transport own = deck_.config.parallel.transport, own_wire = wire_of(own);
  transports_ = {{own, own_wire}};
  if (world_.size() == 1)
    return;
  bucket_elements_ = bucket_sizes(session::plan_of(job_of(deck_.config), world_, *device_));
  const Transport best = wire_of(Transport::automatic);
  if (best != own_wire)
    transports_.emplace_back(Transport::automatic, best);
  if (own_wire != Transport::mpi && best != Transport::mpi)
    transports_.emplace_back(Transport::mpi, Transport::mpi);
}

/// At most `most` micro-batches, each with the least recomputation that fits, or with the deck's
/// limit; the deck's own first.
std::vector<Candidate> Tuner::computes(std::size_t most) const {
  const auto& config = deck_.config;
  const std::int64_t leaves = session::batches_of(config, 1, world_.size()).leaves;
  std::vector<Candidate> all{{deck_.config, transports_.front().second}};
  for (const std::int64_t micro :
       nearest(micro_batches(config.batch, leaves > 0 ? leaves : world_.size()),
               deck_.config.batch.micro_sequences, most)) {
    if (request_.same_bits && micro != deck_.config.batch.micro_sequences)
      continue;
    const auto recompute = recompute_that_fits(micro);
    if (recompute &&
        (micro != deck_.config.batch.micro_sequences || *recompute != deck_.config.model.recompute))
      all.push_back({with(deck_.config, micro, *recompute), all.front().wire});
  }
  return all;
}

/// `best` with every transport and every size of buckets; its own first.
std::vector<Candidate> Tuner::links(const deck::JobConfig& best) const {
  std::vector<Candidate> all;
  for (const auto& [transport, wire] : transports_) {
    Candidate& one = all.emplace_back(Candidate{best, wire});
    one.config.parallel.transport = transport;
    Candidate other = one;
    other.config.parallel.bucket_boundaries.clear();
    for (const std::int64_t elements : bucket_elements_) {
      other.config.parallel.bucket_elements.value = elements;
      all.push_back(other);
    }
  }
  return all;
}

/// The deck's limit, or the least recomputation with which a rank fits into memory: a word, or a
/// limit in bytes. Nothing if none fits.
std::optional<model::RecomputeKey> Tuner::recompute_that_fits(std::int64_t micro) const {
  const auto choice_of = [&](const model::RecomputeKey& key) {
    return recompute_of(with(deck_.config, micro, key));
  };
  if (deck_.config.model.recompute.limit() != nullptr) {
    const bool fits =
        choice_of(deck_.config.model.recompute).fits &&
        bytes_of(with(deck_.config, micro, deck_.config.model.recompute)) <= result_.memory_bytes;
    return fits ? std::optional(deck_.config.model.recompute) : std::nullopt;
  }
  const deck::JobConfig any = with(deck_.config, micro, model::Recompute::block);
  const std::int64_t other =  // than activations
      std::max<std::int64_t>(0, bytes_of(any) - recompute_of(any).bytes);
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
  return choice.recompute.list() == nullptr ? choice.recompute : model::RecomputeKey(limit);
}

/// The candidates that are valid and fit into memory, without those that --same-bits excludes.
std::vector<Candidate> Tuner::possible(std::vector<Candidate> all) {
  const Additions additions{replicas_.size(0), deck_.config.parallel.reduction, replicas_.count()};
  std::vector<Candidate> found;
  for (Candidate& one : all) {
    one.changes_bits =
        changes_bits(additions, deck_.config, transports_.front().second, one.config, one.wire);
    if (request_.same_bits && one.changes_bits)
      continue;
    const deck::Deck deck = deck_of(one.config);
    std::vector<Diagnostic> findings;
    deck::check(deck, circumstances_, findings);
    if (!findings.empty())
      continue;
    one.memory_bytes = bytes_of(one.config);
    const Bytes* limit = one.config.model.recompute.limit();
    const std::int64_t most =
        limit != nullptr ? std::min(limit->count, result_.memory_bytes) : result_.memory_bytes;
    if (one.memory_bytes > most && !differences(deck_.config, one.config).empty())
      ++result_.too_large;
    else
      found.push_back(std::move(one));
  }
  return found;
}

/// The `keep` candidates with the shortest steps, the best first. Every round times all that are
/// left and drops the slower half.
std::vector<Candidate> Tuner::halve(std::vector<Candidate> field, std::size_t keep) const {
  const TimedSteps timed =
      steps_within(search_part * request_.seconds / searches, own_step_, 2 * field.size());
  do {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < field.size(); ++i) order.emplace_back(time(field[i], timed), i);
    std::ranges::sort(order);
    order.resize(std::min(order.size(), std::max(keep, (order.size() + 1) / 2)));
    std::vector<Candidate> left;
    for (const auto& [seconds, i] : order) left.push_back(std::move(field[i]));
    field = std::move(left);
  } while (field.size() > keep);
  return field;
}

/// Finds the settings to run: micro-batches with the deck's transport and buckets first, and then
/// transports and buckets with the best of them.
void Tuner::search() {
  const auto bytes = static_cast<double>(bytes_of(deck_.config));
  if (bytes > static_cast<double>(result_.memory_bytes))
    throw UserError(fmt::format(
        "a rank needs {} for this deck, but may use only {}. Use fewer ranks per host or a smaller "
        "batch.micro_sequences.",
        bytes_text(bytes), bytes_text(result_.memory_bytes)));
  find_transports();
  result_.runs.push_back({possible({{deck_.config, transports_.front().second}}).at(0), {}, {}});
  log_.info("measuring a step with the deck's values on {}", counted(world_.size(), "rank"));
  own_step_ = {time(result_.runs.front().candidate, shortest_steps),
               session::most_micro_steps(deck_.config, world_.size())};
  const std::size_t most = std::max(
      least_searched, sessions_within(search_part * request_.seconds, own_step_) / (2 * searches));
  const std::vector<Candidate> computes = this->computes(std::min(most_micro_batches, most));
  while (transports_.size() * (1 + bucket_elements_.size()) > most && !bucket_elements_.empty())
    bucket_elements_ = every_other(bucket_elements_);
  std::string micro_batches;
  for (const Candidate& one : computes)
    micro_batches +=
        fmt::format("{}{} (recompute: {})", micro_batches.empty() ? "" : ", ",
                    one.config.batch.micro_sequences, deck::yaml_text(one.config.model.recompute));
  log_.info("measuring micro-batches of {} sequences, then {} with {} sizes of buckets",
            micro_batches, counted(std::ssize(transports_), "transport"),
            1 + bucket_elements_.size());
  const auto add = [&](const std::vector<Candidate>& found) {
    for (const Candidate& one : found)
      if (std::ranges::none_of(result_.runs, [&](const Run& run) {
            return differences(run.candidate.config, one.config).empty();
          }))
        result_.runs.push_back({one, {}, {}});
  };
  const std::vector<Candidate> of_computes = possible(computes);
  const bool alone = world_.size() == 1;
  const auto fastest = halve(of_computes, alone ? computes_to_run + links_to_run : computes_to_run);
  result_.tried = of_computes.size();
  add(fastest);
  if (alone)
    return;
  const std::vector<Candidate> of_links = possible(links(fastest.front().config));
  result_.tried += of_links.size() - 1;  // the first was tried before
  add(halve(of_links, links_to_run));
}

/// The seconds of each of these runs by round. Each round begins with another one.
std::vector<std::vector<double>> Tuner::in_rounds(const std::vector<std::size_t>& runs,
                                                  const TuneBudget& budget) const {
  std::vector<std::vector<double>> seconds(runs.size());
  for (std::size_t round = 0; round < static_cast<std::size_t>(budget.rounds); ++round)
    for (std::size_t turn = 0; turn < runs.size(); ++turn) {
      const std::size_t one = (round + turn) % runs.size();
      seconds[one].push_back(time(result_.runs[runs[one]].candidate, budget.timed));
    }
  return seconds;
}

void Tuner::run() {
  std::vector<std::size_t> all(result_.runs.size());
  std::iota(all.begin(), all.end(), 0);
  if (all.size() == 1)
    return;
  const TuneBudget budget =
      budget_of(runs_part * request_.seconds, own_step_, all.size(), rounds_of_runs);
  log_.info("tried {} settings; running the best {} and the deck's values in {} rounds of {}",
            result_.tried, all.size() - 1, budget.rounds, counted(budget.timed.steps, "step"));
  const auto seconds = in_rounds(all, budget);
  for (const std::size_t i : all) {
    result_.runs[i].ratio = ratio_of(seconds[i], seconds.front());
    result_.runs[i].seconds = seconds[i];
  }
}

void Tuner::run_again() {
  std::vector<Trial> trials;
  trials.reserve(result_.runs.size());
  for (const Run& one : result_.runs)
    trials.push_back({one.ratio, one.candidate.changes_bits,
                      differences(deck_.config, one.candidate.config).size()});
  const std::size_t best = best_of(trials).value_or(0);
  if (best == 0)
    return;
  const TuneBudget budget = budget_of(again_part * request_.seconds, own_step_, 2, rounds_again);
  log_.info("running the best setting and the deck's values again: {} rounds of {}", budget.rounds,
            counted(budget.timed.steps, "step"));
  const auto seconds = in_rounds({0, best}, budget);
  result_.repeated = Repeated{.run = best,
                              .seconds = seconds[1],
                              .own_seconds = seconds[0],
                              .ratio = ratio_of(seconds[1], seconds[0])};
}

Tuning Tuner::tune() {
  session::expect_cpus(world_, "trireme tune", deck_.config.run.device,
                       device::count_cuda_devices());
  if (deck_.config.optimizer.outer.on())
    throw UserError(
        "trireme tune does not time local steps. Give optimizer.outer.local_steps=1, and use what "
        "it "
        "finds with local steps.");
  deck_.config.run.device = session::DeviceChoice::cpu;
  const int threads = session::choose_threads(deck_.config.run.threads, world_);
  omp_set_num_threads(threads);
  device_ = session::open_device(session::DeviceChoice::cpu, threads, world_);
  dtype_ = session::choose_dtype(deck_.config.run.precision, *device_, world_);
  deck_.config.run.precision =
      dtype_ == DType::bf16 ? session::Precision::bf16 : session::Precision::fp32;
  replicas_ = reduce::replicas(deck_.config.parallel, world_, false);
  result_.ranks = world_.size();
  result_.processor = device_->description();
  result_.hosts = static_cast<int>(comm::gather_placement(world_, threads).hosts().size());
  result_.memory_bytes = request_.memory_bytes > 0 ? request_.memory_bytes : free_bytes(world_);
  cache_.emplace(job_of(deck_.config), world_);
  data_.emplace(session::open_data(job_of(deck_.config), cache_->path(), world_, log_));
  (void)session::decided(job_of(deck_.config), world_, *device_, dtype_);  // throws if nothing fits
  search();
  run();
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
