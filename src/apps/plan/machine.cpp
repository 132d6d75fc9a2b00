// SPDX-License-Identifier: Apache-2.0
#include "plan/machine.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.hpp"

namespace trireme::plan {

double distance(double a, double b) {
  return std::abs(std::log(a / b));
}

double crowding(std::int64_t all, std::int64_t cpus) {
  return std::max(1.0, static_cast<double>(all) / static_cast<double>(cpus));
}

Machine merged(Machine older, const Machine& newer) {
  const auto replace = [](auto& rows, const auto& fresh, const auto& same) {
    for (const auto& row : fresh) {
      std::erase_if(rows, [&](const auto& other) { return same(row, other); });
      rows.push_back(row);
    }
  };
  replace(older.links, newer.links, [](const Link& a, const Link& b) {
    return a.transport == b.transport && a.reduction == b.reduction && a.hosts == b.hosts &&
           a.ranks == b.ranks && a.groups == b.groups;
  });
  replace(older.compute, newer.compute, [](const Compute& a, const Compute& b) {
    return a.model == b.model && a.precision == b.precision && a.threads == b.threads &&
           a.micro_sequences == b.micro_sequences && a.ranks_on_host == b.ranks_on_host;
  });
  older.processor = newer.processor;
  older.cpus = newer.cpus;
  older.ranks_per_host = std::max(older.ranks_per_host, newer.ranks_per_host);
  older.storage_bytes_per_s = newer.storage_bytes_per_s;
  older.storage_latency_s = newer.storage_latency_s;
  older.storage_tensor_s = newer.storage_tensor_s;
  return older;
}

std::string machine_table(const Machine& machine) {
  std::string text = fmt::format("{:<15}{:>6}{:>7}{:>8}  {:<16}{:<6}{:>12}{:>12}{:>10}{:>12}\n",
                                 "transport", "hosts", "ranks", "groups", "operation", "dtype",
                                 "latency us", "GB/s", "residual", "sizes");
  for (const Link& link : machine.links) {
    for (const Collective& one : link.collectives)
      text += fmt::format("{:<15}{:>6}{:>7}{:>8}  {:<16}{:<6}{:>12.2f}{:>12.3f}{:>8.1f} %{:>12}\n",
                          word(link.transport), link.hosts, link.ranks, link.groups,
                          word(one.operation), word(one.dtype), one.latency_s * 1e6,
                          1e-9 / one.seconds_per_byte, 100 * one.residual, one.points.size());
    text += fmt::format(
        "  a step's sums {:.1f} us, its agreement {:.1f} us; during a collective, compute is "
        "{:.0f} % slower, and the collective takes {:.2f} times as long\n",
        link.sums_s * 1e6, link.control_s * 1e6, 100 * link.compute_lost, link.stretch);
  }
  for (const Compute& row : machine.compute)
    text += fmt::format(
        "micro-step of {} sequences, {}, {} {}, {} {} on a host: {} ({:.4g} TFLOP/s); {}\n",
        row.micro_sequences, word(row.precision), row.threads,
        row.threads == 1 ? "thread" : "threads", row.ranks_on_host,
        row.ranks_on_host == 1 ? "rank" : "ranks", duration_text(row.micro_step_s),
        row.micro_step_flops / row.micro_step_s / 1e12, row.model);
  if (machine.storage_bytes_per_s > 0)
    text += fmt::format(
        "checkpoints: {}, {} per tensor, {}/s\n", duration_text(machine.storage_latency_s),
        duration_text(machine.storage_tensor_s), bytes_text(machine.storage_bytes_per_s));
  return text;
}

}  // namespace trireme::plan
