// SPDX-License-Identifier: Apache-2.0
#include "comm/bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/quantile.hpp"

#include "comm/mpi_check.hpp"
#include "comm/mpi_world.hpp"

namespace trireme::comm {
namespace {

constexpr int warmups = 3;
/// Bytes of a shard are a multiple of this, so that every dtype and rank count gets whole elements.
constexpr std::int64_t shard_granule = 128;

/// One row in the making.
struct Contestant {
  BenchRow row;
  std::function<void()> run;
  std::vector<double> seconds{};
};

std::int64_t bucket_bytes(std::int64_t asked, int ranks) {
  const std::int64_t granule = shard_granule * ranks;
  return std::max((asked + granule - 1) / granule, std::int64_t{1}) * granule;
}

/// Sums of sums would overflow after some repetitions; small numbers do not, and denormals never
/// appear.
void fill_ones(View full, device::Stream& stream) {
  const auto elements = static_cast<std::size_t>(full.elements);
  const std::vector<float> ones(full.dtype == DType::f32 ? elements : 0, 1.0F);
  const std::vector<Bf16> rounded(full.dtype == DType::f32 ? 0 : elements, Bf16(1.0F));
  stream.device().copy(full,
                       full.dtype == DType::f32 ? ConstView(view_of(ones.data(), full.elements))
                                                : ConstView(view_of(rounded.data(), full.elements)),
                       stream);
  stream.synchronize();
}

/// Ranks that wake from naps would start apart, so the last steps are MPI's own, which spins.
void start_together(World& world) {
  world.barrier();
  if (auto* mpi = dynamic_cast<MpiWorld*>(&world))
    TRIREME_MPI(MPI_Barrier(mpi->comm()));
}

void race(World& world, std::vector<Contestant>& contestants, int repetitions) {
  using Clock = std::chrono::steady_clock;
  for (int repetition = -warmups; repetition < repetitions; ++repetition)
    for (Contestant& contestant : contestants) {
      start_together(world);
      const auto start = Clock::now();
      contestant.run();
      const double mine = std::chrono::duration<double>(Clock::now() - start).count();
      const auto all = world.gather_all(std::array{mine});
      if (repetition >= 0)
        contestant.seconds.push_back(*std::ranges::max_element(all));
    }
}

/// A transport with a bucket of its own for every operation, as in training, where gradients are
/// reduced and parameters are gathered: what one operation leaves in the caches does not colour
/// the next.
struct Entrant {
  struct Bucket {
    device::Buffer buffer;
    std::unique_ptr<Shards> shards;
  };
  std::unique_ptr<Communicator> communicator;
  std::array<Bucket, 3> buckets;
};

using Operation = void (Communicator::*)(const Shards&, BucketIndex, device::Stream&);
constexpr std::array<std::pair<const char*, Operation>, 3> operations{
    {{"reduce_scatter", &Communicator::reduce_scatter},
     {"all_gather", &Communicator::all_gather},
     {"all_reduce", &Communicator::all_reduce}}};

std::unique_ptr<Entrant> make_entrant(std::unique_ptr<Communicator> communicator,
                                      std::size_t bytes,
                                      DType dtype,
                                      device::Stream& stream) {
  auto entrant = std::make_unique<Entrant>();
  entrant->communicator = std::move(communicator);
  for (Entrant::Bucket& bucket : entrant->buckets) {
    bucket.buffer = entrant->communicator->allocate(bytes, "a bucket of the benchmark");
    bucket.shards = entrant->communicator->shards(bucket.buffer.view(dtype));
    fill_ones(bucket.shards->full, stream);
  }
  return entrant;
}

void add_transport(Entrant& entrant, device::Stream& stream, std::vector<Contestant>& contestants) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto [operation, call] = operations[i];
    Communicator& communicator = *entrant.communicator;
    const Shards& shards = *entrant.buckets[i].shards;
    contestants.push_back({{operation, std::string(communicator.name()), shards.full.dtype,
                            communicator.size(), static_cast<std::int64_t>(shards.full.bytes())},
                           [&communicator, &shards, &stream, start = call] {
                             (communicator.*start)(shards, BucketIndex{0}, stream);
                             stream.synchronize();
                           }});
  }
}

void add_memcpy(
    View from, View to, int ranks, device::Stream& stream, std::vector<Contestant>& contestants) {
  contestants.push_back(
      {{"memcpy", "none", from.dtype, ranks, static_cast<std::int64_t>(from.bytes())},
       [from, to, &stream] {
         stream.device().copy(to, from, stream);
         stream.synchronize();
       }});
}

