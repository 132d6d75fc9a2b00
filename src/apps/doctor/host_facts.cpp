// SPDX-License-Identifier: Apache-2.0
#include "doctor/host_facts.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/kernel_text.hpp"
#include "base/text.hpp"
#include "device/energy.hpp"

namespace trireme::doctor {

std::string size_text(std::int64_t bytes) {
  return bytes == unlimited ? "unlimited" : bytes_text(bytes);
}

std::string processor_name(std::string_view cpuinfo) {
  return value_of(cpuinfo, "model name");
}

std::vector<std::string> processor_features(std::string_view cpuinfo) {
  std::string all = value_of(cpuinfo, "flags");
  if (all.empty())
    all = value_of(cpuinfo, "Features");  // aarch64
  std::istringstream words(all);
  std::set<std::string> has;
  for (std::string word; words >> word;) has.insert(word);
  std::vector<std::string> found;
  for (const char* feature : {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve"})
    if (has.contains(feature))
      found.emplace_back(feature);
  return found;
}

std::string chosen_word(std::string_view text) {
  const auto begin = text.find('['), end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin)
    return {};
  return std::string(text.substr(begin + 1, end - begin - 1));
}

std::int64_t reserved_huge_bytes(std::string_view meminfo) {
  return number_at(value_of(meminfo, "HugePages_Total")).value_or(0) *
         bytes_of(meminfo, "Hugepagesize");
}

std::int64_t usable_bytes(const HostFacts& facts) {
  return facts.memory_limit_free_bytes == unlimited
             ? facts.available_bytes
             : std::min(facts.available_bytes, facts.memory_limit_free_bytes);
}

HostFacts facts_of_this_host(const std::string& host, const std::string& gpu) {
  HostFacts facts;
  facts.host = host;
  utsname system{};
  if (uname(&system) == 0)
    facts.kernel = std::string(system.sysname) + " " + system.release;
  const std::string cpuinfo = text_of("/proc/cpuinfo"), meminfo = text_of("/proc/meminfo");
  facts.processor = processor_name(cpuinfo);
  facts.features = processor_features(cpuinfo);
  facts.governor = trimmed(text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  facts.cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.memory_bytes = bytes_of(meminfo, "MemTotal");
  facts.available_bytes = bytes_of(meminfo, "MemAvailable");
  const GroupLimits groups = limits_of_groups();
  facts.cpu_limit = groups.cpus;
  facts.memory_limit_bytes = groups.memory_bytes;
  facts.memory_limit_free_bytes = groups.memory_free_bytes;
  facts.huge_pages = chosen_word(text_of("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.shared_huge_pages =
      chosen_word(text_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts.reserved_huge_bytes = reserved_huge_bytes(meminfo);
  facts.locked_bytes = ulimit_of(RLIMIT_MEMLOCK).value_or(unlimited);
  facts.open_files = ulimit_of(RLIMIT_NOFILE).value_or(unlimited);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  const device::EnergyMeter meter(true, gpu);
  facts.energy = meter.cpu_text() + (gpu.empty() ? "" : "; GPU: " + meter.gpu_text());
  return facts;
}

Launch launch_of(const std::function<std::string(const char*)>& variable) {
  // Slurm uses the highest step numbers for scripts and shells that srun did not start (slurm.h).
  constexpr std::int64_t first_special_step = 0xfffffff0;
  const std::string job = variable("SLURM_JOB_ID"), step = variable("SLURM_STEP_ID");
  const bool in_step =
      !job.empty() && !step.empty() && number_at(step).value_or(0) < first_special_step;
  const std::string space = variable("PMIX_NAMESPACE");
  const bool of_slurm = space.starts_with("slurm.");

  const auto processes = [&](const char* name) {
    return static_cast<int>(number_at(variable(name)).value_or(0));
  };
  Launch launch;
  // mpirun starts its daemons by srun, and Hydra its proxies, so a Slurm step does not imply srun.
  if (!of_slurm && !variable("OMPI_COMM_WORLD_SIZE").empty()) {
    launch.launcher = "mpirun of Open MPI";
    launch.processes = processes("OMPI_COMM_WORLD_SIZE");
  } else if (!of_slurm && !variable("MPI_LOCALNRANKS").empty()) {
    launch.launcher = "mpiexec with Hydra";
    launch.processes = processes("PMI_SIZE");
  } else if (of_slurm || in_step) {
    launch.launcher = "srun";
    launch.processes = processes("SLURM_STEP_NUM_TASKS");
  } else if (!variable("PMI_SIZE").empty()) {
    launch.launcher = "a launcher with PMI";
    launch.processes = processes("PMI_SIZE");
  }

  if (!space.empty())
    launch.interface = trimmed("PMIx " + variable("PMIX_VERSION"));
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

Launch launch_in_environment_of(const std::string& process) {
  std::map<std::string, std::string> variables;
  std::ifstream file("/proc/" + process + "/environ");
  for (std::string variable; std::getline(file, variable, '\0');)
    if (const auto equals = variable.find('='); equals != std::string::npos)
      variables[variable.substr(0, equals)] = variable.substr(equals + 1);
  return launch_of([&](const char* name) { return variables[name]; });
}

Launch launch_here() {
  Launch launch = launch_in_environment_of("self");
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
