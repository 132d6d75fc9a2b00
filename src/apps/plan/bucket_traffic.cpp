// SPDX-License-Identifier: Apache-2.0
#include "plan/bucket_traffic.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

using comm::Transport;

/// What the first group communicates over; the others are like it. `group_of`: by rank of the run.
template <class GroupOf>
Wire wire_of(const comm::Hosts& hosts,
             Transport transport,
             comm::Reduction reduction,
             const GroupOf& group_of) {
  Wire wire{transport, reduction, 0, 0, 0};
  std::set<int> hosts_of_first;
  for (int rank = 0; rank < hosts.ranks(); ++rank)
    if (group_of(rank) == 0) {
      ++wire.ranks;
      hosts_of_first.insert(hosts.host_of(rank));
    }
  wire.hosts = static_cast<std::int64_t>(hosts_of_first.size());
  for (int host = 0; host < hosts.count(); ++host) {
    std::set<int> groups;
    for (const int rank : hosts.members(host)) groups.insert(group_of(rank));
    wire.groups = std::max(wire.groups, static_cast<std::int64_t>(groups.size()));
  }
  return wire;
}

std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(size_bytes(dtype));
}

}  // namespace

comm::Reduction reduction_of(const session::Sections& config) {
  return config.optimizer.outer.on() ? comm::Reduction::sum : config.parallel.reduction;
}

Wires wires_of(const comm::Hosts& hosts,
               int replicas,
               Transport transport,
               comm::Reduction reduction) {
  TRIREME_EXPECT(replicas >= 1 && hosts.ranks() % replicas == 0, "{} replicas on {} ranks",
                 replicas, hosts.ranks());
  const int in_a_replica = hosts.ranks() / replicas;
  Wires wires{wire_of(hosts, transport, reduction, [=](int rank) { return rank / in_a_replica; }),
              {}};
  const bool ordered = reduction != comm::Reduction::sum;
  if (replicas > 1)
    wires.across = wire_of(hosts, Transport::mpi, reduction,
                           [=](int rank) { return ordered ? 0 : rank % in_a_replica; });
  return wires;
}

BucketTraffic::BucketTraffic(const Machine& machine,
                             const layout::Plan& plan,
                             const layout::BudgetOptions& options,
                             const Wires& wires)
    : plan_(plan),
      options_(options),
      ranks_that_send_(wires.inside.transport == Transport::hierarchical
                           ? static_cast<double>(wires.inside.ranks) /
                                 static_cast<double>(wires.inside.hosts)
                           : 1),
      inside_(LinkCost::find(machine, wires.inside)) {
  TRIREME_EXPECT(
      wires.inside.ranks == plan.ranks() && wires.across.has_value() == (plan.replicas() > 1),
      "wires among {} ranks for a plan of {} in {} replicas", wires.inside.ranks, plan.ranks(),
      plan.replicas());
  if (wires.across)
    across_ = LinkCost::find(machine, *wires.across);
}

std::string BucketTraffic::missing() const {
  if (!inside_.missing().empty() || !across_)
    return inside_.missing();
  return across_->missing();
}

bool BucketTraffic::extrapolated() const {
  return inside_.extrapolated() || (across_ && across_->extrapolated());
}

double BucketTraffic::reduce_seconds(std::size_t index) const {
  const layout::Bucket& bucket = plan_.buckets()[index];
  const Numbers dtype = numbers_of(options_.wire_dtype);
  std::int64_t whole = bytes_of(bucket.elements, options_.wire_dtype);
  if (!options_.compressed_bytes.empty()) {
    // Like a bucket of fp32 of which a rank sends as many bytes. Sums inside hosts are made only of
    // factors.
    const std::int64_t sent =
        bytes_of(layout::reduced_elements(plan_, options_, bucket.shard_elements), DType::f32);
    const double senders = options_.sums_compressed ? 1 : ranks_that_send_;
    whole = static_cast<std::int64_t>(static_cast<double>(whole) * senders *
                                      static_cast<double>(options_.compressed_bytes[index]) /
                                      static_cast<double>(sent));
  }
  const std::int64_t shard = bytes_of(bucket.shard_elements, options_.wire_dtype);
  if (across_ && options_.ordered)  // which local steps exclude
    return across_->seconds(Operation::all_reduce, dtype, whole);
  const double inside = inside_.seconds(
      options_.sharded() ? Operation::reduce_scatter : Operation::all_reduce, dtype, whole);
  return inside + (across_ && options_.local_steps == 1
                       ? across_->seconds(Operation::all_reduce, dtype, shard)
                       : 0);
}

double BucketTraffic::average_seconds() const {
  double seconds = 0;
  // Like fp32 of which a rank sends as many bytes.
  const std::int64_t whole = bytes_of(plan_.owned_elements(), DType::f32);
  const double part = across_ ? static_cast<double>(options_.averaged_bytes) /
                                    static_cast<double>(2 * (whole - whole / plan_.replicas()))
                              : 0;
  for (const layout::Bucket& bucket : plan_.buckets()) {
    if (options_.sharded() && plan_.ranks() > 1)  // the last gather, which does not overlap
      seconds += gather_seconds(numbers_of(options_.parameter_dtype),
                                bytes_of(bucket.elements, options_.parameter_dtype));
    if (across_)
      seconds += across_->seconds(
          Operation::all_reduce, Numbers::fp32,
          static_cast<std::int64_t>(
              part * static_cast<double>(bytes_of(bucket.shard_elements, DType::f32))));
  }
  return seconds;
}

void BucketTraffic::fill(StepModel& model) const {
  TRIREME_EXPECT(model.buckets.size() == plan_.buckets().size(), "{} buckets of {}",
                 model.buckets.size(), plan_.buckets().size());
  model.reduces_each = options_.micro_step_reductions.has_value();
  model.shares_slots = layout::shards_gradients(options_.shard);
  if (options_.shard == layout::Shard::parameters)
    model.layerwise = options_.gathers;
  // With a guaranteed order the sums of a step are added up among all ranks at once.
  const bool inside_too = !(across_ && options_.ordered);
  model.sums_s = (inside_too ? inside_.sums_s() : 0) +
                 (across_ && options_.local_steps == 1 ? across_->sums_s() : 0);
  model.control_s = (inside_too ? inside_.control_s() : 0) + (across_ ? across_->control_s() : 0);
  model.sharing = inside_.sharing();
  if (across_)
    model.sharing.raise_to(across_->sharing());
  if (plan_.all_ranks() == 1)
    return;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    const layout::Bucket& bucket = plan_.buckets()[b];
    BucketCost& cost = model.buckets[b];
    cost.reduce_s = reduce_seconds(b);
    cost.reduce_bytes =
        options_.compressed_bytes.empty()
            ? bytes_of(layout::reduced_elements(plan_, options_, bucket.shard_elements),
                       options_.wire_dtype)
            : options_.compressed_bytes[b];
    if (!options_.sharded())
      continue;
    const DType dtype = options_.parameter_dtype;
    cost.gather_s = gather_seconds(numbers_of(dtype), bytes_of(bucket.elements, dtype));
    cost.gather_bytes = bytes_of(bucket.shard_elements * (plan_.ranks() - 1), dtype);
  }
}

}  // namespace trireme::plan
