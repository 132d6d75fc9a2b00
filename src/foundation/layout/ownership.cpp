// SPDX-License-Identifier: Apache-2.0
#include "layout/ownership.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace trireme::layout {

Ownership::Ownership(const Plan& plan)
    : owners_(plan.parameters().size(), -1), loads_(static_cast<std::size_t>(plan.ranks())) {}

Ownership::Ownership(const Plan& plan, std::span<const double> cost) : Ownership(plan) {
  TRIREME_EXPECT(cost.size() == owners_.size(), "{} costs for {} parameters", cost.size(),
                 owners_.size());
  std::vector<std::size_t> order(cost.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return cost[a] > cost[b]; });
  for (const std::size_t parameter : order) {
    TRIREME_EXPECT(cost[parameter] >= 0, "a cost of {}", cost[parameter]);
    if (cost[parameter] == 0)
      continue;
    const auto least = std::ranges::min_element(loads_);
    *least += cost[parameter];
    owners_[parameter] = static_cast<int>(least - loads_.begin());
  }
}

std::vector<MatrixPiece> Ownership::pieces(const Plan& plan, ParameterIndex parameter) const {
  std::vector<MatrixPiece> all;
  if (owner(parameter) < 0)
    return all;
  const BucketIndex bucket = plan.placement(parameter).bucket;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    for (const Piece& piece : plan.find_pieces(bucket, rank))
      if (piece.parameter == parameter)
        all.push_back({bucket, piece, rank, owner(parameter)});
  return all;
}

BucketIndex first_updated_with_matrices(const Plan& plan) {
  const auto& buckets = plan.buckets();
  const auto found = std::find_if(buckets.rbegin(), buckets.rend(), [&](const Bucket& bucket) {
    return std::ranges::any_of(bucket.parameters, [&](ParameterIndex parameter) {
      return !plan.parameter(parameter).matrices.empty();
    });
  });
  const auto after = found == buckets.rend() ? buckets.rbegin() : found;
  return static_cast<BucketIndex>(buckets.rend() - after - 1);
}

}  // namespace trireme::layout
