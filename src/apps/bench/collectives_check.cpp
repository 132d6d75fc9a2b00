// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives_check.hpp"

#include <array>
#include <cstddef>
#include <vector>

#include "bench/race.hpp"

namespace trireme::bench {
namespace {

constexpr std::int64_t period = 5;
/// A value that no rank contributes and that no sum of contributions equals.
constexpr float poison = -3;

float given(std::int64_t element, std::int64_t rank) {
  return (element + rank) % period == 0 ? 1.0F : 0.0F;
}

/// The number of ranks r < ranks with (element + r) a multiple of the period.
float summed(std::int64_t element, std::int64_t ranks) {
  const std::int64_t first = (period - element % period) % period;
  const std::int64_t terms = first < ranks ? (ranks - 1 - first) / period + 1 : 0;
  return static_cast<float>(terms);
}

template <class T>
std::int64_t wrong_here(comm::World& world,
                        device::Stream& stream,
                        const Trial& trial,
                        const std::function<void()>& run) {
  const auto rank = static_cast<std::int64_t>(world.rank());
  fill(trial.to, stream, [](std::int64_t) { return poison; });
  fill(trial.from, stream, [&](std::int64_t i) { return given(trial.from_first + i, rank); });
  world.barrier();
  run();
  std::vector<T> found(static_cast<std::size_t>(trial.to.elements));
  stream.device().copy(view_of(found.data(), trial.to.elements), trial.to, stream);
  stream.synchronize();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t element = trial.to_first + static_cast<std::int64_t>(i);
    const float expected = trial.outcome == Outcome::summed ? summed(element, world.size())
                           : trial.outcome == Outcome::gathered
                               ? given(element, element / trial.shard)
                               : given(element, rank);
    wrong += static_cast<float>(found[i]) == expected ? 0 : 1;
  }
  return wrong;
}

}  // namespace

std::int64_t count_wrong(comm::World& world,
                         device::Stream& stream,
                         const Trial& trial,
                         const std::function<void()>& run) {
  std::array<std::int64_t, 1> wrong{trial.to.dtype == DType::f32
                                        ? wrong_here<float>(world, stream, trial, run)
                                        : wrong_here<Bf16>(world, stream, trial, run)};
  world.sum(wrong);
  return wrong[0];
}

}  // namespace trireme::bench
