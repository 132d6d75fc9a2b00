// SPDX-License-Identifier: Apache-2.0
// Routes executed without MPI: for every placement, a block's sum is the expression that the
// reduction defines, and the bytes between hosts equal the prediction.
#include "comm/collective/routes.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

std::string in_order(const std::vector<std::string>& terms) {
  std::string all = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) all = "(" + all + "+" + terms[i] + ")";
  return all;
}

std::string in_pairs(const std::vector<std::string>& terms) {
  if (terms.size() == 1)
    return terms[0];
  const auto left = static_cast<std::ptrdiff_t>((terms.size() + 1) / 2);
  return "(" + in_pairs({terms.begin(), terms.begin() + left}) + "+" +
         in_pairs({terms.begin() + left, terms.end()}) + ")";
}

std::string term(int rank, int chunk) {
  return std::to_string(rank) + "." + std::to_string(chunk);
}

std::string promised(Reduction reduction, const Hosts& hosts, int chunk) {
  std::vector<std::string> all, sums;
  for (int rank = 0; rank < hosts.ranks(); ++rank) all.push_back(term(rank, chunk));
  if (reduction == Reduction::tree)
    return in_pairs(all);
  if (reduction == Reduction::ordered)
    return in_order(all);
  for (int host = 0; host < hosts.count(); ++host) {
    std::vector<std::string> terms;
    for (const int rank : hosts.members(host)) terms.push_back(all[static_cast<std::size_t>(rank)]);
    sums.push_back(in_order(terms));
  }
  return in_order(sums);
}

/// Executes the chunks of every block in rounds until no rank makes progress. All chunks start
/// before the first sum is continued: the greatest possible lead.
struct Walk {
  static constexpr int chunks = 3;
  const Hosts& hosts;
  std::vector<Routes> routes;
  // (from, to, passed): messages in transit, in order
  std::map<std::tuple<int, int, bool>, std::vector<std::string>> wires;
  std::vector<std::vector<std::string>> stored;  // by rank, of each chunk
  std::vector<std::int64_t> bytes;
  std::int64_t element_bytes;