void add_mpi(MPI_Comm comm, View from, View to, int ranks, std::vector<Contestant>& contestants) {
  const auto total = static_cast<int>(from.elements);
  const int each = total / ranks;
  const auto add = [&](const char* operation, std::function<void()> run) {
    contestants.push_back(
        {{operation, "MPI", from.dtype, ranks, static_cast<std::int64_t>(from.bytes())},
         std::move(run)});
  };
  add("MPI_Allreduce",
      [=] { TRIREME_MPI(MPI_Allreduce(from.data, to.data, total, MPI_FLOAT, MPI_SUM, comm)); });
  add("MPI_Reduce_scatter_block", [=] {
    TRIREME_MPI(MPI_Reduce_scatter_block(from.data, to.data, each, MPI_FLOAT, MPI_SUM, comm));
  });
  add("MPI_Allgather", [=] {
    TRIREME_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, to.data, each, MPI_FLOAT, comm));
  });
}

}  // namespace

double bus_factor(const std::string& operation, int ranks) {
  if (operation == "memcpy")
    return 1;
  const double part = static_cast<double>(ranks - 1) / ranks;
  return operation == "all_reduce" || operation == "MPI_Allreduce" ? 2 * part : part;
}

std::vector<BenchRow> bench_reduce(World& world,
                                   device::Device& device,
                                   const BenchRequest& request) {
  std::vector<BenchRow> rows;
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  for (const std::int64_t asked : request.bytes)
    for (const DType dtype : request.dtypes) {
      const std::int64_t bytes = bucket_bytes(asked, world.size());
      const auto count = static_cast<std::size_t>(bytes);
      std::vector<std::unique_ptr<Entrant>> entrants;
      std::vector<Contestant> contestants;
      for (const Transport transport : request.transports) {
        entrants.push_back(make_entrant(
            make_communicator(transport, request.reduction, world, device, request.options), count,
            dtype, *stream));
        add_transport(*entrants.back(), *stream, contestants);
      }
      const auto from = device.allocate(count, "the baselines' source");
      const auto to = device.allocate(count, "the baselines' target");
      if (request.baselines) {
        fill_ones(from.view(dtype), *stream);
        if (mpi != nullptr && dtype == DType::f32 && device.kind() == device::Kind::cpu)
          add_mpi(mpi->comm(), from.view(dtype), to.view(dtype), world.size(), contestants);
        add_memcpy(from.view(dtype), to.view(dtype), world.size(), *stream, contestants);
      }
      race(world, contestants, request.repetitions);
      for (Contestant& contestant : contestants) {
        BenchRow& row = contestant.row;
        row.seconds = median(contestant.seconds);
        row.algbw = row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
        row.busbw = row.algbw * bus_factor(row.operation, row.ranks);
        rows.push_back(row);
      }
    }
  return rows;
}

std::string bench_table(const std::vector<BenchRow>& rows) {
  std::string text =
      fmt::format("{:<26}{:<15}{:<6}{:>6}{:>14}{:>12}{:>14}{:>14}\n", "operation", "transport",
                  "dtype", "ranks", "bytes", "ms", "algbw GB/s", "busbw GB/s");
  for (const BenchRow& row : rows)
    text += fmt::format("{:<26}{:<15}{:<6}{:>6}{:>14}{:>12.4f}{:>14.3f}{:>14.3f}\n", row.operation,
                        row.transport, name(row.dtype), row.ranks, row.bytes, row.seconds * 1e3,
                        row.algbw * 1e-9, row.busbw * 1e-9);
  return text;
}

std::string bench_json(const std::vector<BenchRow>& rows) {
  std::string text = "{\"rows\": [";
  const char* separator = "\n  ";
  for (const BenchRow& row : rows) {
    text += fmt::format(
        "{}{{\"operation\": \"{}\", \"transport\": \"{}\", \"dtype\": \"{}\", \"ranks\": {}, "
        "\"bytes\": {}, \"seconds\": {:.9g}, \"algbw\": {:.9g}, \"busbw\": {:.9g}}}",
        separator, row.operation, row.transport, name(row.dtype), row.ranks, row.bytes, row.seconds,
        row.algbw, row.busbw);
    separator = ",\n  ";
  }
  return text + "\n]}\n";
}

}  // namespace trireme::comm
