// SPDX-License-Identifier: Apache-2.0
// A machine file: the measured costs from which the time of a step is predicted. `trireme bench
// reduce --fit` writes it, `trireme plan --machine` reads it, and users may edit it. It is YAML,
// read as a deck is, so that mistakes have line and column. Keys have units in names or comments.
//
// 1. A link is one way of communicating among a number of ranks on a number of hosts. Its
//    collectives are measured at several sizes; bytes are those of the whole bucket.
// 2. A compute row is the step of one deck on one rank, without communication, measured while
//    `ranks_on_host` ranks of a host did the same. Its model is named by what decides its time.
// 3. What was measured on the slowest rank is what is written: ranks wait for it in every step.
// 4. `version` counts the formats: a reader refuses those that are newer than itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
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

/// A bucket's size, and the median of the slowest rank's times, at most that of any larger bucket.
struct Point {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// One operation over one link, with the fit seconds = latency_s + seconds_per_byte · bytes.
struct Collective {
  Operation operation = Operation::reduce_scatter;
  Numbers dtype = Numbers::fp32;  ///< of the elements that are sent
  double latency_s = 0;
  double seconds_per_byte = 0;
  double residual = 0;        ///< root mean square of the fit's relative errors
  std::vector<Point> points;  ///< sizes ascend
};

/// The connection over which ranks communicate.
struct Wire {
  comm::Transport transport = comm::Transport::self;  ///< never auto
  comm::Reduction reduction = comm::Reduction::sum;
  std::int64_t ranks = 1, hosts = 1;
  /// Groups of `ranks` ranks on the same hosts that communicate at once (parallel.replicate).
  std::int64_t groups = 1;
  bool operator==(const Wire&) const = default;
};

/// How collectives and compute slow each other down.
struct Sharing {
  double compute_lost = 0;  ///< share of its speed that compute loses while a collective runs
  double stretch = 1;       ///< factor by which compute prolongs a collective
  /// Share of the time of collectives during compute in which a rank waits for the slowest rank, on
  /// average, because ranks are slowed down unequally.
  double waiting_during = 0;

  void raise_to(const Sharing& other) {
    compute_lost = std::max(compute_lost, other.compute_lost);
    stretch = std::max(stretch, other.stretch);
    waiting_during = std::max(waiting_during, other.waiting_during);
  }
};

struct Link : Wire, Sharing {
  double sums_s = 0;     ///< to add up norm and loss of a step over all ranks
  double control_s = 0;  ///< for the ranks to agree on requests after a step
  /// To copy a rank's state to itself and to its partner (session/memory_copies.hpp), all ranks at
  /// the same time. 0: not measured.
  double copy_s_per_byte = 0;
  std::vector<Collective> collectives = {};
};

/// When backward has completed a parameter's gradient: what its bucket's reduction waits for.
struct ReadyAt {
  std::string parameter;
  double share = 0;  ///< of the last micro-step
};

/// What one rank computes in a step, without communication. Rows differ by model, precision,
/// threads, micro_sequences and ranks_on_host.
struct Compute {
  std::string model;  ///< the facts that decide the time of a micro-step
  Numbers precision = Numbers::fp32;
  std::int64_t threads = 1;  ///< of a rank
  std::int64_t micro_sequences = 1;
  std::int64_t ranks_on_host = 1;  ///< that computed at the same time
  double micro_step_flops = 0;     ///< of one rank, by the model's formula
  double micro_step_s = 0;         ///< forward and backward
  double last_micro_step_s = 0;    ///< of one in which gradients are reported ready
  double rest_s = 0;               ///< outside of micro-steps and optimizer: zeros, data
  double norm_s_per_element = 0;   ///< to square and add a gradient that a rank owns
  double update_s_per_element = 0;
  double matrices_s = 0;       ///< Muon: to orthogonalize all matrices on one rank
  double waiting_share = 0;    ///< mean share of a step in which ranks wait for the slowest
  std::vector<ReadyAt> ready;  ///< in the order of backward

