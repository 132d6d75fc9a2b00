// SPDX-License-Identifier: Apache-2.0
// Who started the ranks, and how MPI finds its peers: a launcher starts processes and offers them
// an interface of a process manager (PMIx, PMI-2, PMI-1), over which MPI_Init learns of the
// others. An MPI library that does not speak the launcher's interface makes each process a run of
// one rank, which nothing else would report.
//
// Read from the environment that the process was started with: MPI_Init adds to it, an Open MPI that
// found no peers what its own PMIx server would set. The names are those that Open MPI 4.1, MPICH
// 4.0 (Hydra) and Slurm 22.05 (srun --mpi=pmix, pmi2, none) were seen to leave. Nothing is
// measured. What is not known stays empty.
#pragma once

#include <functional>
#include <string>

namespace trireme::doctor {

struct Launch {
  std::string launcher;   ///< "mpirun of Open MPI", "mpiexec with Hydra" (MPICH, Intel), "srun"
  std::string interface;  ///< that it offers: "PMIx 4.2.2", "PMI-2", "PMI-1 or 2"
  std::string slurm;      ///< inside of a Slurm job: "job 3" or "job 3, step 0"
  int processes = 0;      ///< that it started
  std::string pmix;       ///< the MPI library's own: "OpenPMIx 4.2.2 …"

  bool operator==(const Launch&) const = default;
};

/// `variable` gives the value of an environment variable, "" where it is not set. `pmix` stays
/// empty.
Launch launch_of(const std::function<std::string(const char*)>& variable);

/// What libpmix says of itself where MPI has loaded one into this process; else "".
std::string loaded_pmix();

/// Of this process. Requires: MPI is initialized.
Launch launch_here();

/// "started by srun (job 3, step 0): 2 processes, PMIx 4.2.2; MPI uses OpenPMIx 4.2.2".
std::string launch_text(const Launch& launch);

}  // namespace trireme::doctor
