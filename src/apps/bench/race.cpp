// SPDX-License-Identifier: Apache-2.0
#include "bench/race.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <mpi.h>

#include "base/dtype.hpp"
#include "base/quantile.hpp"
#include "base/random.hpp"
#include "device/recorder.hpp"

#include "comm/control/mpi_comm.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::bench {
namespace {

double timed(const std::function<void()>& run,
             int runs,
             device::Stream& stream,
             comm::World& world,
             bool exactly = false) {
  world.barrier();
  if (auto* mpi = dynamic_cast<comm::MpiWorld*>(&world); mpi != nullptr && exactly)
    TRIREME_MPI(MPI_Barrier(mpi->comm()));
  const double begin = device::steady_seconds();
  for (int i = 0; i < runs; ++i) run();
  stream.synchronize();
  const std::array mine{(device::steady_seconds() - begin) / runs};
  return comm::largest_of_ranks(world, mine).front();
}

/// A function and its times, which are the same on all ranks.
struct Entrant {
  const std::function<void()>& run;
  int runs = 1;  ///< per repetition
  std::vector<double> seconds{};
};

/// Launch and synchronization are about 1 % of a run of this duration.
constexpr double long_run_seconds = 10e-3;
constexpr int short_runs = 10;

/// Number of distinct elements, which are repeated. Odd, so that the rows of a matrix differ.
constexpr std::int64_t num_drawn = (std::int64_t{1} << 22U) - 1;

template <class T>
void fill_as(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value) {
  std::vector<T> numbers(static_cast<std::size_t>(to.elements));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = T(value(static_cast<std::int64_t>(i)));
  stream.device().copy(to, view_of(std::as_const(numbers).data(), to.elements), stream);
  stream.synchronize();
}

}  // namespace

std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits) {
  double spent = 0;
  std::vector<Entrant> all;
  all.reserve(entrants.size());
  for (const std::function<void()>& run : entrants) {
    Entrant& entrant = all.emplace_back(Entrant{run, std::max(1, limits.in_a_row)});
    if (limits.in_a_row > 0 || stream.device().kind() == device::Kind::cpu)
      continue;
    spent += timed(run, 1, stream, world);  // libraries choose and load their kernels
    const double seconds = timed(run, 1, stream, world);
    spent += seconds;
    entrant.runs = seconds < long_run_seconds ? short_runs : 1;
  }
  for (int repetition = -limits.warmups; repetition < limits.repetitions; ++repetition) {
    const bool late = spent > limits.seconds;
    if (late && repetition > 1)
      break;
    if (late && repetition < 0)
      continue;
    for (Entrant& entrant : all) {
      const double seconds = timed(entrant.run, entrant.runs, stream, world, limits.starts_exactly);
      spent += seconds * entrant.runs;
      if (repetition >= 0)
        entrant.seconds.push_back(seconds);
    }
  }
  std::vector<double> medians;
  medians.reserve(all.size());
  for (Entrant& entrant : all) medians.push_back(median(std::move(entrant.seconds)));
  return medians;
}

void fill(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value) {
  TRIREME_EXPECT(to.dtype == DType::f32 || to.dtype == DType::bf16, "numbers in {}",
                 name(to.dtype));
  to.dtype == DType::f32 ? fill_as<float>(to, stream, value) : fill_as<Bf16>(to, stream, value);
}

void fill_small_numbers(View to, device::Stream& stream) {
  constexpr std::uint32_t knuth = 2654435761U;  // 2^32 over the golden ratio: scatters the indices
  const std::int64_t drawn = std::min(to.elements, num_drawn);
  fill(to.slice(0, drawn), stream, [](std::int64_t i) {
    return 0.25F - 0.5F * uniform(static_cast<std::uint32_t>(i) * knuth);
  });
  device::Device& device = stream.device();
  for (std::int64_t filled = drawn; filled < to.elements; filled *= 2) {
    const std::int64_t more = std::min(filled, to.elements - filled);
    device.copy(to.slice(filled, more), to.slice(0, more), stream);
  }
  stream.synchronize();
}

}  // namespace trireme::bench
