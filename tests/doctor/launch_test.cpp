// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "doctor/host_facts.hpp"

namespace trireme::doctor {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_with(const Variables& variables) {
  return launch_of([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

/// Variables that Slurm 22.05 sets for every task of a step.
Variables in_step(Variables more) {
  more.insert({{"SLURM_JOB_ID", "3"},
               {"SLURM_STEP_ID", "0"},
               {"SLURM_STEP_NUM_TASKS", "2"},
               {"SLURM_PROCID", "1"},
               {"SLURM_NTASKS", "2"}});
  return more;
}

TEST(Launch, OfOpenMpi) {
  const Variables open_mpi = {
      {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "602800129"}, {"PMIX_VERSION", "4.2.2"}};
  EXPECT_EQ(launch_with(open_mpi), (Launch{"mpirun of Open MPI", "PMIx 4.2.2", "", 4, ""}));
  // Its daemons are a Slurm step with one task per node.
  EXPECT_EQ(launch_with(in_step(open_mpi)),
            (Launch{"mpirun of Open MPI", "PMIx 4.2.2", "job 3, step 0", 4, ""}));
}

TEST(Launch, OfHydra) {
  const Variables hydra = {{"MPI_LOCALNRANKS", "2"}, {"PMI_SIZE", "2"}, {"PMI_RANK", "0"}};
  EXPECT_EQ(launch_with(hydra), (Launch{"mpiexec with Hydra", "PMI-1 or 2", "", 2, ""}));
  EXPECT_EQ(launch_with({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}),
            (Launch{"a launcher with PMI", "PMI-1 or 2", "", 2, ""}));
}

TEST(Launch, OfSrunWithEveryInterface) {
  EXPECT_EQ(launch_with(in_step({{"SLURM_MPI_TYPE", "pmix"},
                                 {"PMIX_NAMESPACE", "slurm.pmix.3.0"},
                                 {"PMIX_VERSION", "4.2.2"},
                                 {"OMPI_COMM_WORLD_SIZE", "2"}})),
            (Launch{"srun", "PMIx 4.2.2", "job 3, step 0", 2, ""}));
  EXPECT_EQ(
      launch_with(in_step({{"SLURM_MPI_TYPE", "pmi2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})),
      (Launch{"srun", "PMI-2", "job 3, step 0", 2, ""}));
  EXPECT_EQ(launch_with(in_step({})), (Launch{"srun", "", "job 3, step 0", 2, ""}));
}

TEST(Launch, OfNone) {
  EXPECT_EQ(launch_with({}), Launch{});
  // A batch script and an interactive shell are not steps of srun.
  EXPECT_EQ(launch_with({{"SLURM_JOB_ID", "7"}}), (Launch{"", "", "job 7", 0, ""}));
  EXPECT_EQ(launch_with({{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "4294967290"}}),
            (Launch{"", "", "job 7", 0, ""}));
  EXPECT_EQ(launch_with({{"OMPI_COMM_WORLD_SIZE", "x"}}).processes, 0);
}

TEST(Launch, IsThatOfTheProcessAsItWasStarted) {
  const Launch before = launch_here();
  setenv("OMPI_COMM_WORLD_SIZE", "99", 1);
  setenv("PMIX_NAMESPACE", "slurm.pmix.1.0", 1);
  EXPECT_EQ(launch_here(), before);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMIX_NAMESPACE");
}

TEST(Launch, InWords) {
  EXPECT_EQ(launch_text({"srun", "PMIx 4.2.2", "job 3, step 0", 2, "OpenPMIx 4.2.2"}),
            "started by srun (job 3, step 0): 2 processes, PMIx 4.2.2; MPI uses OpenPMIx 4.2.2");
  EXPECT_EQ(launch_text({"srun", "", "job 3, step 0", 1, ""}),
            "started by srun (job 3, step 0): 1 process, without a process manager interface");
  EXPECT_EQ(launch_text({}), "started without a known launcher");
}

}  // namespace
}  // namespace trireme::doctor
