// SPDX-License-Identifier: Apache-2.0
// Reads the energy counters of a host's CPUs and memory and of a rank's GPU.
//
//   CPUs  /sys/cray/pm_counters/{cpu,memory}_energy, in J, which Slurm reads as well; otherwise RAPL,
//         /sys/class/powercap/intel-rapl:N with the names package-N and dram, in uJ, which wrap
//         around at max_energy_range_uj. By default Linux lets only root read them
//   GPU   NVML (libnvidia-ml.so.1, loaded if present): total energy, in mJ
//
// A host is known if all of its counters can be read; a missing counter is never 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::device {

/// Energy in uJ, and the number of missing parts; Energy values can be summed over ranks.
struct Energy {
  std::int64_t cpu_uj = 0, cpu_missing = 0;
  std::int64_t gpu_uj = 0, gpu_missing = 0;

  /// In J; NaN if a part is missing.
  [[nodiscard]] double cpu() const;
  [[nodiscard]] double gpu() const;

  void add(const Energy& more);
};

class EnergyMeter {
 public:
  struct Places {
    std::string root;  ///< prefix of /sys
    const char* nvml = "libnvidia-ml.so.1";
  };

  /// `counts_host`: true on one rank of each host, because its ranks share the CPUs. `gpu`: the UUID
  /// of this rank's GPU, or "".
  EnergyMeter(bool counts_host, const std::string& gpu) : EnergyMeter(counts_host, gpu, Places{}) {}
  EnergyMeter(bool counts_host, const std::string& gpu, const Places& places);
  ~EnergyMeter();

  void begin();
  /// This rank's part of the energy since begin() or the last call.
  [[nodiscard]] Energy used();
  /// "RAPL (package-0, dram)" or why there is nothing.
  [[nodiscard]] const std::string& cpu_text() const { return cpu_text_; }
  [[nodiscard]] const std::string& gpu_text() const { return gpu_text_; }
  /// The current reasons for reduced GPU clocks.
  [[nodiscard]] std::vector<std::string> gpu_slowdowns() const;

 private:
  struct Counter {
    int file = -1;
    std::int64_t unit_uj = 1,
                 range = 0;  // of the counter, which wraps around above `range`; 0: never
    std::int64_t begin = 0;
  };
  class Gpu;

  void open_counters(const std::string& root);
  void open_counter(const std::string& path, const Counter& counter);

  const bool counts_host_;
  std::vector<Counter> counters_;  // empty: not all can be read
  std::unique_ptr<Gpu> gpu_;       // null: none, or it has no counter
  std::int64_t gpu_begin_ = 0;
  std::string cpu_text_, gpu_text_;
};

}  // namespace trireme::device
