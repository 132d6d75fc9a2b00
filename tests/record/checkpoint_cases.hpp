// SPDX-License-Identifier: Apache-2.0
// The state of a small model with known values, divided as a plan says: for the checkpoint tests on
// one process and under MPI.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "layout/plan.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::record {

inline std::vector<layout::Parameter> small_model() {
  return {{"wte.weight", {61, 16}, true, true},
          {"h.0.ln.weight", {16}, false, false},
          {"h.0.fc.weight", {48, 16}, false, true},
          {"h.0.fc.bias", {48}, false, false},
          {"ln_f.weight", {17}, false, false}};
}

inline layout::Plan plan_for(int ranks,
                             std::int64_t bucket_elements = 600,
                             layout::Padding padding = layout::Padding::aligned) {
  return {small_model(), {ranks, bucket_elements, padding}};
}

inline CheckpointFacts facts_of(std::int64_t step) {
  return {.step = step,
          .next_sample = static_cast<std::uint64_t>(step) * 8,
          .seed = 1337,
          .model = {{"channels", "16"}, {"layers", "1"}},
          .more = {{"precision", "fp32"}}};
}

/// The value of element `i` of a parameter in a state.
inline float value_of(std::size_t state, ParameterIndex parameter, std::int64_t i) {
  return static_cast<float>(state * 100'000 + at(parameter) * 10'000) + static_cast<float>(i) / 8;
}

inline const std::vector<std::string> states = {"master", "moment1"};

/// One rank's buffers, one per state, holding its shards as the plan lays them out.
struct Owned {
  const layout::Plan& plan;
  int rank;
  std::vector<std::vector<float>> buffers;

  Owned(const layout::Plan& the_plan, int the_rank)
      : plan(the_plan),
        rank(the_rank),
        buffers(states.size(),
                std::vector<float>(static_cast<std::size_t>(plan.owned_elements()), -1.0F)) {}

  template <class Visit>
  void each(Visit&& visit) {
    for (std::size_t s = 0; s < states.size(); ++s)
      for (std::size_t b = 0; b < plan.buckets().size(); ++b)
        for (const layout::Piece& piece : plan.find_pieces(BucketIndex(static_cast<int>(b)), rank))
          visit(s, piece,
                buffers[s].data() + plan.owned_begin(BucketIndex(static_cast<int>(b))) +
                    piece.shard_begin);
  }
  void fill() {
    each([](std::size_t s, const layout::Piece& piece, float* data) {
      for (std::int64_t i = 0; i < piece.elements; ++i)
        data[i] = value_of(s, piece.parameter, piece.parameter_begin + i);
    });
  }
  void expect_filled() {
    std::int64_t wrong = 0;
    each([&](std::size_t s, const layout::Piece& piece, const float* data) {
      for (std::int64_t i = 0; i < piece.elements; ++i)
        wrong += data[i] == value_of(s, piece.parameter, piece.parameter_begin + i) ? 0 : 1;
    });
    EXPECT_EQ(wrong, 0) << "elements on rank " << rank;
  }
  std::vector<Slab> slabs() {
    std::vector<Slab> all;
    each([&](std::size_t s, const layout::Piece& piece, float* data) {
      const float* constant = data;
      all.push_back(
          {states[s], piece.parameter, piece.parameter_begin, view_of(constant, piece.elements)});
    });
    return all;
  }
  std::vector<MutableSlab> wanted() {
    std::vector<MutableSlab> all;
    each([&](std::size_t s, const layout::Piece& piece, float* data) {
      all.push_back(
          {states[s], piece.parameter, piece.parameter_begin, view_of(data, piece.elements)});
    });
    return all;
  }
};

inline SavedCheckpoint save_small(const std::string& run_directory,
                                  std::int64_t step,
                                  comm::World& world,
                                  Retention retention = 0) {
  const layout::Plan plan = plan_for(world.size());
  Owned owned(plan, world.rank());
  owned.fill();
  return save_checkpoint(run_directory, plan, facts_of(step), owned.slabs(), retention, world);
}

/// Loads and compares every element.
inline CheckpointFacts load_small(const std::string& directory,
                                  comm::World& world,
                                  std::int64_t bucket_elements = 600,
                                  layout::Padding padding = layout::Padding::aligned) {
  const layout::Plan plan = plan_for(world.size(), bucket_elements, padding);
  Owned owned(plan, world.rank());
  auto facts = load_checkpoint(directory, plan, facts_of(0).model, owned.wanted(), world);
  owned.expect_filled();
  return facts;
}

}  // namespace trireme::record
