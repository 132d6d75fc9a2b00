// SPDX-License-Identifier: Apache-2.0
// A machine file: the measured costs from which the time of a step is predicted.
// `trireme bench reduce --fit` writes one, `trireme plan --machine` reads it
// (plan/machine_file.hpp); users may read and edit it. Every key has its unit in its name or in a
// comment.
//
// 1. A link is one way of communicating among a number of ranks on a number of hosts. Its
//    collectives are measured at several sizes; bytes are those of the whole bucket.
// 2. A compute row is the step of one deck on one rank, without communication, measured while
//    `ranks_on_host` ranks of a host did the same. Its model is named by what decides its time.
// 3. What was measured on the slowest rank is what is written: ranks wait for it in every step.
// 4. `version` counts the formats: a reader refuses those that are newer than itself.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"

#include "comm/config.hpp"

namespace trireme::plan {

inline constexpr std::int64_t machine_version = 1;

enum class Operation : std::uint8_t { reduce_scatter, all_gather, all_reduce };
enum class Numbers : std::uint8_t { fp32, bf16 };

constexpr Numbers numbers_of(DType dtype) {
  return dtype == DType::bf16 ? Numbers::bf16 : Numbers::fp32;
}

/// A median, or the least of those of larger buckets where that is less.
struct Point {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// One operation over one link: measured points, and the line that was fitted through them, seconds
/// = latency_s + seconds_per_byte · bytes.
struct Collective {
  Operation operation = Operation::reduce_scatter;
  Numbers dtype = Numbers::fp32;
  double latency_s = 0;
  double seconds_per_byte = 0;
  double residual = 0;
  std::vector<Point> points;  ///< sizes ascend
};

/// Key by key in describe(). Links differ by transport, reduction, hosts, ranks and groups.
struct Link {
  comm::Transport transport = comm::Transport::shared_memory;
  comm::Reduction reduction = comm::Reduction::sum;
  std::int64_t hosts = 1;
  std::int64_t ranks = 2;
  std::int64_t groups = 1;
  double sums_s = 0;
  double control_s = 0;
  double compute_lost = 0;
  double stretch = 1;
  double waiting_during = 0;
  std::vector<Collective> collectives;
};

/// When backward has completed a parameter's gradient: what its bucket's reduction waits for.
struct ReadyAt {
  std::string parameter;
  double share = 0;
};

/// What one rank computes in a step, without communication. Rows differ by model, precision,
/// threads, micro_sequences and ranks_on_host.
struct Compute {
  std::string model;
  Numbers precision = Numbers::fp32;
  std::int64_t threads = 1;
  std::int64_t micro_sequences = 1;
  std::int64_t ranks_on_host = 1;
  double micro_step_flops = 0;
  double micro_step_s = 0;
  double last_micro_step_s = 0;
  double rest_s = 0;
  double norm_s_per_element = 0;
  double update_s_per_element = 0;
  double matrices_s = 0;
  double waiting_share = 0;
  std::vector<ReadyAt> ready;

