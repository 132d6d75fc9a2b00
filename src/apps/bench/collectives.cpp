// SPDX-License-Identifier: Apache-2.0
#include "bench/collectives.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include <mpi.h>

#include "base/round_up.hpp"

#include "comm/control/mpi_comm.hpp"
#include "comm/control/mpi_world.hpp"

#include "bench/collectives_check.hpp"
#include "bench/race.hpp"

namespace trireme::bench {
namespace {

constexpr int collective_warmups = 3;

struct TimedCollective {
  CollectivesBenchRow row;
  Trial trial;
  std::function<void()> run;
};

CollectivesBenchRow row_of(std::string operation,
                           std::string_view transport,
                           View bucket,
                           int ranks,
                           Outcome outcome,
                           std::string_view redop) {
  return {.operation = std::move(operation),
          .transport = std::string(transport),
          .dtype = bucket.dtype,
          .ranks = ranks,
          .bytes = static_cast<std::int64_t>(bucket.bytes()),
          .count = bucket.elements,
          .redop = std::string(outcome == Outcome::summed ? redop : "none")};
}

/// Repeated sums of large values would overflow after some repetitions. Ones do not, and never
/// become denormal.
void fill_ones(View full, device::Stream& stream) {
  fill(full, stream, [](std::int64_t) { return 1.0F; });
}

/// A transport with a separate bucket for every operation, as in training, so that the cache
/// contents after one operation do not affect the next.
struct BucketedTransport {
  struct Bucket {
    device::Buffer buffer;
    std::unique_ptr<comm::Shards> shards;
  };
  std::unique_ptr<comm::Communicator> communicator;
  std::array<Bucket, 3> buckets;
};

using Operation = void (comm::Communicator::*)(const comm::Shards&, BucketIndex, device::Stream&);
constexpr std::array<std::pair<const char*, Operation>, 3> operations{
    {{"reduce_scatter", &comm::Communicator::reduce_scatter},
     {"all_gather", &comm::Communicator::all_gather},
     {"all_reduce", &comm::Communicator::all_reduce}}};

std::unique_ptr<BucketedTransport> make_entrant(std::unique_ptr<comm::Communicator> communicator,
                                                std::size_t bytes,
                                                DType dtype,
                                                device::Stream& stream) {
  auto entrant = std::make_unique<BucketedTransport>();
  entrant->communicator = std::move(communicator);
  for (BucketedTransport::Bucket& bucket : entrant->buckets) {
    bucket.buffer = entrant->communicator->allocate(bytes, "a bucket of the benchmark");
    bucket.shards = entrant->communicator->shards(bucket.buffer.view(dtype));
    fill_ones(bucket.shards->full, stream);
  }
  return entrant;
}

void add_transport(BucketedTransport& entrant,
                   comm::Reduction reduction,
                   device::Stream& stream,
                   std::vector<TimedCollective>& contestants) {
  comm::Communicator& communicator = *entrant.communicator;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto [operation, call] = operations[i];
    const comm::Shards& shards = *entrant.buckets[i].shards;
    const std::int64_t shard = shards.own.elements, first = communicator.rank() * shard;
    const Outcome outcome =
        call == &comm::Communicator::all_gather ? Outcome::gathered : Outcome::summed;
    Trial trial{.outcome = outcome, .from = shards.full, .to = shards.full, .shard = shard};
    if (call == &comm::Communicator::reduce_scatter) {
      trial.to = shards.own;
      trial.to_first = first;
    } else if (call == &comm::Communicator::all_gather) {
      trial.from = shards.own;
      trial.from_first = first;
    }
    contestants.push_back({row_of(operation, communicator.name(), shards.full, communicator.size(),
                                  outcome, word(reduction)),
                           trial, [&communicator, &shards, &stream, start = call] {
                             (communicator.*start)(shards, BucketIndex{0}, stream);
                             stream.synchronize();
                           }});
  }
}

void add_memcpy(View from,
                View to,
                int ranks,
                device::Stream& stream,
                std::vector<TimedCollective>& contestants) {
  contestants.push_back(
      {row_of("memcpy", "none", from, ranks, Outcome::copied, "none"),
       {.outcome = Outcome::copied, .from = from, .to = to, .shard = from.elements / ranks},
       [from, to, &stream] {
         stream.device().copy(to, from, stream);
         stream.synchronize();
       }});
}

void add_mpi(const comm::MpiWorld& world,
             View from,
             View to,
             std::vector<TimedCollective>& contestants) {
  if (from.elements > std::numeric_limits<int>::max())
    return;  // these functions of MPI count with int
  const MPI_Comm comm = world.comm();
  const auto total = static_cast<int>(from.elements);
  const int each = total / world.size();
  const View first = to.slice(0, each), own = to.slice(std::int64_t{world.rank()} * each, each);
  const auto add = [&](const char* operation, Trial trial, std::function<void()> run) {
    trial.shard = each;
    contestants.push_back({row_of(operation, "MPI", from, world.size(), trial.outcome, "sum"),
                           trial, std::move(run)});
  };
  add("MPI_Allreduce", {.outcome = Outcome::summed, .from = from, .to = to},
      [=] { TRIREME_MPI(MPI_Allreduce(from.data, to.data, total, MPI_FLOAT, MPI_SUM, comm)); });
  add("MPI_Reduce_scatter_block",
      {.outcome = Outcome::summed,
       .from = from,
       .to = first,
       .to_first = std::int64_t{world.rank()} * each},
      [=] {
        TRIREME_MPI(MPI_Reduce_scatter_block(from.data, to.data, each, MPI_FLOAT, MPI_SUM, comm));
      });
  add("MPI_Allgather",
      {.outcome = Outcome::gathered,
       .from = own,
       .to = to,
       .from_first = std::int64_t{world.rank()} * each},
      [=] {
        TRIREME_MPI(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, to.data, each, MPI_FLOAT, comm));
      });
}

