// SPDX-License-Identifier: Apache-2.0
// Measures two parts of a step that are too short to show in its time, for
// dev/experiments/ablation.sh. Prints JSON.
//
//     bench_parts shards RANKS DECK [section.key=value …]   addresses of shards, computed and cached
//     bench_parts pool BYTES                                a lease of scratch memory and allocations
//
// The repetitions of all rows are interleaved, so that disturbances of the machine affect all of
// them; a row is the median over the repetitions.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "comm/communicator.hpp"

#include "deck/deck.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::bench {
namespace {

constexpr int repetitions = 21;

/// Seconds per run, from `batch` consecutive runs.
double seconds_per_run(int batch, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) run();
  return std::chrono::duration<double>(Clock::now() - start).count() / batch;
}

/// Median seconds of each of `runs`. Runs that are shorter than the clock can measure are repeated
/// until they take 0.1 ms together, which also warms up.
std::vector<double> medians_of(const std::vector<std::function<void()>>& runs) {
  constexpr double long_enough = 100e-6;
  constexpr int most = 1 << 16;
  std::vector<int> batches(runs.size(), 1);
  for (std::size_t i = 0; i < runs.size(); ++i)
    while (batches[i] < most && seconds_per_run(batches[i], runs[i]) * batches[i] < long_enough)
      batches[i] *= 2;
  std::vector<std::vector<double>> seconds(runs.size());
  for (int repetition = 0; repetition < repetitions; ++repetition)
    for (std::size_t i = 0; i < runs.size(); ++i)
      seconds[i].push_back(seconds_per_run(batches[i], runs[i]));
  std::vector<double> middle;
  for (auto& of_one : seconds) middle.push_back(median(std::move(of_one)));
  return middle;
}

/// Prevents the compiler from removing the work that produced a value.
template <class T>
void keep(T value) {
  asm volatile("" : "+r"(value) : : "memory");
}

/// The transport-independent part of a table of shards.
struct PlainShards final : comm::Shards {
  PlainShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}
};

struct BucketTables {
  std::unique_ptr<comm::Shards> gradient, parameter;
  std::vector<View> gradients, parameters;  // by piece of this rank's shard
};

/// The tables of the middle rank, with fp32 parameters.
class Arena {
 public:
  Arena(const layout::Plan& plan, device::Device& device)
      : plan_(plan),
        rank_(plan.ranks() / 2),
        gradients_(device.allocate(bytes(plan), "gradients")),
        parameters_(device.allocate(bytes(plan), "parameters")) {}

  [[nodiscard]] BucketTables find(BucketIndex bucket) const {
    const layout::Bucket& place = plan_.bucket(bucket);
    const auto offset = static_cast<std::size_t>(place.begin) * sizeof(float);
    BucketTables found;
    found.gradient = std::make_unique<PlainShards>(
        gradients_.view(DType::f32, offset, place.elements), rank_, plan_.ranks());
    found.parameter = std::make_unique<PlainShards>(
        parameters_.view(DType::f32, offset, place.elements), rank_, plan_.ranks());
    for (const layout::Piece& piece : plan_.find_pieces(bucket, rank_)) {
      found.gradients.push_back(found.gradient->own.slice(piece.shard_begin, piece.elements));
      found.parameters.push_back(found.parameter->own.slice(piece.shard_begin, piece.elements));
    }
    return found;
  }

 private:
  static std::size_t bytes(const layout::Plan& plan) {
    return static_cast<std::size_t>(plan.flat_elements()) * sizeof(float);
  }

  const layout::Plan& plan_;
  const int rank_;
  device::Buffer gradients_, parameters_;  // never accessed, so no pages are mapped
};

std::uintptr_t sum_of(const BucketTables& tables) {
  std::uintptr_t sum = 0;
  const auto add = [&](const std::vector<View>& views) {
    for (const View& view : views) sum += reinterpret_cast<std::uintptr_t>(view.data);
  };
  add({tables.gradient->own, tables.parameter->own});
  add(tables.gradients);
  add(tables.parameters);
  return sum;
}

std::string shards_json(const layout::Plan& plan) {
  const auto device = device::make_cpu_device(1);
  const Arena arena(plan, *device);
  const std::size_t count = plan.buckets().size();
  std::vector<BucketTables> tables;
  for (std::size_t b = 0; b < count; ++b) tables.push_back(arena.find(static_cast<BucketIndex>(b)));
  const auto search = [&] {
    std::uintptr_t sum = 0;
    for (std::size_t b = 0; b < count; ++b) sum += sum_of(arena.find(static_cast<BucketIndex>(b)));
    return sum;
  };
  const auto read = [&] {
    std::uintptr_t sum = 0;
    for (const BucketTables& bucket : tables) sum += sum_of(bucket);
    return sum;
  };
  TRIREME_EXPECT(search() == read(), "the tables hold other addresses than a search finds");
  const auto seconds = medians_of({[&] { keep(search()); }, [&] { keep(read()); }});
  const auto row = [&](const char* operation, double each) {
    return fmt::format(
        "{{\"operation\": \"{}\", \"buckets\": {}, \"ranks\": {}, \"seconds\": {:.9g}}}", operation,
        count, plan.ranks(), each);
  };
  return fmt::format("{{\"rows\": [\n  {},\n  {}\n]}}\n", row("searched", seconds[0]),
                     row("cached", seconds[1]));
}

