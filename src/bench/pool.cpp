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

namespace trireme::device {
namespace {

using Clock = std::chrono::steady_clock;

/// The compiler must not find out that the memory is not read.
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

struct Contestant {
  PoolBenchRow row;
  std::function<void()> run;
  int batch = 1;  ///< runs per reading of the clock
  std::vector<double> seconds{};
};

double timed(const Contestant& contestant) {
  const auto start = Clock::now();
  for (int i = 0; i < contestant.batch; ++i) contestant.run();
  return std::chrono::duration<double>(Clock::now() - start).count() / contestant.batch;
}

/// So many runs that the clock's own cost vanishes. Warms up as well.
void choose_batch(Contestant& contestant) {
  constexpr double long_enough = 100e-6;
  constexpr int most = 1 << 16;
  while (contestant.batch < most && timed(contestant) * contestant.batch < long_enough)
    contestant.batch *= 2;
}

void add(std::vector<Contestant>& all,
         Device& device,
         ScratchPool& pool,
         Stream& stream,
         std::size_t bytes,
         bool touched) {
  const bool on_host = device.kind() == Kind::cpu;
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
                   const Lease lease = pool.lease(name, DType::f32, elements, stream);
                   use(lease.view().data);
                 }});
  for (const Allocator& allocator : on_host ? host_allocators() : cuda_allocators(stream))
    all.push_back({{allocator.name, touched, bytes}, [allocator, bytes, use] {
                     std::byte* data = allocator.take(bytes);
                     use(data);
                     allocator.give(data);
                   }});
  all.push_back({{"allocate", touched, bytes}, [&device, bytes, use] {
                   const Buffer buffer = device.allocate(bytes, "bench");
                   use(buffer.data());
                 }});
}

/// One pool's warm-up.
PoolGrowthRow grow(Device& device, Stream& stream, double factor, std::size_t largest) {
  ScratchPool pool(device, {.growth = factor});
  PoolGrowthRow row{.factor = factor};
  int requests = 0;
  const auto start = Clock::now();
  for (std::size_t bytes = std::min(std::size_t{1} << 16U, largest); bytes <= largest;
       bytes += std::max(bytes / 32, std::size_t{1}), ++requests) {
    const Lease lease =
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

std::vector<PoolGrowthRow> bench_growth(Device& device,
                                        Stream& stream,
                                        std::size_t largest,
                                        int repetitions) {
  std::vector<PoolGrowthRow> rows;
  std::vector<std::vector<double>> seconds;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    std::size_t row = 0;
    for (const double factor : {1.25, growth_factor, 2.0}) {
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

PoolBench bench_pool(Device& device, const PoolBenchRequest& request) {
  const auto stream = device.make_stream(StreamMode::inlined, "bench");
  ScratchPool pool(device, {});
  std::vector<Contestant> all;
  for (const std::size_t bytes : request.bytes)
    for (const bool touched : {false, true}) add(all, device, pool, *stream, bytes, touched);
  for (Contestant& contestant : all) choose_batch(contestant);
  for (int repetition = 0; repetition < request.repetitions; ++repetition)
    for (Contestant& contestant : all) contestant.seconds.push_back(timed(contestant));
  PoolBench bench;
  for (Contestant& contestant : all) {
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

}  // namespace trireme::device
