// SPDX-License-Identifier: Apache-2.0
// The launcher of the ranks and the interface over which MPI finds its peers. A launcher starts
// processes and offers them a process manager's interface (PMIx, PMI-2, PMI-1), from which MPI_Init
// learns the other processes. If the MPI library does not support this interface, each process
// becomes a run of one rank, without any error.
//
// Read from the environment at the start of the process, since MPI_Init adds variables. The names
// of variables were observed with Open MPI 4.1, MPICH 4.0 (Hydra) and Slurm 22.05 (srun --mpi=pmix,
// pmi2, none). Facts that are not known stay empty.
#pragma once

#include <functional>
#include <string>

namespace trireme::doctor {

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

/// The launch of this process. Requires: MPI is initialized.
Launch launch_here();

/// "started by srun (job 3, step 0): 2 processes, PMIx 4.2.2; MPI uses OpenPMIx 4.2.2".
std::string launch_text(const Launch& launch);

}  // namespace trireme::doctor
