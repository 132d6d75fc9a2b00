// SPDX-License-Identifier: Apache-2.0
#include "optim/matrix_work.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "ops/optimizer/orthogonalize.hpp"

namespace trireme::optim {
namespace {

std::vector<double> costs_of(const layout::Plan& plan, std::int64_t steps) {
  std::vector<double> costs;
  for (const layout::Parameter& parameter : plan.parameters()) {
    double cost = 0;
    for (const std::int64_t rows : parameter.matrices)
      cost += ops::Orthogonalize::flops(rows, parameter.shape[1], steps);
    costs.push_back(cost);
  }
  return costs;
}

std::vector<MatrixRound> rounds_of(const layout::Plan& plan,
                                   const layout::Ownership& owners,
                                   const std::vector<double>& costs) {
  std::vector<MatrixRound> rounds;
  for (std::size_t b = plan.buckets().size(); b-- > 0;) {
    MatrixRound round{static_cast<BucketIndex>(b),
                      std::vector<double>(static_cast<std::size_t>(plan.ranks()))};
    bool any = false;
    for (const ParameterIndex parameter : plan.buckets()[b].parameters)
      if (const int owner = owners.owner(parameter); owner >= 0) {
        round.flops[static_cast<std::size_t>(owner)] += costs[at(parameter)];
        any = true;
      }
    if (any)
      rounds.push_back(std::move(round));
  }
  return rounds;
}

}  // namespace

std::int64_t MatrixWork::bytes() const {
  return owned_elements * static_cast<std::int64_t>(sizeof(float)) + scratch_bytes;
}

std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded) {
  if (config.kind != Kind::muon)
    return std::nullopt;
  const std::vector<double> costs = costs_of(plan, config.muon.steps);
  const DType products = dtype_of(config.muon.product_dtype);
  MatrixWork work{.owners = layout::Ownership(plan, costs)};
  work.rounds = rounds_of(plan, work.owners, costs);
  work.distributed = sharded && plan.ranks() > 1;
  const auto ranks = static_cast<std::size_t>(plan.ranks());
  std::vector<std::int64_t> owned(ranks), sent(ranks);
  for (std::size_t p = 0; p < costs.size(); ++p) {
    const auto index = static_cast<ParameterIndex>(p);
    const layout::Parameter& parameter = plan.parameter(index);
    for (const std::int64_t rows : parameter.matrices) {
      ++work.matrices;
      work.scratch_bytes = std::max(work.scratch_bytes, ops::Orthogonalize::scratch_bytes(
                                                            rows, parameter.shape[1], products));
    }
    work.flops += costs[p];
    if (!work.distributed || work.owners.owner(index) < 0)
      continue;
    owned[static_cast<std::size_t>(work.owners.owner(index))] += whole_lines(parameter.elements());
    for (const layout::MatrixPiece& one : work.owners.pieces(plan, index))
      if (one.rank != one.owner)
        for (const int rank : {one.rank, one.owner})
          sent[static_cast<std::size_t>(rank)] += one.piece.elements;
  }
  work.busiest_flops = work.flops;
  if (work.distributed) {
    work.busiest_flops = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank)
      work.busiest_flops = std::max(work.busiest_flops, work.owners.load(rank));
    work.owned_elements = std::ranges::max(owned);
    work.sent_bytes = std::ranges::max(sent) * static_cast<std::int64_t>(sizeof(float));
  }
  return work;
}

std::int64_t matrix_bytes_between(const comm::Hosts& hosts,
                                  const layout::Plan& plan,
                                  const MatrixWork& work) {
  TRIREME_EXPECT(hosts.ranks() == plan.all_ranks(), "{} ranks on hosts, and a plan for {}",
                 hosts.ranks(), plan.all_ranks());
  std::vector<std::int64_t> sent(static_cast<std::size_t>(hosts.count()));
  for (std::size_t p = 0; work.distributed && p < plan.parameters().size(); ++p)
    for (const layout::MatrixPiece& one : work.owners.pieces(plan, static_cast<ParameterIndex>(p)))
      for (int first = 0; first < plan.all_ranks(); first += plan.ranks())
        if (const int from = hosts.host_of(first + one.rank), to = hosts.host_of(first + one.owner);
            from != to)
          for (const int host : {from, to})
            sent[static_cast<std::size_t>(host)] += one.piece.elements;
  return std::ranges::max(sent) * static_cast<std::int64_t>(sizeof(float));
}

std::vector<std::size_t> rounds_before_updates(std::span<const MatrixRound> rounds, int rank) {
  const auto ranks = rounds.empty() ? 0 : rounds.front().flops.size();
  std::vector<double> done(ranks);  // up to round r
  std::vector<std::size_t> through;
  std::size_t last = 0;
  double mine = 0;  // up to round `last`
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    for (std::size_t other = 0; other < ranks; ++other) done[other] += rounds[r].flops[other];
    const double busiest = std::ranges::max(done);
    if (r == 0)
      mine = done[static_cast<std::size_t>(rank)];
    while (last + 1 < rounds.size() && (last <= r || mine < busiest))
      mine += rounds[++last].flops[static_cast<std::size_t>(rank)];
    through.push_back(last);
  }
  return through;
}

}  // namespace trireme::optim
