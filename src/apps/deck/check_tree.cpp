// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>

#include <fmt/format.h>

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

struct TreeRules : Rules {
  void tree_can_grow() const {
    if (!readable({"parallel.reduction", "parallel.logical_shards"}))
      return;
    const bool tree = config_.parallel.reduction == comm::Reduction::tree;
    const bool counted = config_.parallel.logical_shards.given();
    if (tree != counted) {
      disagree({{"parallel.reduction",
                 fmt::format("{} {}", word(config_.parallel.reduction),
                             tree ? "needs parallel.logical_shards, which is not given"
                                  : "does not use parallel.logical_shards. Use tree.")},
                {"parallel.logical_shards",
                 fmt::format("has an effect only with parallel.reduction = tree, but it is {}",
                             word(config_.parallel.reduction))}});
      return;
    }
    if (!tree)
      return;
    leaves_are_equal(*config_.parallel.logical_shards.value);
    if (config_.parallel.reduce_every == reduce::ReduceEvery::micro_step)
      disagree({{"parallel.reduce_every",
                 "micro_step reduces every micro-step over the ranks, but parallel.reduction = "
                 "tree first adds up leaves. Use step."},
                {"parallel.reduction", "tree reduces the leaves of a step, not every micro-step"}});
    if (config_.parallel.gradient_dtype != reduce::GradientDType::fp32)
      disagree(
          {{"parallel.gradient_dtype",
            fmt::format("{} would round partial sums differently for different numbers of ranks, "
                        "but parallel.reduction = tree guarantees the same bits. Use fp32.",
                        word(config_.parallel.gradient_dtype))},
           {"parallel.reduction",
            fmt::format("tree sends partial sums in fp32, not in parallel.gradient_dtype = {}",
                        word(config_.parallel.gradient_dtype))}});
  }

  /// The noise scale compares a step with its leaves, which only exist with tree.
  void noise_has_leaves() const {
    if (!readable({"evaluate.noise_scale", "evaluate.noise_scale.every_steps", "parallel.reduction",
                   "parallel.logical_shards"}) ||
        config_.evaluate.noise_scale.every_steps == 0)
      return;
    const auto& shards = config_.parallel.logical_shards;
    if (config_.parallel.reduction != comm::Reduction::tree)
      disagree({{"evaluate.noise_scale.every_steps",
                 fmt::format("needs parallel.reduction = tree, whose leaves do not depend on the "
                             "number of ranks; it is {}",
                             word(config_.parallel.reduction))},
                {"parallel.reduction",
                 fmt::format("{} has no leaves, which evaluate.noise_scale needs. Use tree.",
                             word(config_.parallel.reduction))}});
    else if (shards.given() && *shards.value < 2)
      disagree(
          {{"evaluate.noise_scale.every_steps",
            "compares a step with its parts, but with parallel.logical_shards = 1 there is only "
            "one part"},
           {"parallel.logical_shards", "evaluate.noise_scale needs at least 2 logical shards"}});
  }

  /// Every rank needs a whole subtree, and every leaf the same number of micro-steps.
  void leaves_are_equal(std::int64_t shards) const {
    const auto is_power = [](std::int64_t n) {
      return std::has_single_bit(static_cast<std::uint64_t>(n));
    };
    const std::int64_t ranks = circumstances_.ranks;
    const auto least = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(ranks)));
    if (!is_power(shards)) {
      const auto below =
          static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(shards)));
      say("parallel.logical_shards",
          fmt::format("{} is not a power of two. Use {} or {}.", shards, below, 2 * below));
      return;
    }
    if (shards < least)
      say("parallel.logical_shards",
          fmt::format("{} logical shards are too few for {} ranks. Use {} or more.", shards, ranks,
                      least));
    if (!readable({"batch.micro_sequences"}))
      return;
    for (const auto& [path, sequences] : readable_sizes()) leaves_divide(shards, path, sequences);
  }

  void leaves_divide(std::int64_t shards, const std::string& path, std::int64_t sequences) const {
    const std::int64_t micro = config_.batch.micro_sequences;
    const std::int64_t unit = micro * shards;
    if (sequences % unit == 0)
      return;
    disagree(
        {{"parallel.logical_shards",
          fmt::format("{} x {} micro_sequences does not divide the {} sequences of a step", shards,
                      micro, sequences)},
         {path, fmt::format(
                    "{} is not a multiple of {} = {} micro_sequences x {} logical shards. Use {}.",
                    sequences, unit, micro, shards, multiples_near(sequences, unit))}});
  }
};

}  // namespace

void check_tree(const Rules& rules) {
  const TreeRules tree{rules};
  tree.tree_can_grow();
  tree.noise_has_leaves();
}

}  // namespace trireme::deck
