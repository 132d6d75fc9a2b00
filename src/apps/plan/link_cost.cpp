// SPDX-License-Identifier: Apache-2.0
#include "plan/link_cost.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "base/text.hpp"

namespace trireme::plan {
namespace {

double residual_of(std::span<const Point> points, const Line& line) {
  double sum = 0;
  for (const Point& point : points) {
    const double predicted =
        line.latency_s + line.seconds_per_byte * static_cast<double>(point.bytes);
    const double error = predicted / point.seconds - 1;
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(points.size()));
}

using comm::Transport;

std::int64_t participants(const Wire& wire) {
  return wire.transport == Transport::hierarchical ? wire.hosts : wire.ranks;
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

/// Number of rounds if the number of ranks that are reached doubles in each.
double rounds_of(std::int64_t ranks) {
  return std::ceil(std::log2(static_cast<double>(ranks)));
}

std::string in_words(const Wire& wire) {
  return fmt::format("{}{} among {} ranks on {}, reduction: {}", word(wire.transport),
                     wire.groups > 1 ? fmt::format(" in {} groups", wire.groups) : "", wire.ranks,
                     counted(wire.hosts, "host"), word(wire.reduction));
}

}  // namespace

/// With u = 1 / T and v = B / T the relative error is a u + b v - 1, linear in both.
Line fit_line(std::span<const Point> points) {
  TRIREME_EXPECT(!points.empty(), "a line through {} points", points.size());
  double uu = 0, uv = 0, vv = 0, u1 = 0, v1 = 0;
  for (const Point& point : points) {
    TRIREME_EXPECT(point.seconds > 0, "{} bytes took {} s", point.bytes, point.seconds);
    const double u = 1 / point.seconds, v = static_cast<double>(point.bytes) / point.seconds;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u1 += u;
    v1 += v;
  }
  Line line;
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-12 * uu * vv) {
    line.latency_s = (u1 * vv - v1 * uv) / determinant;
    line.seconds_per_byte = (uu * v1 - uv * u1) / determinant;
  }
  const bool one_size = line.latency_s <= 0 && line.seconds_per_byte <= 0;  // all of it is bytes
  if (one_size || line.latency_s < 0)
    line = {0, v1 / vv, 0};
  else if (line.seconds_per_byte < 0)
    line = {u1 / uu, 0, 0};
  line.residual = residual_of(points, line);
  return line;
}

double measured_seconds(const Collective& c, double bytes) {
  const auto line = [&](double at) { return c.latency_s + c.seconds_per_byte * at; };
  const auto size = [](const Point& point) { return static_cast<double>(point.bytes); };
  if (c.points.empty())
    return line(bytes);
  const auto after = std::ranges::lower_bound(c.points, bytes, {}, size);
  if (after == c.points.begin()) {
    const Point& first = c.points.front();
    const double least = std::min(c.latency_s, first.seconds);
    return least + (first.seconds - least) * bytes / size(first);
  }
  if (after == c.points.end()) {
    const Point& last = c.points.back();
    return last.seconds + c.seconds_per_byte * (bytes - size(last));
  }
  const Point &low = *(after - 1), &high = *after;
  const double part = (bytes - size(low)) / (size(high) - size(low));
  return low.seconds + part * (high.seconds - low.seconds);
}

double seconds_on(const Collective& collective,
                  double bytes,
                  std::int64_t measured,
                  std::int64_t planned) {
  TRIREME_EXPECT(measured >= 2, "measured on {} ranks", measured);
  if (planned <= 1)
    return 0;
  const double n = static_cast<double>(measured), N = static_cast<double>(planned);
  return (N - 1) / (n - 1) * measured_seconds(collective, bytes * n / N);
}

bool LinkCost::add(const Machine& machine, const Wire& wire) {
  const std::int64_t planned = participants(wire);
  const Link* best = nullptr;
  const auto order = [&](const Link& link) {
    const auto difference = [](std::int64_t a, std::int64_t b) {
      return distance(static_cast<double>(a), static_cast<double>(b));
    };
    return std::tuple(difference(participants(link), planned), difference(link.groups, wire.groups),
                      difference(link.ranks, wire.ranks));
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
    part.crowding = crowding(wire.groups * wire.ranks, machine.cpus) /
                    crowding(best->groups * wire.ranks, machine.cpus);
  parts_.push_back(part);
  extrapolated_ = extrapolated_ || *best != wire;
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
    sum += part.crowding * seconds_on(*collective, part.bytes * static_cast<double>(bytes),
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

std::optional<double> LinkCost::copy_s(std::int64_t bytes, std::int64_t ranks_on_host) const {
  if (parts_.empty() || parts_.back().link->copy_s_per_byte <= 0)
    return std::nullopt;
  const Link& link = *parts_.back().link;  // between hosts, where there are several
  const double more = static_cast<double>(ranks_on_host * link.hosts) /
                      static_cast<double>(link.ranks * link.groups);
  return control_s() + more * link.copy_s_per_byte * static_cast<double>(bytes);
}

Sharing LinkCost::sharing() const {
  Sharing worst;
  for (const Part& part : parts_) worst.raise_to(*part.link);
  return worst;
}

}  // namespace trireme::plan
