// SPDX-License-Identifier: Apache-2.0
#include "model/recompute_choice.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "model/layers.hpp"

namespace trireme::model {
namespace {

/// The first `blocks` with `block`, the next `gelus` with `gelu`.
RecomputeKey first_blocks(std::int64_t layers, std::int64_t blocks, std::int64_t gelus) {
  std::vector<Recompute> each(static_cast<std::size_t>(layers), Recompute::none);
  const auto gelu = each.begin() + blocks;
  std::fill(each.begin(), gelu, Recompute::block);
  std::fill(gelu, gelu + gelus, Recompute::gelu);
  if (std::ranges::adjacent_find(each, std::ranges::not_equal_to{}) == each.end())
    return each.front();
  return RecomputeKey(each);
}

/// The smallest number in [low, high] that `fits`, if all larger ones do as well; `high` if none.
template <class Fits>
std::int64_t least(std::int64_t low, std::int64_t high, Fits&& fits) {
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

RecomputeChoice choose_recompute(const GptShape& shape,
                                 const ActivationSizes& sizes,
                                 std::int64_t most_bytes) {
  const std::int64_t layers = shape.layers;
  TRIREME_EXPECT(layers > 0, "{} blocks", layers);
  const auto choice = [&](std::int64_t blocks, std::int64_t gelus) {
    GptShape one = shape;
    one.recompute = first_blocks(layers, blocks, gelus);
    const nn::ActivationPlan plan =
        activation_plan(one, sizes.dtype, sizes.micro_sequences, sizes.kind);
    const auto bytes = static_cast<std::int64_t>(plan.bytes() + plan.scratch().bytes());
    return RecomputeChoice{one.recompute, bytes, bytes <= most_bytes};
  };
  const auto fits = [&](std::int64_t blocks, std::int64_t gelus) {
    return choice(blocks, gelus).fits;
  };
  // The search covers 0, 2, 3, … blocks with `block`.
  const std::int64_t steps = least(0, std::max<std::int64_t>(layers - 1, 0), [&](std::int64_t n) {
    const std::int64_t blocks = n == 0 ? 0 : n + 1;
    return fits(blocks, layers - blocks);
  });
  const std::int64_t blocks = steps == 0 ? 0 : steps + 1;
  return choice(blocks,
                least(0, layers - blocks, [&](std::int64_t gelus) { return fits(blocks, gelus); }));
}

std::string recompute_text(const RecomputeKey& recompute) {
  TRIREME_EXPECT(recompute.limit() == nullptr, "a limit of {} bytes has no words",
                 recompute.limit()->count);
  if (recompute.list() == nullptr)
    return word(recompute.of(0));
  const std::vector<Recompute>& each = *recompute.list();
  std::string text;
  for (auto begin = each.begin(); begin != each.end();) {
    const auto end = std::find_if(begin, each.end(), [&](Recompute one) { return one != *begin; });
    text += fmt::format("{}{}", text.empty() ? "" : ", ", word(*begin));
    if (end - begin > 1)
      text += fmt::format(" x {}", end - begin);
    begin = end;
  }
  return text;
}

}  // namespace trireme::model
