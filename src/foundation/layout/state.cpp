// SPDX-License-Identifier: Apache-2.0
#include "layout/state.hpp"

#include <algorithm>

#include "base/round_up.hpp"

namespace trireme::layout {
namespace {

std::vector<Piece> updated_pieces(const Plan& plan, BucketIndex bucket, std::optional<int> rank) {
  return rank ? plan.find_pieces(bucket, *rank)
              : plan.find_pieces(bucket, 0, plan.bucket(bucket).elements);
}

std::int64_t elements_of(const Plan& plan,
                         const StateSlot& slot,
                         BucketIndex bucket,
                         std::optional<int> rank) {
  if (slot.of_matrices)
    return rank ? plan.bucket(bucket).shard_elements : plan.bucket(bucket).elements;
  std::int64_t elements = 0;
  for (const Piece& piece : updated_pieces(plan, bucket, rank))
    if (slot.has(plan.parameter(piece.parameter)))
      elements += whole_lines(piece.elements);
  return elements;
}

}  // namespace

std::vector<std::int64_t> slot_begins(const Plan& plan,
                                      const StateSlot& slot,
                                      std::optional<int> rank) {
  std::vector<std::int64_t> begins{0};
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    begins.push_back(begins.back() + elements_of(plan, slot, static_cast<BucketIndex>(b), rank));
  return begins;
}

std::vector<std::int64_t> places_in_slot(const Plan& plan,
                                         const StateSlot& slot,
                                         std::int64_t begin,
                                         const std::vector<Piece>& pieces) {
  std::vector<std::int64_t> places;
  for (const Piece& piece : pieces) {
    const bool kept = slot.has(plan.parameter(piece.parameter));
    places.push_back(slot.of_matrices ? begin + piece.shard_begin : kept ? begin : -1);
    if (!slot.of_matrices && kept)
      begin += whole_lines(piece.elements);
  }
  return places;
}

std::int64_t most_slot_elements(const Plan& plan, const StateSlot& slot, bool sharded) {
  if (!sharded)
    return slot_begins(plan, slot, std::nullopt).back();
  if (slot.of_matrices)
    return plan.owned_elements();
  std::int64_t most = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank)
    most = std::max(most, slot_begins(plan, slot, rank).back());
  return most;
}

std::int64_t most_slot_bytes(const Plan& plan, const StateSlot& slot, bool sharded) {
  return most_slot_elements(plan, slot, sharded) *
         static_cast<std::int64_t>(size_bytes(slot.dtype));
}

}  // namespace trireme::layout
