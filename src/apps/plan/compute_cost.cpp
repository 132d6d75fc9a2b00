// SPDX-License-Identifier: Apache-2.0
#include "plan/compute_cost.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "layout/ownership.hpp"

#include "model/layers.hpp"
#include "model/recompute_choice.hpp"

namespace trireme::plan {
namespace {

constexpr double forward_part = 1.0 / 3;

/// By parameter of the plan: share of a micro-step after which its gradient is complete.
std::vector<double> ready_shares(const ComputeCost& cost, const layout::Plan& plan) {
  std::vector<double> shares(plan.parameters().size(), 1.0);
  std::map<std::string, double> measured;
  for (const ReadyAt& ready : cost.row->ready) measured[ready.parameter] = ready.share;
  if (cost.same_work && !measured.empty()) {
    for (std::size_t p = 0; p < shares.size(); ++p)
      if (const auto found = measured.find(plan.parameters()[p].name); found != measured.end())
        shares[p] = found->second;
    return shares;
  }
  // Backward goes through parameters in reverse registration order; one that has a bucket of its
  // own is complete at the very end.
  const auto all = static_cast<double>(plan.parameter_elements());
  double before = 0;
  for (std::size_t p = shares.size(); p-- > 0;) {
    before += static_cast<double>(plan.parameters()[p].elements());
    if (!plan.parameters()[p].own_bucket)
      shares[p] = forward_part + (1 - forward_part) * before / all;
  }
  return shares;
}

/// By layout::readings(plan): share of a micro-step; for a layer no earlier than for the next one.
std::vector<double> reading_shares(const layout::Plan& plan, const std::vector<double>& shares) {
  std::map<int, double> layers;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    double& last = layers[plan.parameters()[p].group];
    last = std::max(last, shares[p]);
  }
  std::vector<double> complete;
  complete.reserve(layers.size());
  for (const auto& [group, share] : layers) complete.push_back(std::max(share, forward_part));
  for (std::size_t layer = complete.size() - 1; layer-- > 0;)
    complete[layer] = std::max(complete[layer], complete[layer + 1]);
  std::vector<double> reads;
  reads.reserve(2 * complete.size());
  for (const double share : complete)
    reads.push_back(forward_part * (1 - (share - forward_part) / (1 - forward_part)));
  for (std::size_t layer = complete.size(); layer-- > 2;) reads.push_back(complete[layer]);
  return reads;
}

}  // namespace

std::string model_text(const model::GptShape& shape) {
  return fmt::format("{} parameters, {} layers, context {}, {:.0f} FLOP per token, recompute {}",
                     layout::total_elements(model::parameter_table(shape)), shape.layers,
                     shape.context, model::flops_per_token(shape),
                     model::recompute_text(shape.recompute));
}

ComputeCost find_compute(const Machine& machine, const Work& work) {
  ComputeCost best;
  const auto same = [&](const Compute& row) {
    return row.model == work.model && row.micro_sequences == work.micro_sequences &&
           (work.threads == 0 || row.threads == work.threads);
  };
  const auto order = [&](const Compute& row) {
    return std::tuple(
        !same(row), distance(row.micro_step_flops, work.micro_step_flops),
        distance(static_cast<double>(row.ranks_on_host), static_cast<double>(work.ranks_on_host)));
  };
  for (const Compute& row : machine.compute)
    if (row.precision == work.precision && (best.row == nullptr || order(row) < order(*best.row)))
      best.row = &row;
  if (best.row == nullptr)
    return best;
  best.same_work = same(*best.row);
  best.same_ranks = best.row->ranks_on_host == work.ranks_on_host;
  const std::int64_t threads = work.threads == 0 ? best.row->threads : work.threads;
  best.crowded = crowding(work.ranks_on_host * threads, machine.cpus) /
                 crowding(best.row->ranks_on_host * best.row->threads, machine.cpus);
  best.slower = best.crowded * work.micro_step_flops / best.row->micro_step_flops *
                static_cast<double>(best.row->threads) / static_cast<double>(threads);
  return best;
}

void fill_compute(StepModel& model,
                  const ComputeCost& cost,
                  const layout::Plan& plan,
                  bool sharded,
                  double matrices_part) {
  TRIREME_EXPECT(cost.row != nullptr, "a step of which nothing was measured");
  const Compute& row = *cost.row;
  model.micro_step_s = row.micro_step_s * cost.slower;
  model.reducing_micro_step_s = row.last_micro_step_s * cost.slower;
  model.rest_s = row.rest_s * cost.crowded;
  model.matrices_s = row.matrices_s * cost.slower * matrices_part;
  model.matrices_before = at(layout::first_updated_with_matrices(plan));
  model.waiting_share = row.waiting_share;
  const std::vector<double> shares = ready_shares(cost, plan);
  model.plan = &plan;
  model.reads = reading_shares(plan, shares);
  model.buckets.assign(plan.buckets().size(), {});
  double before = forward_part;  // the end of the last bucket that is not for itself
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    const layout::Bucket& bucket = plan.buckets()[b];
    BucketCost& costs = model.buckets[b];
    costs.ready = 0;
    for (const ParameterIndex parameter : bucket.parameters)
      costs.ready = std::max(costs.ready, shares[at(parameter)]);
    costs.written = std::min(plan.is_dedicated(bucket) ? forward_part : before, costs.ready);
    if (!plan.is_dedicated(bucket))
      before = costs.ready;
    const auto shard = static_cast<double>(bucket.shard_elements);
    const double updated = sharded ? shard : static_cast<double>(bucket.elements);
    costs.norm_s = cost.crowded * row.norm_s_per_element * shard;
    costs.update_s = cost.crowded * row.update_s_per_element * updated;
  }
}

}  // namespace trireme::plan
