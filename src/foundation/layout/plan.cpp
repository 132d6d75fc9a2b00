// SPDX-License-Identifier: Apache-2.0
#include "layout/plan.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/packing.hpp"
#include "base/round_up.hpp"

namespace trireme::layout {
std::int64_t Parameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    TRIREME_EXPECT(extent >= 1, "{} has an extent of {}", name, extent);
    TRIREME_EXPECT(!__builtin_mul_overflow(product, extent, &product),
                   "{} has more than 2^63 elements", name);
  }
  return product;
}

std::int64_t total_elements(std::span<const Parameter> parameters) {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.elements();
  return sum;
}

std::int64_t granule(Padding padding, std::int64_t parts) {
  TRIREME_EXPECT(parts >= 1, "buckets of {} parts", parts);
  switch (padding) {
    case Padding::aligned:
      return std::lcm(parts * start_alignment, std::int64_t{128});
    case Padding::megatron:
      return std::lcm(parts, std::int64_t{128});
    case Padding::megatron_high_bandwidth:
      return std::lcm(parts, std::int64_t{65536});
    case Padding::none:
      return parts;
  }
  return parts;
}

Plan::Plan(std::vector<Parameter> parameters, Options options)
    : options_(std::move(options)), parameters_(std::move(parameters)) {
  if (options_.replicas.count() == 1)
    options_.replicas = ReplicaRanks(options_.ranks, 1);
  TRIREME_EXPECT(options_.bucket_elements >= 1, "buckets of {} elements", options_.bucket_elements);
  granule_ = layout::granule(options_.padding, options_.replicas.parts());
  TRIREME_EXPECT(granule_ % options_.ranks == 0, "shards of {} ranks in {}", options_.ranks,
                 options_.replicas.text());
  check_parameters();
  place();
}

void Plan::check_parameters() const {
  TRIREME_EXPECT(!parameters_.empty(), "a plan of no parameters");
  std::unordered_set<std::string_view> names;
  int group = 0;
  for (const Parameter& parameter : parameters_) {
    TRIREME_EXPECT(names.insert(parameter.name).second, "two parameters have the name {}",
                   parameter.name);
    TRIREME_EXPECT(parameter.group >= group, "{} is in group {}, after a parameter of group {}",
                   parameter.name, parameter.group, group);
    group = parameter.group;
  }
}

bool Plan::ends_with_group(std::size_t index, std::int64_t elements) const {
  const std::ptrdiff_t step = options_.order == BucketOrder::reverse ? -1 : 1;
  const auto count = std::ssize(parameters_);
  auto next = static_cast<std::ptrdiff_t>(index) + step;
  const auto of = [&](std::ptrdiff_t i) -> const Parameter& {
    return parameters_[static_cast<std::size_t>(i)];
  };
  if (next < 0 || next >= count || of(next).group == parameters_[index].group)
    return false;
  for (const int group = of(next).group; next >= 0 && next < count && of(next).group == group;
       next += step)
    elements += of(next).own_bucket ? 0 : of(next).elements();
  return elements > options_.bucket_elements;
}

void Plan::place() {
  placements_.resize(parameters_.size());
  Bucket open;
  std::int64_t end = 0;  // of the last parameter placed
  const std::unordered_set<std::string_view> boundaries(options_.boundaries.begin(),
                                                        options_.boundaries.end());
  std::size_t boundaries_met = 0;
  for (std::size_t k = 0; k < parameters_.size(); ++k) {
    const std::size_t i = options_.order == BucketOrder::reverse ? parameters_.size() - 1 - k : k;
    const Parameter& parameter = parameters_[i];
    if (parameter.own_bucket && !open.parameters.empty()) {
      close_bucket(open, end);
      end = open.begin;
    }
    const std::int64_t begin = rounded_up(end, start_alignment);
    const std::int64_t elements = parameter.elements();
    TRIREME_EXPECT(!__builtin_add_overflow(begin, elements, &end), "{} ends after element 2^63",
                   parameter.name);
    placements_[i] = {static_cast<BucketIndex>(buckets_.size()), begin, elements};
    open.parameters.push_back(static_cast<ParameterIndex>(i));
    const bool is_boundary = boundaries.contains(parameter.name);
    boundaries_met += is_boundary ? 1 : 0;
    const bool is_full = boundaries.empty() && end - open.begin >= options_.bucket_elements;
    const bool is_layer =
        options_.whole_groups && boundaries.empty() && ends_with_group(i, end - open.begin);
    if (parameter.own_bucket || is_boundary || is_full || is_layer) {
      close_bucket(open, end);
      end = open.begin;
    }
  }
  if (!open.parameters.empty())
    close_bucket(open, end);
  TRIREME_EXPECT(boundaries_met == boundaries.size(),
                 "{} of {} boundaries are not names of parameters",
                 boundaries.size() - boundaries_met, boundaries.size());
}

