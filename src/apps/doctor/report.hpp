// SPDX-License-Identifier: Apache-2.0
// `trireme doctor`: examines the machines of a job within a minute: their hardware, its speed, and
// problems for a run. It needs no deck, and runs alone or under mpirun. Users attach its output to
// questions.
//
// All ranks measure at the same time, since they compute at the same time. Matrix products are
// those of gpt2-124m's layers. It writes only a file without a name in `directory`, and first
// checks that it can. A measurement that fails is a problem of the report, and the others continue
// (attempts.hpp).
#pragma once

#include <string>
#include <vector>

#include "base/key.hpp"

#include "comm/control/placement.hpp"
#include "comm/control/world.hpp"

#include "bench/collectives.hpp"
#include "bench/rank_pairs.hpp"
#include "doctor/attempts.hpp"
#include "doctor/gpu_pairs.hpp"
#include "doctor/host_facts.hpp"
#include "doctor/measurements.hpp"

namespace trireme::doctor {

struct Report {
  std::string mpi;                             ///< name and version, as MPI reports them
  Launch launch;                               ///< of the first rank
  std::vector<HostFacts> hosts;                ///< in the order of their first rank
  comm::Placement placement;                   ///< of all ranks
  std::string device;                          ///< description of the first rank's device
  std::string no_gpu;                          ///< why the first rank sees no GPU; empty if it does
  std::vector<std::string> gpus;               ///< a line per rank; empty on CPUs
  std::string nccl;                            ///< its version; "" without CUDA in the build
  std::vector<std::string> nccl_settings;      ///< NCCL_* in the first rank's environment
  std::vector<GpuPair> gpu_pairs;              ///< inside hosts; empty on CPUs
  bool fast_bf16 = false;                      ///< of every rank: whether `precision: auto` is bf16
  std::vector<double> memory_bytes_per_s;      ///< by rank
  std::vector<double> fp32_flops, bf16_flops;  ///< FLOP/s of matrix products, by rank
  std::vector<bench::CollectivesBenchRow> collectives;  ///< empty with one rank
  std::vector<bench::RankPair> pairs;    ///< of hosts, or the first two ranks of one host
  std::vector<FileSystem> file_systems;  ///< of one rank of each host
  std::vector<Problem> problems;         ///< parts that failed
};

/// "node1 and node2", or "ranks 0 and 1 on node1".
std::string pair_name(const Report& report, const bench::RankPair& pair);
/// "collectives: not measured, or not on all ranks (rank 0): shared memory: …".
std::string problem_text(const Problem& problem);
std::string report_text(const Report& report);
std::string report_json(const Report& report);

struct Request {
  Or<std::int64_t> threads{.value = {}, .keyword = "auto"};  ///< as run.threads
  std::string directory = ".";                               ///< for checkpoints
};

/// Collective. Throws UserError if `directory` cannot be written, before the first measurement.
Report examine(comm::World& world, const Request& request);

}  // namespace trireme::doctor
