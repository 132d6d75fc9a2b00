// SPDX-License-Identifier: Apache-2.0
#include "plan/link_cost.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "plan/fit.hpp"

namespace trireme::plan {
namespace {

using comm::Transport;

std::int64_t participants(Transport transport, std::int64_t ranks, std::int64_t hosts) {
  return transport == Transport::hierarchical ? hosts : ranks;
}

std::int64_t participants(const Link& link) {
  return participants(link.transport, link.ranks, link.hosts);
}

/// The first row of the operation whose dtype is asked for, else in fp32; null: neither.
const Collective* find_collective(const Link& link, Operation operation, Numbers dtype) {
  const Collective* found = nullptr;
  for (const Collective& one : link.collectives)
    if (one.operation == operation &&
        (one.dtype == dtype || (found == nullptr && one.dtype == Numbers::fp32)))
      found = &one;
  return found;
}

bool has_all_operations(const Link& link) {
  return std::ranges::all_of(EnumNames<Operation>::table, [&](const auto& known) {
    return find_collective(link, known.first, Numbers::fp32) != nullptr;
  });
}

/// How a number of rounds that doubles reach grows.
double rounds_of(std::int64_t ranks) {
  return std::ceil(std::log2(static_cast<double>(ranks)));
}

std::string in_words(const Wire& wire) {
  return fmt::format("{}{} among {} ranks on {} {}, reduction: {}", word(wire.transport),
                     wire.groups > 1 ? fmt::format(" in {} groups", wire.groups) : "", wire.ranks,
                     wire.hosts, wire.hosts == 1 ? "host" : "hosts", word(wire.reduction));
}

}  // namespace

bool LinkCost::add(const Machine& machine, const Wire& wire) {
  const std::int64_t planned = participants(wire.transport, wire.ranks, wire.hosts);
  const Link* best = nullptr;
  const auto order = [&](const Link& link) {
    const auto apart = [](std::int64_t a, std::int64_t b) {
      return distance(static_cast<double>(a), static_cast<double>(b));
    };
    return std::tuple(apart(participants(link), planned), apart(link.groups, wire.groups),
                      apart(link.ranks, wire.ranks));
  };
  for (const Link& link : machine.links)
    if (link.transport == wire.transport && link.reduction == wire.reduction &&
        (link.hosts == 1) == (wire.hosts == 1) && participants(link) >= 2 &&
        has_all_operations(link) && (best == nullptr || order(link) < order(*best)))
      best = &link;
  if (best == nullptr)
    return false;
  Part part{best, participants(*best), planned};
  if (wire.hosts > 1)
    part.bytes = static_cast<double>(wire.groups) / static_cast<double>(best->groups);
  else
    part.slower = crowding(wire.groups * wire.ranks, machine.cpus) /
                  crowding(best->groups * wire.ranks, machine.cpus);
  parts_.push_back(part);
  extrapolated_ = extrapolated_ || best->ranks != wire.ranks || best->hosts != wire.hosts ||
                  best->groups != wire.groups;
  return true;
}

LinkCost LinkCost::find(const Machine& machine, const Wire& wire) {
  LinkCost cost;
  if (wire.ranks == 1 || cost.add(machine, wire))
    return cost;
  cost.missing_ = in_words(wire);
  if (wire.transport != Transport::hierarchical)
    return cost;
  const std::int64_t on_a_host = divided_up(wire.ranks, wire.hosts);
  const Wire inside{Transport::shared_memory, wire.reduction, on_a_host, 1, wire.groups};
  const Wire between{Transport::mpi, wire.reduction, wire.hosts, wire.hosts, wire.groups};
  if ((on_a_host == 1 || cost.add(machine, inside)) && cost.add(machine, between)) {
    cost.missing_.clear();
    cost.extrapolated_ = true;
  } else {
    cost.parts_.clear();
    cost.missing_ += fmt::format(", nor {} and {}", in_words(inside), in_words(between));
  }
  return cost;
}

double LinkCost::seconds(Operation operation, Numbers dtype, std::int64_t bytes) const {
  TRIREME_EXPECT(missing_.empty(), "the price of what was not measured: {}", missing_);
  double sum = 0;
  for (const Part& part : parts_) {
    const Collective* collective = find_collective(*part.link, operation, dtype);
    TRIREME_EXPECT(collective != nullptr, "{} without {}", word(part.link->transport),
                   word(operation));
    sum += part.slower * seconds_on(*collective, part.bytes * static_cast<double>(bytes),
                                    part.measured, part.planned);
  }
  return sum;
}

double LinkCost::exchange(double Link::*seconds) const {
  double sum = 0;
  for (const Part& part : parts_)
    sum += part.link->*seconds * rounds_of(part.planned) / rounds_of(part.measured);
  return sum;
}

double LinkCost::sums_s() const {
  return exchange(&Link::sums_s);
}
double LinkCost::control_s() const {
  return exchange(&Link::control_s);
}

Sharing LinkCost::sharing() const {
  Sharing worst;
  for (const Part& part : parts_) {
    worst.compute_lost = std::max(worst.compute_lost, part.link->compute_lost);
    worst.stretch = std::max(worst.stretch, part.link->stretch);
    worst.waiting_during = std::max(worst.waiting_during, part.link->waiting_during);
  }
  return worst;
}

}  // namespace trireme::plan
