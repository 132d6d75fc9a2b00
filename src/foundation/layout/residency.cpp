// SPDX-License-Identifier: Apache-2.0
#include "layout/residency.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::layout {

Ring::Ring(const Plan& plan, std::size_t num_shared) : slot_of_(plan.buckets().size()) {
  TRIREME_EXPECT(plan.options().order == BucketOrder::reverse,
                 "shared slots with buckets in {} order", word(plan.options().order));
  const auto is_dedicated = [&](const Bucket& bucket) { return plan.is_dedicated(bucket); };
  const auto num_sharing = plan.buckets().size() - static_cast<std::size_t>(std::ranges::count_if(
                                                       plan.buckets(), is_dedicated));
  TRIREME_EXPECT(num_shared > 0 || num_sharing == 0, "{} buckets share no slot", num_sharing);
  slots_.resize(std::min(num_sharing, num_shared));
  std::size_t next = 0;
  for (std::size_t b = 0; b < slot_of_.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (is_dedicated(bucket)) {
      slot_of_[b] = slots_.size();
      slots_.push_back({0, bucket.elements});
      continue;
    }
    slot_of_[b] = next++ % num_shared;
    Slot& slot = slots_[slot_of_[b]];
    slot.elements = std::max(slot.elements, bucket.elements);
  }
  for (std::size_t s = 1; s < slots_.size(); ++s)
    slots_[s].begin = rounded_up(slots_[s - 1].begin + slots_[s - 1].elements, start_alignment);
}

std::int64_t Ring::elements() const {
  return slots_.back().begin + slots_.back().elements;
}

namespace {

std::vector<BucketIndex> sharing_slots(const Plan& plan) {
  std::vector<BucketIndex> shared;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    if (!plan.is_dedicated(plan.buckets()[b]))
      shared.push_back(static_cast<BucketIndex>(b));
  return shared;
}

/// Maximum number of slot-sharing buckets that one layer reads.
std::size_t most_together(const Plan& plan, const std::vector<BucketIndex>& shared) {
  std::map<int, std::size_t> together;  // by layer
  for (const BucketIndex bucket : shared) {
    const std::vector<ParameterIndex>& parameters = plan.bucket(bucket).parameters;
    // In flat order, so from the last layer to the first.
    const int last = plan.parameter(parameters.front()).group;
    for (int group = plan.parameter(parameters.back()).group; group <= last; ++group)
      ++together[group];
  }
  std::size_t most = 0;
  for (const auto& [group, count] : together) most = std::max(most, count);
  return most;
}

std::size_t slots_for(const Plan& plan, const GatherOptions& options) {
  TRIREME_EXPECT(options.prefetch >= 0, "{} buckets are gathered ahead", options.prefetch);
  const std::vector<BucketIndex> shared = sharing_slots(plan);
  return options.reshard_after_forward
             ? most_together(plan, shared) + static_cast<std::size_t>(options.prefetch)
             : shared.size();
}

}  // namespace

Residency::Residency(const Plan& plan, const GatherOptions& options)
    : plan_(plan),
      prefetch_(static_cast<std::size_t>(options.prefetch)),
      shares_slots_(options.reshard_after_forward),
      index_(plan.buckets().size(), dedicated),
      shared_(sharing_slots(plan)),
      ring_(plan, slots_for(plan, options)),
      occupants_(ring_.num_slots()),
      resident_(plan.buckets().size()) {
  const int first_layer = plan.parameters().front().group;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    index_[at(shared_[i])] = i;
    const std::vector<ParameterIndex>& parameters = plan.bucket(shared_[i]).parameters;
    in_backward_.push_back(plan.parameter(parameters.front()).group == first_layer ? 0 : 1);
    num_first_ += plan.parameter(parameters.back()).group == first_layer ? 1 : 0;
  }
  gathers_.reserve(plan.buckets().size());
}

bool Residency::read_first(BucketIndex bucket) const {
  const std::size_t index = index_[at(bucket)];
  return index == dedicated || index + num_first_ + prefetch_ >= shared_.size();
}

