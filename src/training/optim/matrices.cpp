// SPDX-License-Identifier: Apache-2.0
#include "optim/matrices.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/round_up.hpp"

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
                                  const OptimizerConfig& config) {
  const layout::ReplicaRanks& replicas = plan.replica_ranks();
  TRIREME_EXPECT(hosts.ranks() == replicas.ranks(), "{} ranks on hosts, and {}", hosts.ranks(),
                 replicas.text());
  std::vector<std::int64_t> sent(static_cast<std::size_t>(hosts.count()));
  std::optional<layout::Plan> own;
  std::optional<MatrixWork> work;
  for (int replica = 0; replica < replicas.count(); ++replica) {
    const int first = replicas.first(replica), size = replicas.size(replica);
    if (!own || own->ranks() != size) {
      layout::Options options = plan.options();
      options.ranks = size;
      own.emplace(plan.parameters(), options);
      work = matrix_work(*own, config, true);
    }
    for (std::size_t p = 0; work->distributed && p < own->parameters().size(); ++p)
      for (const auto& one : work->owners.pieces(*own, static_cast<ParameterIndex>(p)))
        if (const int from = hosts.host_of(first + one.rank), to = hosts.host_of(first + one.owner);
            from != to)
          for (const int host : {from, to})
            sent[static_cast<std::size_t>(host)] += one.piece.elements;
  }
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

Matrices::Matrices(const OptimizerConfig& config,
                   MatrixWork work,
                   reduce::Engine& engine,
                   comm::World& world,
                   comm::Communicator& communicator,
                   device::Device& device)
    : config_(config), work_(std::move(work)), engine_(engine) {
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * sizeof(float);
  };
  const layout::Plan& plan = engine_.plan();
  if (work_.owned_elements > 0)
    owned_ = device.allocate(bytes(work_.owned_elements), "matrices of Muon");
  if (work_.scratch_bytes > 0)
    scratch_ = device.allocate(static_cast<std::size_t>(work_.scratch_bytes), "scratch of Muon");
  const std::vector<View> owned = owned_views();
  const auto products = rounds_before_updates(work_.rounds, engine_.rank());
  std::vector<comm::MessageGroup> groups;
  std::vector<BucketIndex> buckets;
  for (std::size_t r = 0; r < work_.rounds.size(); ++r) {
    Round& round = rounds_.emplace_back();
    round.bucket = work_.rounds[r].bucket;
    round.products = work_.distributed ? products[r] : r;
    buckets.push_back(round.bucket);
    for (const ParameterIndex parameter : plan.bucket(round.bucket).parameters)
      if (owned[at(parameter)].elements > 0)
        add_matrices(round, plan.parameter(parameter), owned[at(parameter)], device);
    if (work_.distributed)
      groups.push_back(find_messages(round, owned));
  }
  if (!work_.distributed)
    return;
  transfer_ = comm::make_transfer(world, communicator, groups);
  engine_.transfers().set_sender(this, buckets);
}

Matrices::~Matrices() {
  if (transfer_)
    engine_.transfers().set_sender(nullptr, {});
}

std::optional<std::size_t> Matrices::round_of(BucketIndex bucket) const {
  const auto found = std::ranges::find(rounds_, bucket, &Round::bucket);
  if (found == rounds_.end())
    return std::nullopt;
  return static_cast<std::size_t>(found - rounds_.begin());
}

std::vector<View> Matrices::owned_views() const {
  const layout::Plan& plan = engine_.plan();
  std::vector<View> views(plan.parameters().size());
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < views.size(); ++p) {
    const auto parameter = static_cast<ParameterIndex>(p);
    const std::int64_t elements = plan.parameters()[p].elements();
    if (!has(parameter))
      continue;
    if (!work_.distributed) {
      const layout::Placement& place = plan.placement(parameter);
      const View owned = engine_.owned()[at(place.bucket)].gradient;  // the whole bucket
      views[p] = owned.slice(place.begin - plan.bucket(place.bucket).begin, elements);
    } else if (work_.owners.owner(parameter) == engine_.rank()) {
      views[p] = owned_.view(DType::f32).slice(begin, elements);
      begin += whole_lines(elements);
    }
  }
  return views;
}

