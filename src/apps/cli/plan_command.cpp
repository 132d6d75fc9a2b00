// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_command.hpp"

#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/output_file.hpp"

#include "train/span_sample.hpp"

#include "cli/check_surroundings.hpp"
#include "plan/data_text.hpp"
#include "plan/deck_plan.hpp"
#include "plan/machine_file.hpp"
#include "plan/plan_text.hpp"
#include "plan/scaling.hpp"

namespace trireme::cli {
namespace {

/// A note about each size of the batch with which some ranks idle; else "".
std::string batch_note(const deck::JobConfig& config, int ranks) {
  std::string notes;
  const batches::BatchSizes sizes = config.batch.sizes();
  for (const batches::BatchSizes::Part& part : sizes.parts())
    if (const std::string note =
            batches::uneven_text(trireme::session::batches_of(config, part.sequences, ranks));
        !note.empty())
      notes += fmt::format("\nnote: {}\n", note);
  return notes;
}

/// Which spans the record of a run on this number of ranks contains.
std::string record_note(const deck::JobConfig& config, const layout::Plan& plan) {
  if (!config.record.spans)
    return {};
  const auto spans = trireme::train::spans_of_a_step(
      config.parallel, trireme::session::most_micro_steps(config, plan.all_ranks()),
      static_cast<std::int64_t>(plan.buckets().size()),
      config.optimizer.kind == trireme::optim::Kind::muon);
  return fmt::format(
      "\nrun.h5: {}; statistics over all ranks every {} steps\n",
      trireme::train::sample_of(config.record, plan.all_ranks(), config.run.steps, spans).text(),
      trireme::train::collect_every_steps);
}

}  // namespace

std::string plan_command(const std::string& deck_path,
                         const std::vector<std::string>& overrides,
                         const deck::Circumstances& circumstances,
                         const PlanOutput& output) {
  const deck::Deck deck = plan::parse_for_plan(deck_path, overrides, circumstances);
  if (circumstances.hosts > circumstances.ranks)
    throw UserError(fmt::format("--hosts {}: {} {} cannot use more hosts than ranks",
                                circumstances.hosts, circumstances.ranks,
                                circumstances.ranks == 1 ? "rank" : "ranks"));
  const plan::DeckPlan plan =
      plan::plan_with_choices(deck, circumstances.ranks, circumstances.hosts);
  plan::expect_room(deck, plan);
  std::optional<plan::Scaling> scaling;
  if (!output.machine_path.empty())
    scaling = plan::scaling_of(deck, plan::read_machine(output.machine_path), output.scaling_ranks,
                               circumstances.hosts);
  const std::string json = plan::plan_json(plan, scaling ? plan::scaling_json(*scaling) : Json());
  if (output.json_path == "-")
    return json;
  if (!output.json_path.empty())
    files::write_new_file(output.json_path, json);
  const std::string recompute = plan::recompute_text(deck, plan);
  return plan::plan_text(plan) + "\n" +
         memory_note(deck, plan,
                     (circumstances.ranks + circumstances.hosts - 1) / circumstances.hosts) +
         (recompute.empty() ? "" : "\n" + recompute) +
         (output.schedule ? "\n" + plan::schedule_text(plan.schedule) : "") + "\n" +
         plan::data_text(deck.config, deck.shape().context) + record_note(deck.config, plan.plan) +
         batch_note(deck.config, circumstances.ranks) +
         (scaling ? "\n" + plan::scaling_text(*scaling) : "");
}

}  // namespace trireme::cli
