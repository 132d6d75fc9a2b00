// SPDX-License-Identifier: Apache-2.0
#include "device/energy.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/kernel_text.hpp"

namespace trireme::device {
namespace {

namespace fs = std::filesystem;

double joules(std::int64_t microjoules, std::int64_t missing) {
  return missing > 0 ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(microjoules) * 1e-6;
}

/// Reads the number at the beginning of an open kernel file; nullopt if that fails.
std::optional<std::int64_t> read_number(int file) {
  std::array<char, 64> text{};
  const auto bytes = pread(file, text.data(), text.size(), 0);
  return bytes > 0 ? number_at({text.data(), static_cast<std::size_t>(bytes)}) : std::nullopt;
}

}  // namespace

double Energy::cpu() const {
  return joules(cpu_uj, cpu_missing);
}
double Energy::gpu() const {
  return joules(gpu_uj, gpu_missing);
}

void Energy::add(const Energy& more) {
  cpu_uj += more.cpu_uj;
  cpu_missing += more.cpu_missing;
  gpu_uj += more.gpu_uj;
  gpu_missing += more.gpu_missing;
}

/// NVML without its header: these functions have not changed since CUDA 9.
class EnergyMeter::Gpu {
 public:
  /// `why` receives the reason if the energy cannot be read, else "".
  Gpu(const char* library, const std::string& uuid, std::string& why)
      : library_(dlopen(library, RTLD_LAZY | RTLD_LOCAL)) {
    const auto problem = [&](int code) { return fmt::format("NVML returned error {}", code); };
    if (library_ == nullptr)
      why = fmt::format("{} cannot be opened", library);
    else if (const int code = call<>("nvmlInit_v2"))
      why = problem(code);
    else if (const int found =
                 call<const char*, void**>("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device_))
      why = problem(found);
    else if (!millijoules())
      why = "the GPU has no energy counter";
  }

  [[nodiscard]] std::optional<std::int64_t> millijoules() const {
    return get<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption");
  }

  [[nodiscard]] std::vector<std::string> slowdowns() const {
    // Bits of nvmlClocksThrottleReasons. A power cap is usual and the same for equal GPUs.
    constexpr std::uint64_t hardware = 0x8, thermal = 0x20 | 0x40, power_brake = 0x80;
    const auto reasons = get<unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons");
    const auto bits = static_cast<std::uint64_t>(reasons.value_or(0));
    if ((bits & (hardware | thermal | power_brake)) == 0)
      return {};
    const int sm_clock = 1, sensor = 0;
    unsigned megahertz = 0, celsius = 0;
    call<void*, int, unsigned*>("nvmlDeviceGetClockInfo", device_, sm_clock, &megahertz);
    call<void*, int, unsigned*>("nvmlDeviceGetTemperature", device_, sensor, &celsius);
    return {fmt::format("its GPU lowered its clock to {} MHz, because {} ({} C)", megahertz,
                        (bits & thermal) != 0 ? "it is too hot" : "its power supply demands it",
                        celsius)};
  }

 private:
  /// Returns NVML's error code, or 13 ("function not found") if the library lacks the function.
  template <class... Args>
  int call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    return function == nullptr ? 13 : function(args...);
  }
  template <class Value>
  [[nodiscard]] std::optional<std::int64_t> get(const char* name) const {
    Value value{};
    return call<void*, Value*>(name, device_, &value) == 0
               ? std::optional(static_cast<std::int64_t>(value))
               : std::nullopt;
  }

  void* library_;  // never closed, because drivers keep threads running
  void* device_ = nullptr;
};

EnergyMeter::EnergyMeter(bool counts_host, const std::string& gpu, const Places& places)
    : counts_host_(counts_host) {
  if (counts_host)
    open_counters(places.root);
  if (gpu.empty())
    return;
  gpu_ = std::make_unique<Gpu>(places.nvml, gpu, gpu_text_);
  if (!gpu_text_.empty())
    gpu_.reset();
  else
    gpu_text_ = "NVML";
}

EnergyMeter::~EnergyMeter() {
  for (const Counter& counter : counters_) ::close(counter.file);
}

void EnergyMeter::open_counter(const std::string& path, const Counter& counter) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  counters_.push_back(counter);
  counters_.back().file = file;
  if (file < 0 || !read_number(file))
    cpu_text_ = fmt::format("{} cannot be read ({}){}", path, std::strerror(errno),
                            errno == EACCES ? "; an administrator can allow it by chmod a+r" : "");
}

void EnergyMeter::open_counters(const std::string& root) {
  std::string names;
  std::error_code ignored;
  const auto open = [&](const std::string& name, const std::string& path, const Counter& counter) {
    names += (names.empty() ? "" : ", ") + name;
    open_counter(path, counter);
  };
  for (const std::string name : {"cpu", "memory"})
    if (const std::string path = fmt::format("{}/sys/cray/pm_counters/{}_energy", root, name);
        fs::exists(path, ignored))
      open(name, path, {.unit_uj = 1'000'000});
  std::string source = "pm_counters";
  if (counters_.empty()) {
    source = "RAPL";
    std::vector<std::string> zones;
    for (const auto& entry : fs::directory_iterator(root + "/sys/class/powercap", ignored))
      if (entry.path().filename().string().starts_with("intel-rapl:"))
        zones.push_back(entry.path().string());
    std::ranges::sort(zones);
    // The energy of "core" is part of the package's, and "psys" includes the packages.
    for (const std::string& zone : zones)
      if (const std::string name = trimmed(text_of(zone + "/name"));
          name.starts_with("package") || name == "dram")
        open(name, zone + "/energy_uj",
             {.range = number_at(text_of(zone + "/max_energy_range_uj")).value_or(0)});
  }
  if (counters_.empty())
    cpu_text_ = "there is no counter in /sys/class/powercap or /sys/cray/pm_counters";
  if (cpu_text_.empty()) {
    cpu_text_ = fmt::format("{} ({})", source, names);
    return;
  }
  for (const Counter& counter : counters_)
    if (counter.file >= 0)
      ::close(counter.file);
  counters_.clear();
}

void EnergyMeter::begin() {
  for (Counter& counter : counters_) counter.begin = read_number(counter.file).value_or(-1);
  gpu_begin_ = gpu_ ? gpu_->millijoules().value_or(-1) : -1;
}

Energy EnergyMeter::used() {
  Energy used;
  used.cpu_missing = counts_host_ && counters_.empty() ? 1 : 0;
  for (Counter& counter : counters_) {
    const std::int64_t now = read_number(counter.file).value_or(-1);
    const std::int64_t begin = std::exchange(counter.begin, now);
    if (now < 0 || begin < 0 || (now < begin && counter.range == 0)) {
      ++used.cpu_missing;
      continue;
    }
    const std::int64_t wrapped = now < begin ? counter.range + 1 : 0;
    used.cpu_uj += counter.unit_uj * (now - begin + wrapped);
  }
  const std::int64_t now = gpu_ ? gpu_->millijoules().value_or(-1) : -1;
  const std::int64_t begin = std::exchange(gpu_begin_, now);
  if (begin < 0 || now < begin)
    used.gpu_missing = 1;
  else
    used.gpu_uj = 1000 * (now - begin);
  return used;
}

std::vector<std::string> EnergyMeter::gpu_slowdowns() const {
  return gpu_ ? gpu_->slowdowns() : std::vector<std::string>();
}

}  // namespace trireme::device
