// SPDX-License-Identifier: Apache-2.0
#include "bench/verify.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "base/text.hpp"

#include "comm/control/agreement.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/temporary_directory.hpp"
#include "comm/control/together.hpp"
#include "reduce/layout_options.hpp"

#include "session/machine.hpp"
#include "session/rank_memory.hpp"
#include "session/saver.hpp"

#include "bench/verify_checks.hpp"

namespace trireme::bench {
namespace {

/// The job with one combination, without records and evaluation.
Job with(const Combination& combination, Job job, std::int64_t steps) {
  job.run.steps = std::max(job.run.steps, steps);
  job.run.device = session::DeviceChoice::cpu;
  job.parallel = static_cast<const reduce::ParallelConfig&>(combination);
  job.memory = {.pool = combination.pool};
  if (!combination.pool)
    job.gpu.graphs.value = false;
  job.record = {.spans = false};
  job.evaluate = {};
  return job;
}

class Verifier {
 public:
  Verifier(const Job& job,
           const batches::Split& data,
           comm::World& world,
           Log& log,
           const VerifyRequest& request)
      : job_(job), data_(data), world_(world), log_(log), request_(request) {
    for (std::int64_t step = 1; step <= request.steps; ++step)
      if (session::batches_of(job, job.batch.sizes().at(step), world.size()).micro_steps() > 1)
        several_micro_steps_ = true;
  }

  Verified run();

 private:
  /// The difference, or "". `layout`: of the buckets of the first one of a group, if not empty.
  std::string run_one(const Combination& combination, std::string& layout);
  std::string train(Session& session, const Combination& combination);
  std::string check_last(Session& session, bool first);
  /// Copies the state to memory, writes it without one of the ranks, and reads it on the others.
  std::string check_copies(Session& session);

  const Job& job_;
  const batches::Split& data_;
  comm::World& world_;
  Log& log_;
  const VerifyRequest& request_;
  /// The reference of combinations that must have the same bits.
  struct Plain {
    std::string text;
    Reference reference;
  };
  Plain& plain() { return plain_[adds_sums_ ? 1 : 0]; }