  Walk(Reduction reduction, DType dtype, const Hosts& the_hosts)
      : hosts(the_hosts),
        stored(static_cast<std::size_t>(hosts.ranks())),
        bytes(static_cast<std::size_t>(hosts.count())),
        element_bytes(static_cast<std::int64_t>(size_bytes(dtype))) {
    for (int rank = 0; rank < hosts.ranks(); ++rank)
      routes.push_back(make_routes(reduction, dtype, hosts, rank));
    for (int rank = 0; rank < hosts.ranks(); ++rank)
      for (int chunk = 0; chunk < chunks; ++chunk)
        for (const BlockTask& task : of(rank).starts) finish(rank, task, chunk, false);
    std::vector<std::size_t> at(routes.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < hosts.ranks(); ++rank) {
        auto& next = at[static_cast<std::size_t>(rank)];
        const std::vector<BlockTask>& tasks = of(rank).continues;
        if (next < chunks * tasks.size() && ready(rank, tasks[next % tasks.size()])) {
          finish(rank, tasks[next % tasks.size()], static_cast<int>(next / tasks.size()), true);
          ++next;
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < hosts.ranks(); ++rank)
      EXPECT_EQ(at[static_cast<std::size_t>(rank)], chunks * of(rank).continues.size())
          << "rank " << rank;
    for (const auto& [ends, left] : wires) EXPECT_TRUE(left.empty());
  }

  [[nodiscard]] const Routes& of(int rank) const { return routes[static_cast<std::size_t>(rank)]; }

  bool ready(int rank, const BlockTask& task) {
    std::map<std::tuple<int, int, bool>, std::size_t> wanted;
    for (std::uint32_t i = task.first; i < task.first + task.count; ++i)
      if (const SumStep& step = of(rank).steps[i]; step.incoming)
        ++wanted[{step.source, rank, step.passed}];
    return std::ranges::all_of(
        wanted, [&](const auto& want) { return wires[want.first].size() >= want.second; });
  }

  void finish(int rank, const BlockTask& task, int chunk, bool passes) {
    std::vector<std::string> stack;
    for (std::uint32_t i = task.first; i < task.first + task.count; ++i) {
      const SumStep& step = of(rank).steps[i];
      std::string source;
      if (step.kind == SumStep::Kind::merge) {
        source = stack.back();
        stack.pop_back();
      } else if (step.incoming) {
        auto& wire = wires[{step.source, rank, step.passed}];
        source = wire.front();
        wire.erase(wire.begin());
      } else {
        source =
            term(hosts.members(hosts.host_of(rank))[static_cast<std::size_t>(step.source)], chunk);
      }
      if (step.kind == SumStep::Kind::load)
        stack.push_back(source);
      else
        stack.back() = "(" + stack.back() + "+" + source + ")";
    }
    ASSERT_EQ(stack.size(), 1U);
    if (task.to < 0) {
      EXPECT_EQ(task.block, rank);
      stored[static_cast<std::size_t>(rank)].push_back(stack[0]);
      return;
    }
    wires[{rank, task.to, passes}].push_back(stack[0]);
    EXPECT_NE(hosts.host_of(rank), hosts.host_of(task.to)) << "a message inside a host";
    bytes[static_cast<std::size_t>(hosts.host_of(rank))] += task.partial ? 4 : element_bytes;
  }
};

std::vector<Hosts> placements() {
  std::vector<Hosts> all{Hosts::in_blocks(4, 2), Hosts::in_blocks(8, 2), Hosts::in_blocks(12, 3),
                         Hosts::in_blocks(5, 5), Hosts::in_blocks(7, 3), Hosts::in_blocks(6, 1)};
  all.emplace_back(std::vector{0, 1, 1, 2, 2, 2});
  all.emplace_back(std::vector{0, 1, 0, 1, 0, 1});
  all.emplace_back(std::vector{7, 3, 3, 7, 5, 3, 5});
  all.emplace_back(std::vector{0, 0, 1, 1, 1, 0, 0});
  all.emplace_back(std::vector{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    std::vector<int> host_of(1 + random() % 20);
    for (int& host : host_of) host = static_cast<int>(random() % 5);
    all.emplace_back(host_of);
  }
  return all;
}

TEST(Routes, KeepTheOrderOfAdditionsOnEveryPlacement) {
  for (const Hosts& hosts : placements())
    for (const Reduction reduction : {Reduction::sum, Reduction::ordered, Reduction::tree})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const Walk walk(reduction, dtype, hosts);
        for (const std::vector<std::string>& sums : walk.stored) {
          ASSERT_EQ(sums.size(), std::size_t{Walk::chunks});
          for (int chunk = 0; chunk < Walk::chunks; ++chunk)
            ASSERT_EQ(sums[static_cast<std::size_t>(chunk)], promised(reduction, hosts, chunk))
                << word(reduction);
        }
        EXPECT_EQ(walk.bytes, reduce_bytes_between_hosts(reduction, dtype, hosts, Walk::chunks))
            << word(reduction) << " " << name(dtype) << " on " << hosts.count() << " hosts";
      }
}

TEST(Routes, SendNoMoreBetweenHostsThanASumOfFp32) {
  // Four hosts of eight ranks: each host sends its part of other hosts' blocks once, in fp32.
  const Hosts hosts = Hosts::in_blocks(32, 4);
  const std::int64_t shard = 1000, least = 24 * shard * 4;
  const auto most_of = [&](Reduction reduction, DType dtype) {
    return std::ranges::max(reduce_bytes_between_hosts(reduction, dtype, hosts, shard));
  };
  EXPECT_EQ(most_of(Reduction::sum, DType::f32), least);
  EXPECT_EQ(most_of(Reduction::sum, DType::bf16), least);
  EXPECT_EQ(most_of(Reduction::tree, DType::f32), least);
  // For every block, every host except the last sends the partial sum.
  EXPECT_EQ(most_of(Reduction::ordered, DType::f32), 32 * shard * 4);
  EXPECT_EQ(most_of(Reduction::ordered, DType::bf16), 32 * shard * 4);
}

TEST(Routes, SendSingleTermsUnchanged) {
  const Hosts hosts = Hosts::in_blocks(4, 4);
  EXPECT_EQ(reduce_bytes_between_hosts(Reduction::sum, DType::bf16, hosts, 10),
            (std::vector<std::int64_t>{60, 60, 60, 60}));
}

TEST(Hosts, DivideTheWorkOfAHost) {
  const Hosts hosts(std::vector{0, 1, 1, 2, 2, 2});
  EXPECT_FALSE(hosts.equal());
  for (int host = 0; host < hosts.count(); ++host) {
    std::map<int, int> blocks;
    for (int owner = 0; owner < hosts.ranks(); ++owner) {
      const int agent = hosts.agent(host, owner);
      EXPECT_EQ(hosts.host_of(agent), host);
      if (hosts.host_of(owner) == host) {
        EXPECT_EQ(agent, owner);
      }
      ++blocks[agent];
    }
    for (const auto& [agent, count] : blocks)
      EXPECT_LE(count, 6 / static_cast<int>(hosts.members(host).size()) + 1) << "agent " << agent;
  }
}

TEST(Hosts, OfEqualSizeHaveColumns) {
  for (const Hosts& hosts : {Hosts::in_blocks(6, 2), Hosts(std::vector{0, 1, 0, 1, 0, 1})}) {
    EXPECT_TRUE(hosts.equal());
    for (int owner = 0; owner < 6; ++owner)
      for (int host = 0; host < 2; ++host)
        EXPECT_EQ(hosts.local_of(hosts.agent(host, owner)), hosts.local_of(owner));
  }
}

}  // namespace
}  // namespace trireme::comm