/// The cost of a growth factor while a pool warms up, with requests that increase by 3 % from 64
/// KiB to the largest size.
std::string growth_json(device::Device& device,
                        device::Stream& stream,
                        double factor,
                        std::size_t largest) {
  constexpr std::size_t smallest = std::size_t{1} << 16U;
  device::ScratchPool pool(device, {.growth = factor});
  double mean_excess = 0, worst_excess = 0;
  int requests = 0;
  for (std::size_t bytes = smallest; bytes <= largest; bytes += bytes / 32, ++requests) {
    const device::Lease lease =
        pool.lease("bench growth", DType::u8, static_cast<std::int64_t>(bytes), stream);
    const double excess =
        static_cast<double>(pool.allocated_bytes()) / static_cast<double>(bytes) - 1;
    mean_excess += excess;
    worst_excess = std::max(worst_excess, excess);
  }
  return fmt::format(
      "{{\"factor\": {}, \"growths\": {}, \"mean_excess\": {:.6g}, \"worst_excess\": {:.6g}}}",
      factor, pool.num_allocations() - 1, mean_excess / requests, worst_excess);
}

/// `touched` rows also write one byte to every page, because new memory costs its time at the first
/// write.
std::string pool_json(std::size_t bytes) {
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "bench");
  device::ScratchPool pool(*device, {});
  const auto elements = static_cast<std::int64_t>(bytes / size_bytes(DType::f32));
  std::vector<std::string> rows;
  std::vector<std::function<void()>> runs;
  for (const bool touched : {false, true}) {
    const auto use = [bytes, touched](std::byte* data) {
      constexpr std::size_t page = 4096;
      for (std::size_t i = 0; touched && i < bytes; i += page) data[i] = std::byte{1};
      keep(data);
    };
    const auto add = [&](const char* operation, std::function<void()> run) {
      rows.push_back(fmt::format("\"operation\": \"{}\", \"touched\": {}, \"bytes\": {}", operation,
                                 touched, bytes));
      runs.push_back(std::move(run));
    };
    add("lease", [&pool, &stream, elements, use] {
      use(pool.lease("bench", DType::f32, elements, *stream).view().data);
    });
    add("malloc", [bytes, use] {
      auto* data = static_cast<std::byte*>(std::malloc(bytes));
      use(data);
      std::free(data);
    });
    add("allocate", [&device, bytes, use] { use(device->allocate(bytes, "bench").data()); });
  }
  const auto seconds = medians_of(runs);
  std::string text = "{\"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text +=
        fmt::format("{}\n  {{{}, \"seconds\": {:.9g}}}", i == 0 ? "" : ",", rows[i], seconds[i]);
  text += "\n], \"growth\": [";
  for (const double factor : {1.25, device::growth_factor, 2.0})
    text += fmt::format("{}\n  {}", factor == 1.25 ? "" : ",",
                        growth_json(*device, *stream, factor, bytes));
  return text + "\n]}\n";
}

}  // namespace
}  // namespace trireme::bench

int main(int count, char** words) {
  using namespace trireme;
  const std::vector<std::string> arguments(words + 1, words + count);
  try {
    if (arguments.size() == 2 && arguments[0] == "pool") {
      fmt::print("{}", bench::pool_json(std::stoul(arguments[1])));
    } else if (arguments.size() >= 3 && arguments[0] == "shards") {
      const int ranks = std::stoi(arguments[1]);
      const std::vector<std::string> overrides(arguments.begin() + 3, arguments.end());
      const auto deck = deck::parse(deck::read_deck_file(arguments[2]), arguments[2], overrides,
                                    deck::Circumstances{.ranks = ranks, .trains = false});
      fmt::print("{}", bench::shards_json(plan::plan_of(deck, ranks).plan));
    } else {
      throw UserError("usage: bench_parts pool BYTES | shards RANKS DECK [section.key=value …]");
    }
  } catch (const std::exception& problem) {
    const Verdict verdict = verdict_of(problem);
    for (const std::string& line : verdict.lines) fmt::print(stderr, "{}\n", line);
    return static_cast<int>(verdict.code);
  }
  return 0;
}
