// SPDX-License-Identifier: Apache-2.0
// Facts that the kernel reports about a host: processor, memory, limits of this process,
// directories. Nothing is measured. Facts that a kernel or a container hides are "not known"
// (empty, or 0), since a missing fact must not end an examination.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/control_groups.hpp"

namespace trireme::doctor {

struct HostFacts {
  std::string host;
  std::string kernel;                 ///< "Linux 6.1.0"
  std::string processor;              ///< "AMD EPYC 9354"
  std::vector<std::string> features;  ///< instruction sets that trireme uses, as in /proc/cpuinfo
  std::string governor;               ///< CPU frequency: "performance", "powersave"
  int cpus = 0;                       ///< online
  double cpu_limit = 0;               ///< of control groups, in CPUs; 0: none
  std::int64_t memory_bytes = 0, available_bytes = 0;
  std::int64_t memory_limit_bytes = unlimited;       ///< of control groups (control_groups.hpp)
  std::int64_t memory_limit_free_bytes = unlimited;  ///< free within these limits
  std::string huge_pages;                            ///< transparent: always, madvise, never
  std::string shared_huge_pages;         ///< in memory that ranks share: never, advise, always, …
  std::int64_t reserved_huge_bytes = 0;  ///< HugePages_Total, which trireme does not use
  std::int64_t locked_bytes = 0;         ///< limit of locked memory
  std::int64_t open_files = 0;           ///< limit of this process
  std::int64_t shm_bytes = 0, shm_free_bytes = 0;  ///< of /dev/shm
  std::string energy = {};  ///< which counters a run can read, or why it cannot

  bool operator==(const HostFacts&) const = default;
  auto fields() {
    return std::tie(host, kernel, processor, features, governor, cpus, cpu_limit, memory_bytes,
                    available_bytes, memory_limit_bytes, memory_limit_free_bytes, huge_pages,
                    shared_huge_pages, reserved_huge_bytes, locked_bytes, open_files, shm_bytes,
                    shm_free_bytes, energy);
  }
};

/// `gpu`: the UUID of a GPU whose energy is looked for, or "".
HostFacts facts_of_this_host(const std::string& host, const std::string& gpu = "");

/// Memory that processes can still allocate: the available memory, or less within control groups.
std::int64_t usable_bytes(const HostFacts& facts);

/// "8 MiB" or "unlimited".
std::string size_text(std::int64_t bytes);

/// "model name" in the text of /proc/cpuinfo; empty if there is none.
std::string processor_name(std::string_view cpuinfo);
/// The instruction sets in the text of /proc/cpuinfo that trireme uses, in a fixed order.
std::vector<std::string> processor_features(std::string_view cpuinfo);
/// The word in brackets of "always [madvise] never".
std::string chosen_word(std::string_view text);
/// HugePages_Total times Hugepagesize in this text.
std::int64_t reserved_huge_bytes(std::string_view meminfo);

/// The launcher of the ranks and the interface over which MPI finds its peers. A launcher starts
/// processes and offers them a process manager's interface (PMIx, PMI-2, PMI-1), from which MPI_Init
/// learns the other processes. If the MPI library does not support this interface, each process
/// becomes a run of one rank, without any error.
///
/// Read from the environment at the start of the process, since MPI_Init adds variables. The names
/// of variables were observed with Open MPI 4.1, MPICH 4.0 (Hydra) and Slurm 22.05 (srun --mpi=pmix,
/// pmi2, none). Facts that are not known stay empty.
struct Launch {
  std::string launcher;   ///< "mpirun of Open MPI", "mpiexec with Hydra" (MPICH, Intel), "srun"
  std::string interface;  ///< of the launcher: "PMIx 4.2.2", "PMI-2", "PMI-1 or 2"
  std::string slurm;      ///< inside a Slurm job: "job 3" or "job 3, step 0"
  int processes = 0;      ///< started by the launcher
  std::string pmix;       ///< of the MPI library: "OpenPMIx 4.2.2 …"

  bool operator==(const Launch&) const = default;
};

/// `variable` returns the value of an environment variable, or "". `pmix` stays empty.
Launch launch_of(const std::function<std::string(const char*)>& variable);

/// Version of the libpmix that MPI has loaded into this process, if any; else "".
std::string loaded_pmix();

/// The launch by the environment of `process`, a number or "self"; empty if it cannot be read.
Launch launch_in_environment_of(const std::string& process);

/// The launch of this process. Requires: MPI is initialized.
Launch launch_here();

/// "started by srun (job 3, step 0): 2 processes, PMIx 4.2.2; MPI uses OpenPMIx 4.2.2".
std::string launch_text(const Launch& launch);

}  // namespace trireme::doctor