  bool several_micro_steps_ = false;
  bool adds_sums_ = false;  // whether the current combination adds sums of several micro-steps
  std::array<Plain, 2> plain_;
  int num_run_ = 0, num_copied_ = 0;
};

Verified Verifier::run() {
  const auto all = all_combinations(job_, several_micro_steps_, world_.size());
  const double began = device::steady_seconds();
  log_.info("{} combinations of {}, {}", all.size(), counted(request_.steps, "step"),
            counted(world_.size(), "rank"));
  for (std::size_t one = 0; one < all.size();) {
    const std::size_t first = one;
    const double group_began = device::steady_seconds();
    std::string layout;  // shard: parameters has other buckets
    for (; one < all.size() && all[one].buckets == all[first].buckets &&
           all[one].padding == all[first].padding;
         ++one)
      if (const std::string difference = run_one(all[one], layout); !difference.empty())
        return {
            num_run_,
            fmt::format("{}\n  under     {}{}", difference, all[one].text(),
                        plain().text == all[one].text() ? "" : "\n  but not   " + plain().text)};
    log_.info("  {:<64} {} settings equal ({})", layout, one - first,
              duration_text(device::steady_seconds() - group_began));
  }
  log_.info(
      "{} combinations gave the same bits: loss, gradient norm and all parameters after each of {} "
      "steps; every element was reduced exactly once, padding stayed zero, and no uninitialized "
      "memory was read ({})",
      num_run_, request_.steps, duration_text(device::steady_seconds() - began));
  if (num_copied_ > 0)
    log_.info("the copies in memory of {} of them, read by one rank less, had these bits too",
              num_copied_);
  return {num_run_, {}};
}

std::string Verifier::run_one(const Combination& combination, std::string& layout) try {
  const Job job = with(combination, job_, request_.steps);
  adds_sums_ = several_micro_steps_ && job.parallel.reduces_micro_steps();
  if (plain().text.empty())
    plain().text = combination.text();
  Session session(job, data_, world_, true);
  if (layout.empty())
    layout = fmt::format("{:<20} {:>4} of up to {:>9} elements, padding {}", combination.buckets,
                         session.plan.buckets().size(), session.plan.options().bucket_elements,
                         word(combination.padding));
  ++num_run_;
  if (std::string found = agree(world_, check_reduced_once(session)); !found.empty())
    return "before the first step, " + found;
  poison_foreign_parameters(session);
  session::Saver(session, world_).initialize();
  std::string found = train(session, combination);
  if (found.empty() && combination.all_on() && world_.size() > 1 &&
      world_.local_size() == world_.size())
    found = check_copies(session);
  // A rank must not free memory that a peer still reads.
  world_.barrier();
  return found;
} catch (...) {
  log_.error("while verifying {}", combination.text());
  throw;
}

std::string Verifier::train(Session& session, const Combination& combination) {
  Reference& reference = plain().reference;
  const bool first = reference.empty();
  const auto padding = owned_padding(session);
  for (std::int64_t step = 1; step <= request_.steps; ++step) {
    poison_gradients(session);
    const bool held = step % 2 == 1;
    session.engine.hold_collectives(held);
    StepOutcome outcome;
    try {
      outcome = session.step(step, [] { return session::Requests{}; });
    } catch (const UserError& not_finite) {  // the same on all ranks
      const std::string& text = not_finite.findings().front().text;
      if (first)
        throw UserError(
            fmt::format("in step {}, {}. There is nothing to compare with. If a run of "
                        "this deck does not diverge, memory was read before it was "
                        "written: please report it.",
                        step, text));
      return fmt::format("in step {}, {}; possibly memory was read before it was written", step,
                         text);
    }
    if (request_.meddle)
      request_.meddle(session, combination, step);
    std::optional<Finding> mine = check_zero(padding);
    if (first)
      reference.keep_step(session, outcome);
    else if (!mine)
      mine = reference.compare_step(session, outcome, step);
    if (std::string found = agree(world_, mine); !found.empty())
      return fmt::format("after step {}, {}", step, found);
    if (held && combination.overlap_parameters && !job_.optimizer.outer.on())
      poison_foreign_parameters(session);  // none of the step's gathers has started
  }
  return check_last(session, first);
}

std::string Verifier::check_last(Session& session, bool first) {
  Reference& reference = plain().reference;
  session.engine.wait_for_parameters();
  std::optional<Finding> mine = check_gathered_padding(session);
  if (first) {
    reference.keep_gathered(session);
    const std::uint64_t hash = reference.hash(session.optimizer.slots());
    if (!comm::differing(world_, {&hash, 1}).empty())
      mine = Finding{0, "parameters differ between ranks, although each rank computed all of them"};
  } else if (auto other = reference.compare_gathered(session); !mine) {
    mine = std::move(other);
  }
  std::string found = agree(world_, mine);
  return found.empty() ? found : "after the last step's gathers, " + found;
}

std::string Verifier::check_copies(Session& session) {
  ++num_copied_;
  session::MemoryCopies copies;
  copies.choose_partners(world_);
  session::Saver(session, world_).copy_to(copies, request_.steps, {});
  const comm::TemporaryDirectory directory(world_);
  const bool lost = world_.rank() == num_copied_ % world_.size();
  comm::MpiWorld rest(dynamic_cast<comm::MpiWorld&>(world_), lost ? 1 : 0);
  std::optional<Finding> mine;
  if (!lost)
    try {
      Log quiet(false, "");
      session::Saver(session, rest).write_from(copies, directory.path(), quiet);
      mine = plain().reference.compare_checkpoint(
          record::newest_checkpoint(directory.path()).value().directory, session, rest);
    } catch (const comm::LostRank&) {
      throw;
    } catch (const EnvironmentError& failed) {
      mine = Finding{0, failed.what()};
    } catch (const UserError& damaged) {
      mine = Finding{0, damaged.findings().front().text};
    }
  std::string found = agree(world_, mine);
  return found.empty() ? found : "in the copies in memory, " + found;
}

/// The smallest number of replicas above 1 with several ranks each; 1 if there is none.
int fewest_replicas(int ranks) {
  for (int replicas = 2; replicas < ranks; ++replicas)
    if (ranks % replicas == 0)
      return replicas;
  return 1;
}

bool parameters_aligned(const Combination& one) {
  return one.shard == layout::Shard::parameters && one.padding == layout::Padding::aligned;
}
bool overlaps_nothing(const Combination& one) {
  return !one.overlap_gradients && !one.overlap_parameters && !one.cached_shards;
}
bool overlaps_all(const Combination& one) {
  return one.overlap_gradients && one.overlap_parameters && one.cached_shards;
}

/// Adds the combinations for which `chosen` once more, changed.
void add_variants(std::vector<Combination>& all, const auto& chosen, const auto& change) {
  for (std::size_t i = 0, before = all.size(); i < before; ++i)
    if (chosen(all[i]))
      change(all.emplace_back(all[i]));
}

}  // namespace

std::string Combination::text() const {
  return fmt::format(
      "parallel.bucket_elements={} parallel.padding={} parallel.replicate={} parallel.shard={} "
      "parallel.reduce_every={} parallel.reshard_after_forward={} parallel.prefetch={} "
      "parallel.overlap_gradients={} parallel.overlap_parameters={} parallel.cached_shards={} "
      "memory.pool={}",
      elements, word(padding), replicate.number.value_or(1), word(shard), word(reduce_every),
      reshard_after_forward, prefetch, overlap_gradients, overlap_parameters, cached_shards, pool);
}

std::vector<Combination> all_combinations(const Job& job, bool several, int ranks) {
  const auto table = model::parameter_table(job.shape);
  const auto num_buckets = [&](std::int64_t elements) {
    return layout::Plan(table, {1, elements, layout::Padding::aligned}).buckets().size();
  };
  const std::int64_t all_elements = layout::total_elements(table);
  const std::int64_t own_elements =
      reduce::bucket_elements(job.parallel, table, 1, reduce::Wire::inside_a_host);
  const std::size_t own = num_buckets(own_elements);
  const bool own_are_several = own > num_buckets(all_elements) && own < table.size();

  const std::int64_t several_elements = own_are_several ? own_elements : (all_elements + 3) / 4;
  const std::pair<const char*, std::int64_t> sizes[] = {{"one bucket", all_elements},
                                                        {"several buckets", several_elements},
                                                        {"one per parameter", 1}};
  const bool compresses = job.parallel.compresses(), local = job.optimizer.outer.on();
  // Local steps need the deck's replicas, and so shards: of one rank each (verify()).
  const auto possible = [&](layout::Shard shard) {
    if (shard == layout::Shard::none)
      return !local || compresses;
    return !compresses && (!layout::shards_gradients(shard) || job.parallel.can_shard_gradients());
  };
  reduce::ParallelConfig base = job.parallel;
  if (!local)
    base.replicate.number = 1;
  base.reshard_after_forward = true;
  if (base.reduction == comm::Reduction::sum)
    base.reduction = comm::Reduction::ordered;
  const bool reduces_each = base.reduce_every == reduce::ReduceEvery::micro_step;
  std::vector<Combination> all;
  const int replicas = local ? 1 : fewest_replicas(ranks);
  for (const auto& [name, elements] : sizes)
    for (const auto& [padding, word] : EnumNames<layout::Padding>::table) {
      if ((job.parallel.encodes() || job.optimizer.outer.encodes()) &&
          padding != layout::Padding::aligned)
        continue;
      std::vector<Combination> group;
      for (const auto& [shard, shard_word] : EnumNames<layout::Shard>::table)
        for (unsigned bits = 0; bits < 16 && possible(shard); ++bits) {
          const auto on = [&](unsigned bit) { return (bits >> bit & 1U) != 0; };
          const bool gradients = layout::shards_gradients(shard);
          if (shard == layout::Shard::parameters && padding != layout::Padding::aligned &&
              bits != 15)
            continue;
          if (gradients && several && !reduces_each && all.empty() &&
              group.size() == (local ? 16 : 32))
            group.emplace_back(group.front()).reduce_every = reduce::ReduceEvery::micro_step;
          Combination& one = group.emplace_back(Combination{base, name, elements, on(3)});
          one.padding = padding;
          one.shard = shard;
          one.overlap_gradients = on(0);
          one.overlap_parameters = on(1);
          one.cached_shards = on(2);
          if (gradients)
            one.reduce_every = reduce::ReduceEvery::automatic;
          if (base.bucket_boundaries.empty() || elements != several_elements) {
            one.bucket_elements.value = elements;
            one.bucket_boundaries.clear();
          }
        }
      add_variants(group, parameters_aligned,
                   [](Combination& one) { one.reshard_after_forward = false; });
      if (replicas > 1)
        add_variants(
            group,
            [](const Combination& one) {
              return one.sharded() && (one.pool ? overlaps_all(one) : overlaps_nothing(one));
            },
            [&](Combination& one) { one.replicate.number = replicas; });
      for (const std::int64_t prefetch : {1, 2, 3})
        if (prefetch != base.prefetch)
          add_variants(
              group,
              [&](const Combination& one) {
                return parameters_aligned(one) && overlaps_all(one) && one.pool &&
                       one.replicate == base.replicate && one.prefetch == base.prefetch;
              },
              [&](Combination& one) { one.prefetch = prefetch; });
      all.insert(all.end(), group.begin(), group.end());
    }
  return all;
}

Verified verify(const Job& job, comm::World& world, Log& log, const VerifyRequest& request) {
  if (job.run.device == session::DeviceChoice::cuda)
    throw UserError("trireme verify compares bits on the CPU. Use run.device: cpu.");
  if (job.optimizer.outer.on() && reduce::replicas(job.parallel, world, true).count() !=
                                      world.size())  // the first one must hold everything
    throw UserError(
        fmt::format("trireme verify compares local steps of replicas with one rank each. Use "
                    "parallel.replicate={}.",
                    world.size()));
  omp_set_num_threads(session::choose_threads(job.run.threads, world));
  const session::TemporaryCache cache(job, world);
  const batches::Split data = session::open_data(job, cache.path(), world, log);
  // The deck's own choice for all combinations, which differ in what they hold.
  const auto device = session::open_device(session::DeviceChoice::cpu, 1, world);
  const Job one = session::decided(job, world, *device,
                                   session::choose_dtype(job.run.precision, *device, world));
  return Verifier(one, data, world, log, request).run();
}

}  // namespace trireme::bench
