// SPDX-License-Identifier: Apache-2.0
#include "layout/residency.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace trireme::layout {
namespace {

std::vector<BucketIndex> taking_turns(const Plan& plan) {
  std::vector<BucketIndex> turns;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    if (!plan.for_itself(plan.buckets()[b]))
      turns.push_back(static_cast<BucketIndex>(b));
  return turns;
}

/// The most buckets that take turns in which one layer lies.
std::size_t most_together(const Plan& plan, const std::vector<BucketIndex>& turns) {
  std::map<int, std::size_t> together;  // by layer
  for (const BucketIndex bucket : turns) {
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
  const std::vector<BucketIndex> turns = taking_turns(plan);
  return options.reshard_after_forward
             ? most_together(plan, turns) + static_cast<std::size_t>(options.prefetch)
             : turns.size();
}

}  // namespace

Residency::Residency(const Plan& plan, const GatherOptions& options)
    : plan_(plan),
      prefetch_(static_cast<std::size_t>(options.prefetch)),
      takes_turns_(options.reshard_after_forward),
      place_(plan.buckets().size(), for_itself),
      turns_(taking_turns(plan)),
      ring_(plan, slots_for(plan, options)),
      occupants_(ring_.num_slots()),
      resident_(plan.buckets().size()) {
  const int first_layer = plan.parameters().front().group;
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    place_[at(turns_[i])] = i;
    const std::vector<ParameterIndex>& parameters = plan.bucket(turns_[i]).parameters;
    in_backward_.push_back(plan.parameter(parameters.front()).group == first_layer ? 0 : 1);
    num_first_ += plan.parameter(parameters.back()).group == first_layer ? 1 : 0;
  }
  gathers_.reserve(plan.buckets().size());
}

bool Residency::opens(BucketIndex bucket) const {
  const std::size_t place = place_[at(bucket)];
  return place == for_itself || place + num_first_ + prefetch_ >= turns_.size();
}

void Residency::gather(BucketIndex bucket) {
  if (resident(bucket))
    return;
  std::optional<BucketIndex>& occupant = occupants_[ring_.slot(bucket)];
  Gather one{bucket, std::nullopt};
  if (occupant && *occupant != bucket) {
    const std::size_t place = place_[at(*occupant)];
    TRIREME_EXPECT(place < low_ || place >= high_,
                   "bucket {} is gathered in the place of bucket {}, which is in use", at(bucket),
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
  low_ = turns_.size();
  high_ = 0;
  for (const ParameterIndex parameter : parameters)
    if (const std::size_t place = place_[at(plan_.placement(parameter).bucket)];
        place != for_itself) {
      low_ = std::min(low_, place);
      high_ = std::max(high_, place + 1);
    }
  for (const ParameterIndex parameter : parameters) gather(plan_.placement(parameter).bucket);
  look_ahead(before);
  return gathers_;
}

// A walk turns at the ends of the model and goes on between them, also while layers share a bucket.
void Residency::look_ahead(std::size_t before) {
  if (low_ >= high_ || high_ == turns_.size())
    forward_ = true;
  else if (low_ == 0)
    forward_ = false;
  else if (low_ != before)
    forward_ = low_ < before;
  if (forward_) {
    const std::size_t end = low_;
    for (std::size_t i = 1; i <= std::min(prefetch_, end); ++i) gather(turns_[end - i]);
    return;
  }
  for (std::size_t i = high_; i < std::min(high_ + prefetch_, turns_.size()); ++i)
    if (in_backward_[i] != 0)
      gather(turns_[i]);
}

std::span<const Residency::Gather> Residency::update(BucketIndex bucket) {
  gathers_.clear();
  low_ = high_ = 0;
  resident_[at(bucket)] = 0;
  if (opens(bucket))
    gather(bucket);
  return gathers_;
}

std::span<const Residency::Gather> Residency::begin_forward() {
  gathers_.clear();
  low_ = high_ = 0;
  for (std::size_t b = resident_.size(); b-- > 0;)
    if (const auto bucket = static_cast<BucketIndex>(b); opens(bucket))
      gather(bucket);
  return gathers_;
}

std::span<const Residency::Gather> Residency::use_all() {
  TRIREME_EXPECT(!takes_turns_, "all {} buckets are read at once, in {} slots", resident_.size(),
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
  step();  // finds nothing in memory, as no later one does
  elements = 0;
  step();
  return elements;
}

}  // namespace trireme::layout