// Appends `open` to the buckets, and sets it to the next, empty bucket.
void Plan::close_bucket(Bucket& open, std::int64_t end) {
  open.unpadded = end - open.begin;
  open.elements = rounded_up(open.unpadded, granule_);
  open.shard_elements = open.elements / options_.ranks;
  owned_begin_.push_back(
      owned_begin_.empty() ? 0 : owned_begin_.back() + buckets_.back().shard_elements);
  const std::int64_t next = rounded_up(open.begin + open.elements, start_alignment);
  buckets_.push_back(std::move(open));
  open = Bucket{};
  open.begin = next;
}

std::int64_t Plan::flat_elements() const {
  return buckets_.back().begin + buckets_.back().elements;
}

std::int64_t Plan::parameter_elements() const {
  return total_elements(parameters_);
}

std::int64_t Plan::padding(BucketIndex bucket) const {
  std::int64_t padding = buckets_[at(bucket)].elements;
  for (const ParameterIndex parameter : buckets_[at(bucket)].parameters)
    padding -= placements_[at(parameter)].elements;
  return padding;
}

std::int64_t Plan::largest_bucket() const {
  return std::ranges::max(buckets_, {}, &Bucket::elements).elements;
}

std::int64_t Plan::owned_elements() const {
  return owned_begin_.back() + buckets_.back().shard_elements;
}

std::vector<Piece> Plan::find_pieces(BucketIndex bucket, int rank) const {
  TRIREME_EXPECT(at(bucket) < buckets_.size() && rank >= 0 && rank < options_.ranks,
                 "pieces of bucket {} of {}, rank {} of {}", at(bucket), buckets_.size(), rank,
                 options_.ranks);
  const std::int64_t shard = buckets_[at(bucket)].shard_elements;
  return find_pieces(bucket, rank * shard, shard);
}

std::vector<Piece> Plan::find_pieces(BucketIndex bucket,
                                     std::int64_t begin,
                                     std::int64_t elements) const {
  const Bucket& within = buckets_[at(bucket)];
  TRIREME_EXPECT(begin >= 0 && elements >= 0 && begin + elements <= within.elements,
                 "elements [{}, {}) of a bucket with {}", begin, begin + elements, within.elements);
  const std::int64_t first = within.begin + begin;
  const std::int64_t last = first + elements;
  const auto ends_before = [this](ParameterIndex index, std::int64_t position) {
    const Placement& place = placement(index);
    return place.begin + place.elements <= position;
  };
  std::vector<Piece> found;
  for (auto at_parameter =
           std::lower_bound(within.parameters.begin(), within.parameters.end(), first, ends_before);
       at_parameter != within.parameters.end(); ++at_parameter) {
    const Placement& place = placement(*at_parameter);
    if (place.begin >= last)
      break;
    const std::int64_t from = std::max(place.begin, first);
    const std::int64_t to = std::min(place.begin + place.elements, last);
    found.push_back({*at_parameter, from - place.begin, from - first, to - from});
  }
  return found;
}

std::vector<SharedPart> Plan::shared_parts(BucketIndex bucket, int rank_of_run) const {
  const ReplicaRanks& replicas = options_.replicas;
  const Bucket& whole = buckets_[at(bucket)];
  const std::int64_t own = whole.elements / replicas.size(replica_of(rank_of_run));
  const std::int64_t begin = rank_in_replica(rank_of_run) * own;
  std::vector<SharedPart> parts;
  for (std::int64_t done = 0; done < own; done += parts.back().elements) {
    SharedPart part{.begin = done, .elements = own - done, .owners = {}};
    for (int replica = 0; replica < replicas.count(); ++replica) {
      const std::int64_t shard = whole.elements / replicas.size(replica);
      const std::int64_t owner = (begin + done) / shard;
      part.owners.push_back(replicas.first(replica) + static_cast<int>(owner));
      part.elements = std::min(part.elements, (owner + 1) * shard - begin - done);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::uint64_t Plan::fingerprint() const {
  std::vector<std::int64_t> sizes;
  for (int replica = 0; replica < replicas(); ++replica)
    sizes.push_back(options_.replicas.size(replica));
  std::string bytes = pack(std::tie(sizes, options_.bucket_elements, options_.padding, granule_));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const int flags = (parameter.own_bucket ? 2 : 0) + (parameter.decay ? 1 : 0);
    bytes += pack(std::tie(parameter.name, parameter.shape, flags));
    if (options_.whole_groups)
      bytes += pack(parameter.group);
    bytes += pack(placements_[i].begin);
  }
  for (const Bucket& bucket : buckets_)
    bytes += pack(std::tie(bucket.begin, bucket.elements, bucket.unpadded));
  return hash_bytes(bytes);
}

}  // namespace trireme::layout
