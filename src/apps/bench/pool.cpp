// SPDX-License-Identifier: Apache-2.0
#include "bench/pool.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/quantile.hpp"
#include "device/pool.hpp"

#include "bench/allocators.hpp"
#include "bench/batch.hpp"

namespace trireme::bench {
namespace {

/// Prevents the compiler from removing writes to memory that is not read.
void keep(std::byte* data) {
  asm volatile("" : : "r"(data) : "memory");
}

void touch(std::byte* data, std::size_t bytes) {
  constexpr std::size_t page = 4096;
  for (std::size_t i = 0; i < bytes; i += page) data[i] = std::byte{1};
  keep(data);
}

std::vector<Allocator> host_allocators() {
  const auto take = [](std::size_t bytes) {
    void* data = std::malloc(bytes);
    if (data == nullptr)
      throw std::bad_alloc();
    return static_cast<std::byte*>(data);
  };
  return {{"malloc", take, [](std::byte* data) { std::free(data); }}};
}

struct PoolContestant {
  PoolBenchRow row;
  std::function<void()> run;
  int batch = 1;  ///< runs per reading of the clock
  std::vector<double> seconds{};
};

void add(std::vector<PoolContestant>& all,
         device::Device& device,
         device::ScratchPool& pool,
         device::Stream& stream,
         std::size_t bytes,
         bool touched) {
  const bool on_host = device.kind() == device::Kind::cpu;
  const auto use = [&device, &stream, on_host, bytes, touched](std::byte* data) {
    if (touched && !on_host) {
      device.fill_zero(View(data, static_cast<std::int64_t>(bytes), DType::u8), stream);
      stream.synchronize();
    } else if (touched) {
      touch(data, bytes);
    } else {
      keep(data);
    }
  };
  const auto elements = static_cast<std::int64_t>(bytes / size_bytes(DType::f32));
  const std::string name = fmt::format("bench {}", bytes);
  all.push_back({{"lease", touched, bytes}, [&pool, &stream, elements, name, use] {
                   const device::Lease lease = pool.lease(name, DType::f32, elements, stream);
                   use(lease.view().data);
                 }});
  for (const Allocator& allocator : on_host ? host_allocators() : cuda_allocators(stream))
    all.push_back({{allocator.name, touched, bytes}, [allocator, bytes, use] {
                     std::byte* data = allocator.take(bytes);
                     use(data);
                     allocator.give(data);
                   }});
  all.push_back({{"allocate", touched, bytes}, [&device, bytes, use] {
                   const device::Buffer buffer = device.allocate(bytes, "bench");
                   use(buffer.data());
                 }});
}

/// The warm-up of one pool.
PoolGrowthRow grow(device::Device& device,
                   device::Stream& stream,
                   double factor,
                   std::size_t largest) {
  device::ScratchPool pool(device, {.growth = factor});
  PoolGrowthRow row{.factor = factor};
  int requests = 0;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (std::size_t bytes = std::min(std::size_t{1} << 16U, largest); bytes <= largest;
       bytes += std::max(bytes / 32, std::size_t{1}), ++requests) {
    const device::Lease lease =
        pool.lease("bench growth", DType::u8, static_cast<std::int64_t>(bytes), stream);
    device.fill_zero(lease.view(), stream);
    const double excess =
        static_cast<double>(pool.allocated_bytes()) / static_cast<double>(bytes) - 1;
    row.mean_excess += excess;
    row.worst_excess = std::max(row.worst_excess, excess);
  }
  stream.synchronize();
  row.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  row.mean_excess /= requests;
  row.growths = static_cast<int>(pool.num_allocations()) - 1;
  return row;
}

std::vector<PoolGrowthRow> bench_growth(device::Device& device,
                                        device::Stream& stream,
                                        std::size_t largest,
                                        int repetitions) {
  std::vector<PoolGrowthRow> rows;
  std::vector<std::vector<double>> seconds;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::size_t row = 0;
    for (const double factor : {1.25, device::growth_factor, 2.0}) {
      const PoolGrowthRow one = grow(device, stream, factor, largest);
      if (row == rows.size()) {
        rows.push_back(one);
        seconds.emplace_back();
      }
      seconds[row++].push_back(one.seconds);
    }
  }
  for (std::size_t row = 0; row < rows.size(); ++row)
    rows[row].seconds = median(std::move(seconds[row]));
  return rows;
}

}  // namespace

PoolBench bench_pool(device::Device& device, const PoolBenchRequest& request) {
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  device::ScratchPool pool(device, {});
  std::vector<PoolContestant> all;
  for (const std::size_t bytes : request.bytes)
    for (const bool touched : {false, true}) add(all, device, pool, *stream, bytes, touched);
  for (PoolContestant& contestant : all) contestant.batch = choose_batch(contestant.run);
  for (int repetition = 0; repetition < request.repetitions; ++repetition)
    for (PoolContestant& contestant : all)
      contestant.seconds.push_back(seconds_per_run(contestant.batch, contestant.run));
  PoolBench bench;
  for (PoolContestant& contestant : all) {
    contestant.row.seconds = median(std::move(contestant.seconds));
    bench.rows.push_back(contestant.row);
  }
  bench.growth = bench_growth(device, *stream, std::ranges::max(request.bytes),
                              std::min(request.repetitions, 5));
  return bench;
}

std::string pool_table(const PoolBench& bench) {
  std::string text =
      fmt::format("{:<17}{:<14}{:>12}{:>14}\n", "operation", "first write", "bytes", "ns");
  for (const PoolBenchRow& row : bench.rows)
    text += fmt::format("{:<17}{:<14}{:>12}{:>14.1f}\n", row.operation,
                        row.touched ? "every page" : "none", row.bytes, row.seconds * 1e9);
  text += fmt::format("\n{:<17}{:>9}{:>14}{:>15}{:>12}\n", "growth", "growths", "excess, mean",
                      "excess, worst", "ms");
  for (const PoolGrowthRow& row : bench.growth)
    text += fmt::format("{:<17}{:>9}{:>12.1f} %{:>13.1f} %{:>12.2f}\n", row.factor, row.growths,
                        100 * row.mean_excess, 100 * row.worst_excess, row.seconds * 1e3);
  return text;
}

std::string pool_json(const PoolBench& bench) {
  std::string text = "{\"rows\": [";
  const char* separator = "\n  ";
  for (const PoolBenchRow& row : bench.rows) {
    text += fmt::format(
        "{}{{\"operation\": \"{}\", \"touched\": {}, \"bytes\": {}, \"seconds\": {:.9g}}}",
        separator, row.operation, row.touched, row.bytes, row.seconds);
    separator = ",\n  ";
  }
  text += "\n], \"growth\": [";
  separator = "\n  ";
  for (const PoolGrowthRow& row : bench.growth) {
    text += fmt::format(
        "{}{{\"factor\": {}, \"growths\": {}, \"mean_excess\": {:.6g}, \"worst_excess\": {:.6g}, "
        "\"seconds\": {:.9g}}}",
        separator, row.factor, row.growths, row.mean_excess, row.worst_excess, row.seconds);
    separator = ",\n  ";
  }
  return text + "\n]}\n";
}

}  // namespace trireme::bench
