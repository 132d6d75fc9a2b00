// SPDX-License-Identifier: Apache-2.0
#include "device/bench.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "base/quantile.hpp"

#include "device/bench_allocators.hpp"
#include "device/pool.hpp"

namespace trireme::device {
namespace {

using Clock = std::chrono::steady_clock;

/// The compiler must not see that nobody reads the memory.
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

}  // namespace

std::vector<PoolBenchRow> bench_pool(Device& device, const PoolBenchRequest& request) {
  const auto stream = device.make_stream(StreamMode::inlined, "bench");
  ScratchPool pool(device, {});
  std::vector<Contestant> all;
  for (const std::size_t bytes : request.bytes)
    for (const bool touched : {false, true}) add(all, device, pool, *stream, bytes, touched);
  for (Contestant& contestant : all) choose_batch(contestant);
  for (int repetition = 0; repetition < request.repetitions; ++repetition)
    for (Contestant& contestant : all) contestant.seconds.push_back(timed(contestant));
  std::vector<PoolBenchRow> rows;
  for (Contestant& contestant : all) {
    contestant.row.seconds = median(std::move(contestant.seconds));
    rows.push_back(contestant.row);
  }
  return rows;
}

std::string pool_table(const std::vector<PoolBenchRow>& rows) {
  std::string text =
      fmt::format("{:<17}{:<14}{:>12}{:>14}\n", "operation", "first write", "bytes", "ns");
  for (const PoolBenchRow& row : rows)
    text += fmt::format("{:<17}{:<14}{:>12}{:>14.1f}\n", row.operation,
                        row.touched ? "every page" : "none", row.bytes, row.seconds * 1e9);
  return text;
}

std::string pool_json(const std::vector<PoolBenchRow>& rows) {
  std::string text = "{\"rows\": [";
  const char* separator = "\n  ";
  for (const PoolBenchRow& row : rows) {
    text += fmt::format(
        "{}{{\"operation\": \"{}\", \"touched\": {}, \"bytes\": {}, \"seconds\": {:.9g}}}",
        separator, row.operation, row.touched, row.bytes, row.seconds);
    separator = ",\n  ";
  }
  return text + "\n]}\n";
}

}  // namespace trireme::device