  /// Of a step, but for norm and update.
  [[nodiscard]] double seconds(std::int64_t micro_steps) const {
    return rest_s + static_cast<double>(micro_steps - 1) * micro_step_s + last_micro_step_s;
  }
};

struct Machine {
  std::int64_t version = machine_version;
  std::string processor;
  std::int64_t cpus = 1;
  std::int64_t ranks_per_host = 1;
  double storage_bytes_per_s = 0;
  double storage_latency_s = 0;
  double storage_tensor_s = 0;
  std::vector<Link> links;
  std::vector<Compute> compute;
};

/// `older` with what was measured now: links and compute rows of the same kind give way.
Machine merged(Machine older, const Machine& newer);

/// For people: links with their fits, compute rows.
std::string machine_table(const Machine& machine);

template <class V>
void describe(V& v, Point& p) {
  v("bytes", p.bytes, {.unit = "bytes", .help = "Size of the bucket.", .min = 1, .required = true});
  v("seconds", p.seconds,
    {.unit = "s",
     .help = "Median over repetitions of the slowest rank's time.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .required = true});
}

template <class V>
void describe(V& v, Collective& c) {
  v("operation", c.operation, {.help = "The collective operation.", .required = true});
  v("dtype", c.dtype, {.help = "Type of the elements that are sent.", .required = true});
  v("latency_s", c.latency_s,
    {.unit = "s",
     .help = "Fitted time of an empty bucket.",
     .min = 0.0,
     .max = 1e6,
     .required = true});
  v("seconds_per_byte", c.seconds_per_byte,
    {.unit = "s/byte",
     .help = "Fitted time of each further byte of a bucket.",
     .min = 0.0,
     .max = 1.0,
     .required = true});
  v("residual", c.residual,
    {.unit = "1", .help = "Root mean square of the fit's relative errors.", .min = 0.0});
  v.list("points", c.points, {.help = "Measured times by size, in ascending order."});
}

template <class V>
void describe(V& v, Link& l) {
  v("transport", l.transport, {.help = "As parallel.transport, without auto.", .required = true});
  v("reduction", l.reduction, {.help = "As parallel.reduction."});
  v("hosts", l.hosts, {.help = "Hosts on which the ranks were.", .min = 1, .required = true});
  v("ranks", l.ranks,
    {.help = "Ranks that took part.", .min = 2, .max = 1 << 20, .required = true});
  v("groups", l.groups,
    {.help = "Number of groups of `ranks` ranks that shared a host and communicated at the same "
             "time, each within itself, as with parallel.replicate.",
     .min = 1});
  v("sums_s", l.sums_s,
    {.unit = "s",
     .help = "Time to add up norm and loss of a step over all ranks.",
     .min = 0.0,
     .max = 1e6});
  v("control_s", l.control_s,
    {.unit = "s",
     .help = "Time in which ranks agree on what is to be done after a step.",
     .min = 0.0,
     .max = 1e6});
  v("compute_lost", l.compute_lost,
    {.unit = "1",
     .help = "Share of its speed that compute loses while a collective runs.",
     .min = 0.0,
     .max = 1.0});
  v("stretch", l.stretch,
    {.unit = "1",
     .help = "Factor by which compute prolongs a collective that runs at the same time.",
     .min = 1.0,
     .max = 1e6});
  v("waiting_during", l.waiting_during,
    {.unit = "1",
     .help =
         "Share of the time of collectives during compute in which a rank waits for the slowest "
         "rank, on average, because ranks are slowed down unequally.",
     .min = 0.0,
     .max = 1.0});
  v.list("collectives", l.collectives, {.help = "Times of collective operations over this link."});
}

template <class V>
void describe(V& v, ReadyAt& r) {
  v("parameter", r.parameter, {.help = "Name of a parameter.", .required = true});
  v("share", r.share,
    {.unit = "1",
     .help = "Share of the last micro-step after which the parameter's gradient is complete.",
     .min = 0.0,
     .max = 1.0,
     .required = true});
}

template <class V>
void describe(V& v, Compute& c) {
  v("model", c.model,
    {.help = "Facts of the model that decide the time of a micro-step.", .required = true});
  v("precision", c.precision, {.help = "Precision of the run: fp32 or bf16.", .required = true});
  v("threads", c.threads, {.help = "Threads of a rank.", .min = 1, .required = true});
  v("micro_sequences", c.micro_sequences,
    {.help = "As batch.micro_sequences.", .min = 1, .required = true});
  v("ranks_on_host", c.ranks_on_host,
    {.help = "Ranks of a host that computed at the same time.", .min = 1, .required = true});
  v("micro_step_flops", c.micro_step_flops,
    {.unit = "FLOP",
     .help = "Work of a micro-step of one rank, by the model's formula.",
     .min = 0.0,
     .above_min = true,
     .required = true});
  v("micro_step_s", c.micro_step_s,
    {.unit = "s",
     .help = "Time of a micro-step, forward and backward.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .required = true});
  v("last_micro_step_s", c.last_micro_step_s,
    {.unit = "s",
     .help = "Time of a micro-step in which gradients are reported ready.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .required = true});
  v("rest_s", c.rest_s,
    {.unit = "s",
     .help = "Time of a step outside of micro-steps and optimizer: zeros, data.",
     .min = 0.0,
     .max = 1e6});
  v("norm_s_per_element", c.norm_s_per_element,
    {.unit = "s",
     .help = "Time to square and add an element of the gradients that a rank owns.",
     .min = 0.0,
     .max = 1.0});
  v("update_s_per_element", c.update_s_per_element,
    {.unit = "s", .help = "Time to update an element that a rank owns.", .min = 0.0, .max = 1.0});
  v("matrices_s", c.matrices_s,
    {.unit = "s",
     .help = "Muon: time to orthogonalize all matrices on one rank.",
     .min = 0.0,
     .max = 1e6});
  v("waiting_share", c.waiting_share,
    {.unit = "1",
     .help = "Share of a step that ranks wait for the slowest of them, on average.",
     .min = 0.0,
     .max = 1.0});
  v.list("ready", c.ready, {.help = "When each gradient is complete, in the order of backward."});
}

template <class V>
void describe(V& v, Machine& m) {
  v("version", m.version, {.help = "Version of this format.", .required = true});
  v("processor", m.processor, {.help = "Processor of rank 0's host."});
  v("cpus", m.cpus, {.help = "CPUs of a host that its ranks may use.", .min = 1});
  v("ranks_per_host", m.ranks_per_host,
    {.help = "Ranks of a host where `plan` has no --hosts.", .min = 1});
  v("storage_bytes_per_s", m.storage_bytes_per_s,
    {.unit = "bytes/s",
     .help = "Rate at which all hosts together write a checkpoint, until it is on the disk.",
     .min = 0.0});
  v("storage_latency_s", m.storage_latency_s,
    {.unit = "s", .help = "Time that any checkpoint takes.", .min = 0.0, .max = 1e6});
  v("storage_tensor_s", m.storage_tensor_s,
    {.unit = "s",
     .help = "Further time for each tensor of it: a parameter in one state.",
     .min = 0.0,
     .max = 1e6});
  v.list("links", m.links, {.help = "Ways in which ranks communicate."});
  v.list("compute", m.compute, {.help = "Times of what ranks compute."});
}

}  // namespace trireme::plan

template <>
struct trireme::EnumNames<trireme::plan::Operation> {
  using enum plan::Operation;
  static constexpr std::pair<plan::Operation, const char*> table[] = {
      {reduce_scatter, "reduce_scatter"}, {all_gather, "all_gather"}, {all_reduce, "all_reduce"}};
};
template <>
struct trireme::EnumNames<trireme::plan::Numbers> {
  using enum plan::Numbers;
  static constexpr std::pair<plan::Numbers, const char*> table[] = {{fp32, "fp32"}, {bf16, "bf16"}};
};
