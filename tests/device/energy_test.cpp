// SPDX-License-Identifier: Apache-2.0
#include "device/energy.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/device.hpp"
#include "device/recorder.hpp"

#include "support/gpu.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::device {
namespace {

class EnergyCounters : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = scratch_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  void zone(const std::string& name, const std::string& kind, std::int64_t microjoules) {
    write(powercap + name + "/name", kind);
    write(powercap + name + "/energy_uj", std::to_string(microjoules));
    write(powercap + name + "/max_energy_range_uj", "999999");
  }
  [[nodiscard]] EnergyMeter meter(bool counts_host = true) const {
    return {counts_host, "", {.root = scratch_.path()}};
  }

  const std::string powercap = "/sys/class/powercap/";
  const test::ScratchDirectory scratch_;
};

TEST_F(EnergyCounters, OfPackagesAndMemoryAreAddedAndWrapAround) {
  zone("intel-rapl:0", "package-0", 100'000);
  zone("intel-rapl:0:0", "core", 1);  // inside its package
  zone("intel-rapl:0:1", "dram", 200'000);
  zone("intel-rapl:1", "package-1", 999'000);
  zone("intel-rapl:2", "psys", 1);            // includes the packages
  zone("intel-rapl-mmio:0", "package-0", 1);  // the same package-0
  write(powercap + "intel-rapl/enabled", "1");
  EnergyMeter meter = this->meter();
  EXPECT_EQ(meter.cpu_text(), "RAPL (package-0, dram, package-1)");
  meter.begin();
  for (const char* name : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"})
    zone(name, "as before", 900'000);
  zone("intel-rapl:0", "package-0", 100'300);
  zone("intel-rapl:0:1", "dram", 200'020);
  zone("intel-rapl:1", "package-1", 1);  // 1000 to the end of the range, 1 after it
  const Energy used = meter.used();
  EXPECT_EQ(used.cpu_uj, 300 + 20 + 1001);
  EXPECT_EQ(used.cpu_missing, 0);
  EXPECT_DOUBLE_EQ(used.cpu(), 1321e-6);
  EXPECT_TRUE(std::isnan(used.gpu()));
}

TEST_F(EnergyCounters, OfAHostAreReadByOneOfItsRanks) {
  zone("intel-rapl:0", "package-0", 100'000);
  EnergyMeter meter = this->meter(false);
  meter.begin();
  zone("intel-rapl:0", "package-0", 100'300);
  const Energy used = meter.used();
  EXPECT_EQ(used.cpu_uj, 0);
  EXPECT_EQ(used.cpu_missing, 0);  // another rank counts it
}

TEST_F(EnergyCounters, AreMissingTogetherAndNeverZero) {
  EnergyMeter nothing = meter();
  EXPECT_THAT(nothing.cpu_text(), testing::HasSubstr("there is no counter"));
  nothing.begin();
  EXPECT_TRUE(std::isnan(nothing.used().cpu()));
  zone("intel-rapl:0", "package-0", 100'000);
  zone("intel-rapl:1", "package-1", 100'000);
  std::filesystem::remove(scratch_.path() + powercap + "intel-rapl:1/energy_uj");
  EnergyMeter half = meter();
  EXPECT_THAT(half.cpu_text(),
              testing::EndsWith("intel-rapl:1/energy_uj cannot be read (No such file or "
                                "directory)"));
  half.begin();
  EXPECT_TRUE(std::isnan(half.used().cpu()));
}

TEST_F(EnergyCounters, OfCrayComeFirst) {
  zone("intel-rapl:0", "package-0", 100'000);
  write("/sys/cray/pm_counters/cpu_energy", "70 J 1700000000 us");
  write("/sys/cray/pm_counters/memory_energy", "9 J 1700000000 us");
  write("/sys/cray/pm_counters/energy", "500 J 1700000000 us");
  EnergyMeter meter = this->meter();
  EXPECT_EQ(meter.cpu_text(), "pm_counters (cpu, memory)");
  meter.begin();
  write("/sys/cray/pm_counters/cpu_energy", "75 J 1700000000 us");
  write("/sys/cray/pm_counters/memory_energy", "10 J 1700000000 us");
  EXPECT_DOUBLE_EQ(meter.used().cpu(), 6);
}

TEST(GpuEnergy, IsThatOfNvml) {
  if (!std::filesystem::exists(FAKE_NVML))
    GTEST_SKIP() << FAKE_NVML << " is not on this machine: these tests are in a bundle";
  EnergyMeter meter(false, "GPU-1", {.root = "", .nvml = FAKE_NVML});
  EXPECT_EQ(meter.gpu_text(), "NVML");
  meter.begin();
  EXPECT_DOUBLE_EQ(meter.used().gpu(), 2.5);
  EXPECT_THAT(
      meter.gpu_slowdowns(),
      testing::ElementsAre("its GPU lowered its clock to 345 MHz, because it is too hot (91 C)"));
}

TEST(GpuEnergy, IsMissingWithoutNvmlOrTheGpu) {
  EnergyMeter none(false, "GPU-1", {.root = "", .nvml = "libno-such-nvml.so"});
  EXPECT_EQ(none.gpu_text(), "libno-such-nvml.so cannot be opened");
  none.begin();
  EXPECT_TRUE(std::isnan(none.used().gpu()));
  if (std::filesystem::exists(FAKE_NVML)) {
    const EnergyMeter other(false, "GPU-2", {.root = "", .nvml = FAKE_NVML});
    EXPECT_EQ(other.gpu_text(), "NVML returned error 6");
  }
}

TEST(GpuEnergy, OfARealGpuIsAPowerThatItCanHave) {
  TRIREME_NEEDS_GPU();
  EnergyMeter meter(false, make_cuda_device(0)->uuid());
  if (meter.gpu_text() != "NVML")
    GTEST_SKIP() << meter.gpu_text();
  const double begin = steady_seconds();
  meter.begin();
  double joules = 0;
  // The counter of an H100 advances every 0.1 s.
  while (steady_seconds() - begin < 1) joules += meter.used().gpu();
  EXPECT_GT(joules, 20);
  EXPECT_LT(joules, 2000);
}

}  // namespace
}  // namespace trireme::device
