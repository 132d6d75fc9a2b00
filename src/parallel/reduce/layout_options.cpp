// SPDX-License-Identifier: Apache-2.0
#include "reduce/layout_options.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "comm/transport/transports.hpp"

namespace trireme::reduce {
namespace {

constexpr std::int64_t least_shard_on_gpus = 1'000'000;
/// Minimum number of buckets of a model, if buckets share slots, of which a rank holds three, and
/// between hosts, for overlap. Source: docs/results/bucket_count.csv.
constexpr std::int64_t buckets_of_a_model = 16;

std::int64_t least_shard(const ParallelConfig& config, Wire wire) {
  if (wire == Wire::gpus)
    return least_shard_on_gpus;
  return static_cast<std::int64_t>(comm::message_bytes({}, wire == Wire::inside_a_host) /
                                   size_bytes(dtype_of(config.gradient_dtype)));
}

/// The largest bucket that is chosen for the size of messages, if buckets share slots. Beyond it
/// one more rank adds more memory to slots than it saves in shards (docs/design/foundation.md).
std::int64_t most_for_messages(std::int64_t all_elements, std::int64_t least_shard) {
  return static_cast<std::int64_t>(
      std::sqrt(static_cast<double>(all_elements) * static_cast<double>(least_shard)));
}

/// Elements of the largest layer, except the first and the last, which have the embeddings.
std::int64_t largest_inner_layer(const std::vector<layout::Parameter>& parameters) {
  std::int64_t largest = 0, sum = 0;
  const int first = parameters.front().group, last = parameters.back().group;
  int group = first;
  for (const layout::Parameter& parameter : parameters) {
    sum = parameter.group == group ? sum : 0;
    group = parameter.group;
    if (group == first || group == last)
      continue;
    sum += parameter.elements();
    largest = std::max(largest, sum);
  }
  return largest;
}

std::int64_t replicas_on(const ParallelConfig& config, int ranks, int hosts) {
  if (config.replicate.number)
    return *config.replicate.number;
  switch (config.replicate.keyword) {
    case Replicate::none:
      return 1;
    case Replicate::node:
      return hosts;
    case Replicate::rank:
      return ranks;
  }
  TRIREME_EXPECT(false, "replicate: {}", static_cast<int>(config.replicate.keyword));
}

/// The most elements to which padding of unequal replicas may extend a bucket.
constexpr std::int64_t most_padding = 1'000'000;

/// Why a run cannot have these replicas; empty if it can.
std::string problem_of(const layout::ReplicaRanks& replicas, bool local_steps) {
  if (!local_steps && !replicas.equal())
    return "every replica needs the same number of ranks";
  const std::int64_t granule = layout::granule(layout::Padding::aligned, replicas.parts());
  if (!replicas.equal() && granule > most_padding)
    return fmt::format(
        "these numbers of ranks would pad every bucket to a multiple of {} elements; use "
        "hosts with fewer different numbers of ranks, or replicate: rank",
        granule);
  return {};
}

}  // namespace

Wire wire_of(const comm::World& world, const device::Device& device) {
  if (device.kind() == device::Kind::cuda)
    return Wire::gpus;
  return world.local_size() == world.size() ? Wire::inside_a_host : Wire::between_hosts;
}

std::int64_t bucket_elements(const ParallelConfig& config,
                             const std::vector<layout::Parameter>& parameters,
                             int sharers,
                             Wire wire) {
  if (config.bucket_elements.given())
    return *config.bucket_elements.value;
  const std::int64_t all = layout::total_elements(parameters);
  const std::int64_t message = least_shard(config, wire);
  std::int64_t usual = layout::Options{}.bucket_elements, for_messages = sharers * message;
  if (layout::shards_gradients(config.shard))
    for_messages = std::min(for_messages, most_for_messages(all, message));
  if (layout::shards_gradients(config.shard) || wire == Wire::between_hosts)
    usual = std::min(usual, all / buckets_of_a_model);
  if (config.shard == layout::Shard::parameters)
    usual = std::max(usual, largest_inner_layer(parameters));
  return std::min(std::max(usual, for_messages), all);
}

std::string replicas_problem(const ParallelConfig& config, int ranks, int hosts, bool local_steps) {
  const std::int64_t count = replicas_on(config, ranks, hosts);
  if (count == 1)
    return {};
  std::string problem = count > ranks ? "every replica needs a rank"
                                      : problem_of({ranks, static_cast<int>(count)}, local_steps);
  if (problem.empty() && count == ranks && !local_steps)
    problem = "replicas of one rank have no shards; use fewer replicas, or parallel.shard: none";
  if (problem.empty())
    return {};
  return config.replicate.number
             ? fmt::format("{} replicas on {}, but {}", count, counted(ranks, "rank"), problem)
             : fmt::format("{}: {} on {}, but {}", word(config.replicate.keyword),
                           counted(ranks, "rank"), counted(hosts, "host"), problem);
}

layout::ReplicaRanks replicas(const ParallelConfig& config,
                              int ranks,
                              int hosts,
                              bool local_steps) {
  const std::int64_t count = replicas_on(config, ranks, hosts);
  if (count == ranks)
    return {ranks, ranks};
  if (const std::string problem = replicas_problem(config, ranks, hosts, local_steps);
      !problem.empty())
    throw UserError("parallel.replicate: " + problem);
  return {ranks, static_cast<int>(count)};
}

layout::ReplicaRanks replicas(const ParallelConfig& config, comm::World& world, bool local_steps) {
  if (config.replicate.number || config.replicate.keyword != Replicate::node)
    return replicas(config, world.size(), 1, local_steps);
  const double mine[] = {static_cast<double>(world.local_rank()),
                         static_cast<double>(world.local_size())};
  const std::vector<double> all = world.gather_all(mine);
  std::vector<int> sizes;
  int of_host = 0;  // ranks so far
  bool consecutive = true;
  for (std::size_t at = 0; at < all.size(); at += 2) {
    if (all[at] == 0) {
      sizes.push_back(static_cast<int>(all[at + 1]));
      of_host = 0;
    }
    consecutive = consecutive && all[at] == of_host++ && all[at + 1] == sizes.back();
  }
  if (!consecutive)
    throw UserError(
        "parallel.replicate: node needs consecutive ranks on every host; start them in this way "
        "(mpirun --map-by core or ppr:N:node, srun --distribution=block), give a number of "
        "replicas or, with local steps, replicate: rank");
  layout::ReplicaRanks found(sizes);
  if (const std::string problem = problem_of(found, local_steps);
      found.count() > 1 && !problem.empty())
    throw UserError(fmt::format("parallel.replicate: node: {}, but {}", found.text(), problem));
  return found;
}

layout::Options layout_options(const ParallelConfig& config,
                               const std::vector<layout::Parameter>& parameters,
                               const layout::ReplicaRanks& replicas,
                               Wire wire,
                               int replica) {
  // With a guaranteed order whole buckets are sent between the ranks of all replicas.
  const int sharers =
      config.reduction == comm::Reduction::sum ? replicas.size(0) : replicas.ranks();
  return {replicas.size(replica),
          bucket_elements(config, parameters, sharers, wire),
          config.padding,
          config.bucket_order,
          config.bucket_boundaries,
          config.shard == layout::Shard::parameters,
          replicas};
}

std::string bucket_text(const ParallelConfig& config, const layout::Plan& plan) {
  std::string text = config.bucket_boundaries.empty()
                         ? fmt::format("{} elements{}", count_text(plan.options().bucket_elements),
                                       config.bucket_elements.given() ? "" : ": auto")
                         : "boundaries of the deck";
  if (config.bucket_order == layout::BucketOrder::registration)
    text += ", in registration order";
  return text;
}

}  // namespace trireme::reduce