  /// Seconds of a step without norm and update.
  [[nodiscard]] double seconds(std::int64_t micro_steps) const {
    return rest_s + static_cast<double>(micro_steps - 1) * micro_step_s + last_micro_step_s;
  }
};

struct Machine {
  std::int64_t version = machine_version;
  std::string processor;            ///< of rank 0's host
  std::int64_t cpus = 1;            ///< of a host, that its ranks may use
  std::int64_t ranks_per_host = 1;  ///< where `plan` has no --hosts
  double storage_bytes_per_s = 0;   ///< of all hosts together, until a checkpoint is on the disk
  double storage_latency_s = 0;     ///< of any checkpoint
  double storage_tensor_s = 0;      ///< further time for each tensor: a parameter in one state
  std::vector<Link> links;
  std::vector<Compute> compute;
};

/// How far apart two sizes are: the logarithm of their ratio.
double distance(double a, double b);
/// Number of threads or ranks per CPU, at least 1.
double crowding(std::int64_t all, std::int64_t cpus);

/// `older`, with the new measurements. They replace links and compute rows of the same kind.
Machine merged(Machine older, const Machine& newer);

/// Throws UserError with all findings; for a version that this program cannot read, only with that.
/// `path` only names the file in messages.
Machine parse_machine(const std::string& bytes, const std::string& path);

/// The same from a file. Throws UserError also when it cannot be read.
Machine read_machine(const std::string& path);

/// The text of a machine file, from which parse_machine() reads the same numbers.
std::string machine_text(const Machine& machine);

/// For people: links with their fits, compute rows.
std::string machine_table(const Machine& machine);

/// Key of times, which are at most 1e6 s.
inline constexpr Key<double> seconds_key{.unit = "s", .min = 0.0, .max = 1e6};
inline constexpr Key<double> needed_seconds{
    .unit = "s", .min = 0.0, .max = 1e6, .above_min = true, .required = true};
inline constexpr Key<double> share_key{.unit = "1", .min = 0.0, .max = 1.0};

template <class V>
void describe(V& v, Point& p) {
  v("bytes", p.bytes, {.unit = "bytes", .min = 1, .required = true});
  v("seconds", p.seconds, needed_seconds);
}

template <class V>
void describe(V& v, Collective& c) {
  v("operation", c.operation, {.required = true});
  v("dtype", c.dtype, {.required = true});
  v("latency_s", c.latency_s, {.unit = "s", .min = 0.0, .max = 1e6, .required = true});
  v("seconds_per_byte", c.seconds_per_byte,
    {.unit = "s/byte", .min = 0.0, .max = 1.0, .required = true});
  v("residual", c.residual, {.unit = "1", .min = 0.0});
  v.list("points", c.points, {});
}

template <class V>
void describe(V& v, Link& l) {
  v("transport", l.transport, {.required = true});
  v("reduction", l.reduction, {});
  v("hosts", l.hosts, {.min = 1, .required = true});
  v("ranks", l.ranks, {.min = 2, .max = 1 << 20, .required = true});
  v("groups", l.groups, {.min = 1});
  v("sums_s", l.sums_s, seconds_key);
  v("control_s", l.control_s, seconds_key);
  v("compute_lost", l.compute_lost, share_key);
  v("stretch", l.stretch, {.unit = "1", .min = 1.0, .max = 1e6});
  v("waiting_during", l.waiting_during, share_key);
  v("copy_s_per_byte", l.copy_s_per_byte, {.unit = "s/byte", .min = 0.0, .max = 1.0});
  v.list("collectives", l.collectives, {});
}

template <class V>
void describe(V& v, ReadyAt& r) {
  v("parameter", r.parameter, {.required = true});
  v("share", r.share, {.unit = "1", .min = 0.0, .max = 1.0, .required = true});
}

template <class V>
void describe(V& v, Compute& c) {
  v("model", c.model, {.required = true});
  v("precision", c.precision, {.required = true});
  v("threads", c.threads, {.min = 1, .required = true});
  v("micro_sequences", c.micro_sequences, {.min = 1, .required = true});
  v("ranks_on_host", c.ranks_on_host, {.min = 1, .required = true});
  v("micro_step_flops", c.micro_step_flops,
    {.unit = "FLOP", .min = 0.0, .above_min = true, .required = true});
  v("micro_step_s", c.micro_step_s, needed_seconds);
  v("last_micro_step_s", c.last_micro_step_s, needed_seconds);
  v("rest_s", c.rest_s, seconds_key);
  v("norm_s_per_element", c.norm_s_per_element, {.unit = "s", .min = 0.0, .max = 1.0});
  v("update_s_per_element", c.update_s_per_element, {.unit = "s", .min = 0.0, .max = 1.0});
  v("matrices_s", c.matrices_s, seconds_key);
  v("waiting_share", c.waiting_share, share_key);
  v.list("ready", c.ready, {});
}

template <class V>
void describe(V& v, Machine& m) {
  v("version", m.version, {.required = true});
  v("processor", m.processor, {});
  v("cpus", m.cpus, {.min = 1});
  v("ranks_per_host", m.ranks_per_host, {.min = 1});
  v("storage_bytes_per_s", m.storage_bytes_per_s, {.unit = "bytes/s", .min = 0.0});
  v("storage_latency_s", m.storage_latency_s, seconds_key);
  v("storage_tensor_s", m.storage_tensor_s, seconds_key);
  v.list("links", m.links, {});
  v.list("compute", m.compute, {});
}

}  // namespace trireme::plan