void Residency::gather(BucketIndex bucket) {
  if (resident(bucket))
    return;
  std::optional<BucketIndex>& occupant = occupants_[ring_.slot(bucket)];
  Gather one{bucket, std::nullopt};
  if (occupant && *occupant != bucket) {
    const std::size_t index = index_[at(*occupant)];
    TRIREME_EXPECT(index < low_ || index >= high_,
                   "bucket {} is gathered into the slot of bucket {}, which is in use", at(bucket),
                   at(*occupant));
    one.evicted = occupant;
    resident_[at(*occupant)] = 0;
  }
  occupant = bucket;
  resident_[at(bucket)] = 1;
  gathers_.push_back(one);
}

std::span<const Residency::Gather> Residency::use(std::span<const ParameterIndex> parameters) {
  gathers_.clear();
  if (parameters.empty())
    return gathers_;
  const std::size_t before = low_;
  low_ = shared_.size();
  high_ = 0;
  for (const ParameterIndex parameter : parameters)
    if (const std::size_t index = index_[at(plan_.placement(parameter).bucket)];
        index != dedicated) {
      low_ = std::min(low_, index);
      high_ = std::max(high_, index + 1);
    }
  for (const ParameterIndex parameter : parameters) gather(plan_.placement(parameter).bucket);
  look_ahead(before);
  return gathers_;
}

// The direction changes only at the ends of the model, not between layers that share a bucket.
void Residency::look_ahead(std::size_t before) {
  if (low_ >= high_ || high_ == shared_.size())
    forward_ = true;
  else if (low_ == 0)
    forward_ = false;
  else if (low_ != before)
    forward_ = low_ < before;
  if (forward_) {
    const std::size_t end = low_;
    for (std::size_t i = 1; i <= std::min(prefetch_, end); ++i) gather(shared_[end - i]);
    return;
  }
  for (std::size_t i = high_; i < std::min(high_ + prefetch_, shared_.size()); ++i)
    if (in_backward_[i] != 0)
      gather(shared_[i]);
}

std::span<const Residency::Gather> Residency::update(BucketIndex bucket) {
  gathers_.clear();
  low_ = high_ = 0;
  resident_[at(bucket)] = 0;
  if (read_first(bucket))
    gather(bucket);
  return gathers_;
}

std::span<const Residency::Gather> Residency::begin_forward() {
  gathers_.clear();
  low_ = high_ = 0;
  for (std::size_t b = resident_.size(); b-- > 0;)
    if (const auto bucket = static_cast<BucketIndex>(b); read_first(bucket))
      gather(bucket);
  return gathers_;
}

std::span<const Residency::Gather> Residency::use_all() {
  TRIREME_EXPECT(!shares_slots_, "all {} buckets are read at once, in {} slots", resident_.size(),
                 ring_.num_slots());
  gathers_.clear();
  for (std::size_t b = resident_.size(); b-- > 0;) gather(static_cast<BucketIndex>(b));
  return gathers_;
}

std::vector<Reading> readings(const Plan& plan) {
  std::map<int, std::vector<ParameterIndex>> layers;
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    layers[plan.parameters()[p].group].push_back(static_cast<ParameterIndex>(p));
  std::vector<Reading> all;
  all.reserve(2 * layers.size());
  for (const auto& [group, parameters] : layers) all.push_back({parameters, false});
  for (std::size_t layer = layers.size(); layer-- > 2;)
    all.push_back({all[layer - 1].parameters, true});
  return all;
}

std::int64_t gathered_elements(const Plan& plan,
                               const GatherOptions& options,
                               std::int64_t micro_steps) {
  Residency residency(plan, options);
  const std::vector<Reading> walk = readings(plan);
  std::int64_t elements = 0;
  const auto count = [&](std::span<const Residency::Gather> gathers) {
    for (const Residency::Gather& one : gathers) elements += plan.bucket(one.bucket).elements;
  };
  const auto step = [&] {
    for (std::int64_t micro = 0; micro < micro_steps; ++micro) {
      if (micro > 0)
        count(residency.begin_forward());
      for (const Reading& reading : walk) count(residency.use(reading.parameters));
    }
    for (std::size_t b = plan.buckets().size(); b-- > 0;)
      count(residency.update(static_cast<BucketIndex>(b)));
  };
  step();  // brings the residency into the state at the start of every later step
  elements = 0;
  step();
  return elements;
}

}  // namespace trireme::layout
