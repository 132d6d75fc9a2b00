// SPDX-License-Identifier: Apache-2.0
#include "session/rank_memory.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "base/text.hpp"
#include "device/cuda/handle.hpp"

#include "model/layers.hpp"
#include "nn/activations.hpp"
#include "ops/attention.hpp"

#include "reduce/leaves.hpp"

#include "batches/batches.hpp"

#include "optim/local_steps.hpp"
#include "optim/matrices.hpp"
#include "optim/rule.hpp"
#include "session/machine.hpp"
#include "session/saver.hpp"

namespace trireme::session {

layout::Plan plan_of(const Job& job, comm::World& world, const device::Device& device) {
  const layout::ReplicaRanks replicas =
      reduce::replicas(job.parallel, world, job.optimizer.outer.on());
  return plan_of(job.parallel, job.shape, replicas, reduce::wire_of(world, device),
                 replicas.of(world.rank()));
}

layout::Plan plan_of(const reduce::ParallelConfig& config,
                     const model::GptShape& shape,
                     const layout::ReplicaRanks& replicas,
                     reduce::Wire wire,
                     int replica) {
  const auto parameters = model::parameter_table(shape);
  return {parameters, reduce::layout_options(config, parameters, replicas, wire, replica)};
}

batches::Batches batches_of(const Sections& config, std::int64_t sequences, int ranks) {
  return {sequences, config.batch.micro_sequences, ranks,
          config.parallel.reduction == comm::Reduction::tree
              ? config.parallel.logical_shards.value_or(0)
              : 0,
          config.optimizer.outer.local_steps};
}

std::int64_t most_micro_steps(const Sections& config, int ranks) {
  return batches_of(config, config.batch.sizes().largest(), ranks).micro_steps();
}

layout::BudgetOptions budget_options(const Sections& config,
                                     const layout::Plan& plan,
                                     const RankKind& kind) {
  layout::BudgetOptions options{
      .parameter_dtype = kind.dtype,
      .shard = config.parallel.shard,
      .wire_dtype =
          config.parallel.encodes() ? DType::f32 : reduce::dtype_of(config.parallel.gradient_dtype),
      .partial_sums = config.parallel.compresses()
                          ? 0
                          : reduce::num_waiting_sums(
                                reduce::most_leaves_of_a_rank(config.parallel, plan.all_ranks())),
      .snapshot = holds_snapshot(config.checkpoint, kind.device),
      .copies = keeps_memory_copies(config, plan.all_ranks()) ? MemoryCopies::number : 0};
  options.gathers = config.parallel.gather_options();
  options.ordered = config.parallel.reduction != comm::Reduction::sum;
  if (config.optimizer.outer.on()) {
    options.local_steps = config.optimizer.outer.local_steps;
    options.averaged_bytes = optim::averaged_bytes(config.optimizer.outer, plan);
    options.ordered = false;
  }
  if (config.parallel.reduces_micro_steps())
    options.micro_step_reductions = most_micro_steps(config, plan.all_ranks());
  options.sums_compressed = config.parallel.gradient_rank.given();
  if (config.parallel.compresses_on(plan.all_ranks()))
    for (const layout::Bucket& bucket : plan.buckets())
      options.compressed_bytes.push_back(reduce::compressed_bytes(config.parallel, plan, bucket));
  return options;
}

reduce::CompressionBytes compression_bytes(const Sections& config, const layout::Plan& plan) {
  reduce::CompressionBytes all = reduce::compression_bytes(config.parallel, plan);
  const reduce::CompressionBytes outer = optim::outer_memory(config.optimizer.outer, plan);
  all.held += outer.held;
  all.carried += outer.carried;
  return all;
}

layout::Budget budget_of(const Sections& config, const layout::Plan& plan, const RankKind& kind) {
  layout::Budget budget = layout::budget_of(plan, optim::state_slots(config.optimizer),
                                            budget_options(config, plan, kind));
  if (const auto work = optim::matrix_work(plan, config.optimizer, config.parallel.sharded())) {
    budget.matrix_bytes = work->bytes();
    budget.matrix_wire_bytes = config.optimizer.outer.local_steps * work->sent_bytes;
  }
  const reduce::CompressionBytes compression = compression_bytes(config, plan);
  budget.gradient_bytes += compression.held;
  if (budget.snapshot_bytes > 0)
    budget.snapshot_bytes += compression.carried;
  if (budget.copies_bytes > 0)
    budget.copies_bytes += MemoryCopies::number * compression.carried;
  return budget;
}

namespace {

/// Memory of NCCL's communicators: inside a replica, and for sums across replicas.
std::size_t term_bytes(const Sections& config, const layout::Plan& plan) {
  const comm::Options options = communicator_options(config, plan.replica_ranks());
  return comm::bf16_term_bytes(options, plan.ranks()) +
         (options.sums_inside ? 0 : comm::bf16_term_bytes(options, plan.replicas()));
}

}  // namespace

std::int64_t workspace_bytes(const RankNeeds& rank) {
  if (rank.kind.device == device::Kind::cpu)
    return 0;
  constexpr std::size_t large = std::size_t{80} << 30U;  // memory of the GPU that the plan assumes
  return static_cast<std::int64_t>(
      std::max(device::cuda::workspace_bytes, rank.config.gpu.product_workspace_bytes(large)) +
      ops::Attention::gpu_scratch_bytes(
          model::attention_shape(rank.shape, 0, rank.kind.dtype, rank.config.batch.micro_sequences),
          rank.config.gpu.attention) +
      term_bytes(rank.config, rank.plan));
}

std::int64_t num_recordings(std::int64_t micro_steps) {
  return micro_steps % 2 == 0 ? std::min<std::int64_t>(micro_steps, 4)
                              : 2 * std::min<std::int64_t>(micro_steps, 3);
}

std::int64_t kernels_of_a_micro_step(const model::GptShape& shape,
                                     DType dtype,
                                     std::int64_t micro_sequences) {
  constexpr std::int64_t per_block = 40, fixed = 40, per_chunk = 4, per_part = 2;
  const std::int64_t rows = micro_sequences * shape.context;
  const nn::ActivationPlan plan =
      model::activation_plan(shape, dtype, micro_sequences, device::Kind::cuda);
  const std::int64_t chunk = plan.head_rows(), part = plan.loss_rows();
  return fixed + per_block * shape.layers +
         divided_up(rows, chunk) * (per_chunk + per_part * divided_up(chunk, part));
}

std::int64_t graph_bytes(const RankNeeds& rank) {
  constexpr std::int64_t bytes_per_kernel = 10 << 10;
  const Sections& config = rank.config;
  if (rank.kind.device == device::Kind::cpu || !config.gpu.graphs.value_or(config.memory.pool))
    return 0;
  // The recomputation may not be decided yet, and does not matter here.
  model::GptShape any = rank.shape;
  any.recompute = model::Recompute::none;
  return bytes_per_kernel *
         num_recordings(most_micro_steps(config, rank.plan.all_ranks()) /
                        config.optimizer.outer.local_steps) *
         kernels_of_a_micro_step(any, rank.kind.dtype, config.batch.micro_sequences);
}

model::RecomputeChoice decide_recompute(const RankNeeds& rank) {
  const auto& [config, shape, plan, kind] = rank;
  const layout::Budget budget = budget_of(config, plan, kind);
  const std::int64_t others = budget.held_bytes() -
                              (kind.device == device::Kind::cuda ? budget.host_bytes() : 0) +
                              workspace_bytes(rank) + graph_bytes(rank);
  const model::ActivationSizes sizes{kind.dtype, config.batch.micro_sequences, kind.device};
  model::RecomputeChoice choice;
  if (const Bytes* limit = shape.recompute.limit()) {
    choice = model::choose_recompute(shape, sizes, limit->count - others);
  } else {
    const nn::ActivationPlan kept =
        model::activation_plan(shape, sizes.dtype, sizes.micro_sequences, sizes.kind);
    choice = {shape.recompute, static_cast<std::int64_t>(kept.bytes() + kept.scratch().bytes()),
              true};
  }
  choice.bytes += others;
  return choice;
}

std::string too_little(const model::GptShape& shape,
                       const model::RecomputeChoice& least,
                       DType dtype) {
  return fmt::format("{} is too little: in {} a rank needs at least {} bytes ({}), with {}",
                     shape.recompute.limit()->count, name(dtype), least.bytes,
                     bytes_text(least.bytes), model::recompute_text(least.recompute));
}

model::GptShape decided_shape(const Job& job, const layout::Plan& plan, const RankKind& kind) {
  constexpr const char* key = "model.recompute";
  model::GptShape shape = job.shape;
  if (shape.recompute.limit() == nullptr)
    return shape;
  const model::RecomputeChoice choice = decide_recompute({job, job.shape, plan, kind});
  if (!choice.fits)
    throw UserError({Diagnostic{{}, key, too_little(job.shape, choice, kind.dtype)}});
  shape.recompute = choice.recompute;
  return shape;
}

Job decided(Job job, comm::World& world, const device::Device& device, DType dtype) {
  if (job.shape.recompute.limit() != nullptr)
    job.shape = decided_shape(job, plan_of(job, world, device), {dtype, device.kind()});
  return job;
}

}  // namespace trireme::session
