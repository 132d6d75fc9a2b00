// SPDX-License-Identifier: Apache-2.0
#include "doctor/launch.hpp"

#include <charconv>
#include <cstdint>
#include <fstream>
#include <map>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace trireme::doctor {
namespace {

/// 0 if the text is not a number.
std::int64_t number_in(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

std::string with_space(std::string_view name, const std::string& version) {
  return std::string(name) + (version.empty() ? "" : " ") + version;
}

}  // namespace

Launch launch_of(const std::function<std::string(const char*)>& variable) {
  // Slurm uses the highest step numbers for batch scripts and interactive shells, which srun did
  // not start (slurm.h).
  constexpr std::int64_t first_special_step = 0xfffffff0;
  const std::string job = variable("SLURM_JOB_ID"), step = variable("SLURM_STEP_ID");
  const bool in_step = !job.empty() && !step.empty() && number_in(step) < first_special_step;
  const std::string space = variable("PMIX_NAMESPACE");
  const bool of_slurm = space.starts_with("slurm.");

  Launch launch;
  // mpirun starts its daemons by srun, and Hydra its proxies, so a Slurm step does not imply srun.
  if (!of_slurm && !variable("OMPI_COMM_WORLD_SIZE").empty()) {
    launch.launcher = "mpirun of Open MPI";
    launch.processes = static_cast<int>(number_in(variable("OMPI_COMM_WORLD_SIZE")));
  } else if (!of_slurm && !variable("MPI_LOCALNRANKS").empty()) {
    launch.launcher = "mpiexec with Hydra";
    launch.processes = static_cast<int>(number_in(variable("PMI_SIZE")));
  } else if (of_slurm || in_step) {
    launch.launcher = "srun";
    launch.processes = static_cast<int>(number_in(variable("SLURM_STEP_NUM_TASKS")));
  } else if (!variable("PMI_SIZE").empty()) {
    launch.launcher = "a launcher with PMI";
    launch.processes = static_cast<int>(number_in(variable("PMI_SIZE")));
  }

  if (!space.empty())
    launch.interface = with_space("PMIx", variable("PMIX_VERSION"));
  else if (variable("SLURM_MPI_TYPE") == "pmi2")
    launch.interface = "PMI-2";
  else if (!variable("PMI_RANK").empty())
    launch.interface = "PMI-1 or 2";
  if (!job.empty())
    launch.slurm = in_step ? fmt::format("job {}, step {}", job, step) : "job " + job;
  return launch;
}

std::string loaded_pmix() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t /*size*/, void* found) {
        const std::string_view name = library->dlpi_name;
        if (name.substr(name.rfind('/') + 1).starts_with("libpmix.so"))
          *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  void* library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr)
    return {};
  std::string version;
  // PMIx standard 4, section "Query and control": const char* PMIx_Get_version(void), at any time.
  if (auto* get = reinterpret_cast<const char* (*)()>(dlsym(library, "PMIx_Get_version")))
    version = get();
  dlclose(library);
  return version;
}

Launch launch_here() {
  std::map<std::string, std::string> variables;
  std::ifstream file("/proc/self/environ");
  for (std::string variable; std::getline(file, variable, '\0');)
    if (const auto equals = variable.find('='); equals != std::string::npos)
      variables[variable.substr(0, equals)] = variable.substr(equals + 1);
  Launch launch = launch_of([&](const char* name) { return variables[name]; });
  launch.pmix = loaded_pmix();
  return launch;
}

std::string launch_text(const Launch& launch) {
  std::string text = launch.launcher.empty() ? "started without a known launcher"
                                             : "started by " + launch.launcher;
  if (!launch.slurm.empty())
    text += fmt::format(" ({})", launch.slurm);
  if (launch.processes > 0)
    text += fmt::format(": {} process{}", launch.processes, launch.processes == 1 ? "" : "es");
  if (!launch.launcher.empty())
    text += launch.interface.empty() ? ", without a process manager interface"
                                     : ", " + launch.interface;
  if (!launch.pmix.empty())
    text += "; MPI uses " + launch.pmix;
  return text;
}

}  // namespace trireme::doctor