void Matrices::add_matrices(Round& round,
                            const layout::Parameter& parameter,
                            View at,
                            device::Device& device) {
  std::int64_t begin = 0;
  for (const std::int64_t rows : parameter.matrices) {
    const std::int64_t columns = parameter.shape[1];
    const ops::OrthogonalizeOptions options{config_.muon.steps, config_.muon.coefficients,
                                            dtype_of(config_.muon.product_dtype)};
    const auto known = by_shape_.try_emplace({rows, columns}, device, rows, columns, options).first;
    // An orthogonal matrix has min(rows, columns) singular values of 1: elements of root mean
    // square 1 / sqrt(max(rows, columns)).
    const double scale =
        config_.muon.update_rms * std::sqrt(static_cast<double>(std::max(rows, columns)));
    round.matrices.push_back(
        {at.slice(begin, rows * columns), &known->second, static_cast<float>(scale)});
    begin += rows * columns;
  }
}

comm::MessageGroup Matrices::find_messages(Round& round, const std::vector<View>& owned) {
  const int mine = engine_.rank();
  const layout::Plan& plan = engine_.plan();
  const View gradients = engine_.owned()[at(round.bucket)].gradient;
  comm::MessageGroup messages;
  for (const ParameterIndex parameter : plan.bucket(round.bucket).parameters)
    for (const layout::MatrixPiece& one : work_.owners.pieces(plan, parameter)) {
      const auto matrix = [&] {
        return owned[at(parameter)].slice(one.piece.parameter_begin, one.piece.elements);
      };
      const auto gradient = [&] {
        return gradients.slice(one.piece.shard_begin, one.piece.elements);
      };
      if (one.rank == mine && one.owner == mine)
        round.local_copies.push_back({gradient(), matrix()});
      else if (one.rank == mine)
        messages.outgoing.push_back({one.owner, gradient()});
      else if (one.owner == mine)
        messages.incoming.push_back({one.rank, matrix()});
    }
  return messages;
}

void Matrices::enqueue(BucketIndex bucket, reduce::Direction direction, device::Stream& stream) {
  transfer_->enqueue(round_of(bucket).value(), direction, stream);
}

void Matrices::send(std::size_t round) {
  num_orthogonalized_ = num_returning_ = 0;
  if (transfer_)
    engine_.transfers().begin(rounds_[round].bucket, reduce::Direction::send);
}

void Matrices::orthogonalize_through(std::size_t round, device::Stream& stream) {
  const View scratch = scratch_.view(DType::u8);
  for (; num_orthogonalized_ <= round; ++num_orthogonalized_) {
    const Round& next = rounds_[num_orthogonalized_];
    for (const LocalCopy& piece : next.local_copies)
      stream.device().copy(piece.matrix, piece.gradient, stream);
    if (transfer_)
      engine_.transfers().wait(next.bucket, reduce::Direction::send);
    for (const Matrix& matrix : next.matrices)
      (*matrix.orthogonalize)(matrix.at, scratch, matrix.scale, stream);
  }
}

void Matrices::finish(std::size_t round, device::Stream& stream) {
  const Round& wanted = rounds_[round];
  if (transfer_)
    for (; num_returning_ < std::min(round + 2, rounds_.size()); ++num_returning_) {
      orthogonalize_through(num_returning_, stream);
      engine_.transfers().begin(rounds_[num_returning_].bucket, reduce::Direction::send_back);
    }
  orthogonalize_through(wanted.products, stream);
  if (transfer_)
    engine_.transfers().wait(wanted.bucket, reduce::Direction::send_back);
  for (const LocalCopy& piece : wanted.local_copies)
    stream.device().copy(piece.gradient, piece.matrix, stream);
}

}  // namespace trireme::optim
