// SPDX-License-Identifier: Apache-2.0
#include "bench/rank_pairs.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <mpi.h>

#include "base/quantile.hpp"
#include "device/recorder.hpp"

#include "comm/control/mpi_world.hpp"
#include "comm/control/requests.hpp"

namespace trireme::bench {
namespace {

constexpr int message_tag = 1, answer_tag = 2;  // World sends no messages with tags
constexpr int small_bytes = 8, large_bytes = 4 << 20;
constexpr double seconds_without_sleep = 20e-3;

double seconds_since(double start) {
  return device::steady_seconds() - start;
}

struct Limits {
  int bytes = 0;
  int most = 1;        ///< messages
  double seconds = 0;  ///< time limit
};
constexpr Limits small_messages{.bytes = small_bytes, .most = 200, .seconds = 0.05};
constexpr Limits large_messages{.bytes = large_bytes, .most = 8, .seconds = 0.1};

/// One side of a pair. The first byte of a message states whether another one follows.
class Side {
 public:
  Side(comm::MpiWorld& world, int peer, std::byte* buffer)
      : world_(world), peer_(peer), buffer_(buffer) {}

  /// Median time from a message to its answer; the first one is omitted if there are more.
  double send(const Limits& limits) {
    std::vector<double> trips;
    const double begin = device::steady_seconds();
    for (bool more = true; more;) {
      more =
          static_cast<int>(trips.size()) + 1 < limits.most && seconds_since(begin) < limits.seconds;
      buffer_[0] = std::byte{more};
      const double start = device::steady_seconds();
      transfer(limits.bytes, message_tag, true);
      transfer(1, answer_tag, false);
      trips.push_back(seconds_since(start));
    }
    if (trips.size() > 1)
      trips.erase(trips.begin());
    return median(trips);
  }
  void answer(const Limits& limits) {
    for (bool more = true; more;) {
      transfer(limits.bytes, message_tag, false);
      more = buffer_[0] != std::byte{0};
      transfer(1, answer_tag, true);
    }
  }

 private:
  void transfer(int bytes, int tag, bool sends) {
    MPI_Request request = MPI_REQUEST_NULL;
    const comm::CancelOnExit abandon({&request, 1});
    if (sends)
      TRIREME_MPI(MPI_Isend(buffer_, bytes, MPI_BYTE, peer_, tag, world_.comm(), &request));
    else
      TRIREME_MPI(MPI_Irecv(buffer_, bytes, MPI_BYTE, peer_, tag, world_.comm(), &request));
    const double start = device::steady_seconds();
    while (!comm::completed(request))
      if (seconds_since(start) > seconds_without_sleep)
        world_.progress().pause();
    world_.progress().moved();
  }

  comm::MpiWorld& world_;
  int peer_;
  std::byte* buffer_;
};

/// Runs this rank's side of `pair`. Only the first rank measures.
std::array<double, 2> measure_pair(comm::MpiWorld& world,
                                   const std::pair<int, int>& pair,
                                   std::byte* buffer) {
  if (world.rank() == pair.second) {
    Side side(world, pair.first, buffer);
    side.answer(small_messages);
    side.answer(large_messages);
    return {};
  }
  Side side(world, pair.second, buffer);
  const double latency_s = side.send(small_messages) / 2;
  return {latency_s, large_bytes / side.send(large_messages)};
}

}  // namespace

std::vector<std::vector<std::pair<int, int>>> rounds_of(std::vector<int> members) {
  constexpr int nobody = -1;
  if (members.size() % 2 == 1)
    members.push_back(nobody);
  const std::size_t size = members.size();
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (std::size_t round = 0; round + 1 < size; ++round) {
    std::vector<std::pair<int, int>> pairs;
    for (std::size_t i = 0; i < size / 2; ++i) {
      const auto [first, second] = std::minmax(members[i], members[size - 1 - i]);
      if (first != nobody)
        pairs.emplace_back(first, second);
    }
    rounds.push_back(std::move(pairs));
    std::rotate(members.begin() + 1, members.end() - 1, members.end());  // the first one is fixed
  }
  return rounds;
}

std::vector<int> members_of(const std::vector<std::string>& host_of) {
  std::vector<int> members;
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank)
    if (seen.insert(host_of[rank]).second)
      members.push_back(static_cast<int>(rank));
  if (members.size() == 1 && host_of.size() > 1)
    members.push_back(1);
  return members;
}

std::vector<RankPair> measure_rank_pairs(comm::World& world,
                                         const std::vector<std::string>& host_of,
                                         double seconds) {
  auto* mpi = dynamic_cast<comm::MpiWorld*>(&world);
  if (mpi == nullptr || world.size() == 1)
    return {};
  const auto device = device::make_cpu_device(1);
  const device::Buffer buffer = device->allocate(large_bytes, "messages between two ranks");
  std::vector<RankPair> measured;
  const double begin = device::steady_seconds();
  for (const auto& pairs : rounds_of(members_of(host_of))) {
    const auto own = std::ranges::find_if(pairs, [&](const auto& pair) {
      return pair.first == world.rank() || pair.second == world.rank();
    });
    world.barrier();
    std::array<double, 3> mine{};
    {
      const auto entered = mpi->progress().enter("messages between two ranks");
      if (own != pairs.end()) {
        const auto [latency_s, bytes_per_s] = measure_pair(*mpi, *own, buffer.data());
        mine = {latency_s, bytes_per_s, 0};
      }
    }
    mine[2] = seconds_since(begin);
    const std::vector<double> all = world.gather_all(mine);
    for (const auto& [first, second] : pairs) {
      const auto at = mine.size() * static_cast<std::size_t>(first);
      measured.push_back({first, second, all[at], all[at + 1]});
    }
    if (all[2] > seconds)  // of rank 0, so that all agree
      break;
  }
  return measured;
}

}  // namespace trireme::bench