void check(comm::World& world, device::Stream& stream, std::vector<TimedCollective>& contestants) {
  for (TimedCollective& contestant : contestants) {
    contestant.row.wrong = count_wrong(world, stream, contestant.trial, contestant.run);
    fill_ones(contestant.trial.from, stream);
    fill_ones(contestant.trial.to, stream);
  }
}

}  // namespace

double bus_factor(const std::string& operation, int ranks) {
  if (operation == "memcpy")
    return 1;
  const double part = static_cast<double>(ranks - 1) / ranks;
  return operation == "all_reduce" || operation == "MPI_Allreduce" ? 2 * part : part;
}

std::vector<CollectivesBenchRow> bench_collectives(comm::World& world,
                                                   device::Device& device,
                                                   const CollectivesBenchRequest& request) {
  std::vector<CollectivesBenchRow> rows;
  const auto stream = device.make_stream(device::StreamMode::inlined, "bench");
  auto* mpi = dynamic_cast<comm::MpiWorld*>(&world);
  for (const std::int64_t asked : request.bytes)
    for (const DType dtype : request.dtypes) {
      const std::int64_t bytes =
          rounded_up(asked, static_cast<std::int64_t>(size_bytes(dtype)) * world.size());
      const auto count = static_cast<std::size_t>(bytes);
      std::vector<std::unique_ptr<BucketedTransport>> entrants;
      std::vector<TimedCollective> contestants;
      for (const comm::Transport transport : request.transports) {
        entrants.push_back(make_entrant(
            comm::make_communicator(transport, request.reduction, world, device, request.options),
            count, dtype, *stream));
        add_transport(*entrants.back(), request.reduction, *stream, contestants);
      }
      const auto from = device.allocate(count, "the baselines' source");
      const auto to = device.allocate(count, "the baselines' target");
      if (request.baselines) {
        if (mpi != nullptr && dtype == DType::f32 && device.kind() == device::Kind::cpu)
          add_mpi(*mpi, from.view(dtype), to.view(dtype), contestants);
        add_memcpy(from.view(dtype), to.view(dtype), world.size(), *stream, contestants);
      }
      check(world, *stream, contestants);
      std::vector<std::function<void()>> runs;
      for (const TimedCollective& contestant : contestants) runs.push_back(contestant.run);
      const auto seconds = race(runs, *stream, world,
                                {.repetitions = request.repetitions,
                                 .warmups = collective_warmups,
                                 .seconds = request.seconds,
                                 .in_a_row = static_cast<int>(std::clamp<std::int64_t>(
                                     request.row_bytes / bytes, 1, request.most_in_a_row)),
                                 .starts_exactly = true});
      for (std::size_t i = 0; i < contestants.size(); ++i) {
        CollectivesBenchRow& row = contestants[i].row;
        row.seconds = seconds[i];
        row.algbw = row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
        row.busbw = row.algbw * bus_factor(row.operation, row.ranks);
        rows.push_back(row);
      }
    }
  return rows;
}

std::string collectives_table(const std::vector<CollectivesBenchRow>& rows) {
  constexpr auto line = "{:<26}{:<15}{:>6}{:>12}{:>12}{:>6}{:>9}{:>12}{:>9}{:>9}{:>8}\n";
  std::string text =
      fmt::format(line, "operation", "transport", "ranks", "size", "count", "type", "redop", "time",
                  "algbw", "busbw", "#wrong") +
      fmt::format(line, "", "", "", "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "");
  std::vector<CollectivesBenchRow> sorted = rows;
  std::ranges::stable_sort(sorted, {}, [](const CollectivesBenchRow& row) {
    return std::tuple(row.transport, row.operation, row.dtype);
  });
  for (const CollectivesBenchRow& row : sorted)
    text += fmt::format(line, row.operation, row.transport, row.ranks, row.bytes, row.count,
                        name(row.dtype), row.redop, fmt::format("{:.2f}", row.seconds * 1e6),
                        fmt::format("{:.3f}", row.algbw * 1e-9),
                        fmt::format("{:.3f}", row.busbw * 1e-9), row.wrong);
  return text;
}

Json collectives_json(const std::vector<CollectivesBenchRow>& rows) {
  Json all = Json::array();
  for (const CollectivesBenchRow& row : rows)
    all.push_back({{"operation", row.operation},
                   {"transport", row.transport},
                   {"dtype", name(row.dtype)},
                   {"ranks", row.ranks},
                   {"bytes", row.bytes},
                   {"count", row.count},
                   {"redop", row.redop},
                   {"seconds", row.seconds},
                   {"algbw", row.algbw},
                   {"busbw", row.busbw},
                   {"wrong", row.wrong}});
  return {{"rows", all}};
}

}  // namespace trireme::bench
