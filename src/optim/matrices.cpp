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

}  // namespace

std::int64_t MatrixWork::bytes() const {
  return held_elements * static_cast<std::int64_t>(sizeof(float)) + scratch_bytes;
}

std::optional<MatrixWork> matrix_work(const layout::Plan& plan,
                                      const OptimizerConfig& config,
                                      bool sharded) {
  if (config.kind != Kind::muon)
    return std::nullopt;
  const std::vector<double> costs = costs_of(plan, config.muon.steps);
  const DType products = dtype_of(config.muon.product_dtype);
  MatrixWork work{.homes = layout::Ownership(plan, costs)};
  work.travels = sharded && plan.ranks() > 1;
  const auto ranks = static_cast<std::size_t>(plan.ranks());
  std::vector<std::int64_t> held(ranks), sent(ranks);
  for (std::size_t p = 0; p < costs.size(); ++p) {
    const auto index = static_cast<ParameterIndex>(p);
    const layout::Parameter& parameter = plan.parameter(index);
    for (const std::int64_t rows : parameter.matrices) {
      ++work.matrices;
      work.scratch_bytes = std::max(work.scratch_bytes, ops::Orthogonalize::scratch_bytes(
                                                            rows, parameter.shape[1], products));
    }
    work.flops += costs[p];
    if (!work.travels || work.homes.home(index) < 0)
      continue;
    held[static_cast<std::size_t>(work.homes.home(index))] += whole_lines(parameter.elements());
    for (const layout::HomePiece& one : work.homes.pieces(plan, index))
      if (one.rank != one.home)
        for (const int rank : {one.rank, one.home})
          sent[static_cast<std::size_t>(rank)] += one.piece.elements;
  }
  work.busiest_flops = work.flops;
  if (work.travels) {
    work.busiest_flops = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank)
      work.busiest_flops = std::max(work.busiest_flops, work.homes.load(rank));
    work.held_elements = std::ranges::max(held);
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
  for (std::size_t p = 0; work.travels && p < plan.parameters().size(); ++p)
    for (const layout::HomePiece& one : work.homes.pieces(plan, static_cast<ParameterIndex>(p)))
      for (int first = 0; first < plan.all_ranks(); first += plan.ranks())
        if (const int from = hosts.host_of(first + one.rank), to = hosts.host_of(first + one.home);
            from != to)
          for (const int host : {from, to})
            sent[static_cast<std::size_t>(host)] += one.piece.elements;
  return std::ranges::max(sent) * static_cast<std::int64_t>(sizeof(float));
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
  if (work_.held_elements > 0)
    held_ = device.allocate(bytes(work_.held_elements), "matrices of Muon");
  if (work_.scratch_bytes > 0)
    scratch_ = device.allocate(static_cast<std::size_t>(work_.scratch_bytes), "scratch of Muon");
  if (work_.travels) {
    find_pieces(plan, world, communicator, device);
    return;
  }
  for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
    const layout::Placement& place = plan.placement(static_cast<ParameterIndex>(p));
    const View owned = engine_.owned()[at(place.bucket)].gradient;  // the whole bucket
    add_matrices(plan.parameters()[p],
                 owned.slice(place.begin - plan.bucket(place.bucket).begin, place.elements),
                 device);
  }
}

void Matrices::add_matrices(const layout::Parameter& parameter, View at, device::Device& device) {
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
    matrices_.push_back(
        {at.slice(begin, rows * columns), &known->second, static_cast<float>(scale)});
    begin += rows * columns;
  }
}

void Matrices::find_pieces(const layout::Plan& plan,
                           comm::World& world,
                           comm::Communicator& communicator,
                           device::Device& device) {
  const int mine = engine_.rank();
  std::vector<comm::Passenger> leaving, arriving;
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
    const auto index = static_cast<ParameterIndex>(p);
    const layout::Parameter& parameter = plan.parameter(index);
    View held;
    if (work_.homes.home(index) == mine) {
      held = held_.view(DType::f32).slice(begin, parameter.elements());
      begin += whole_lines(parameter.elements());
      add_matrices(parameter, held, device);
    }
    for (const layout::HomePiece& one : work_.homes.pieces(plan, index)) {
      const auto here = [&] { return held.slice(one.piece.parameter_begin, one.piece.elements); };
      const auto there = [&] {
        return engine_.owned()[at(one.bucket)].gradient.slice(one.piece.shard_begin,
                                                              one.piece.elements);
      };
      if (one.rank == mine && one.home == mine)
        stays_.push_back({there(), here()});
      else if (one.rank == mine)
        leaving.push_back({one.home, there()});
      else if (one.home == mine)
        arriving.push_back({one.rank, here()});
    }
  }
  trip_ = comm::make_round_trip(world, communicator, leaving, arriving);
}

void Matrices::bring_home(device::Stream& stream) {
  for (const Stay& piece : stays_) stream.device().copy(piece.held, piece.gradient, stream);
  if (trip_)
    trip_->go(stream);
}

void Matrices::orthogonalize(device::Stream& stream) {
  const View scratch = scratch_.view(DType::u8);
  for (const Matrix& matrix : matrices_) (*matrix.how)(matrix.at, scratch, matrix.scale, stream);
  if (trip_)
    trip_->come_back(stream);
  for (const Stay& piece : stays_) stream.device().copy(piece.gradient, piece.held, stream);
}

}  // namespace trireme::optim
