// SPDX-License-Identifier: Apache-2.0
// A fake NVML with one GPU, "GPU-1": each call advances its energy counter by 2500 mJ.
#include <cstring>

extern "C" {
int nvmlInit_v2() {
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strcmp(uuid, "GPU-1") == 0 ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void* /*device*/, unsigned long long* millijoules) {
  static unsigned long long counter = 0;
  *millijoules = counter += 2500;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* /*device*/, unsigned long long* reasons) {
  *reasons = 0x40;
  return 0;
}
int nvmlDeviceGetClockInfo(void* /*device*/, int /*clock*/, unsigned* megahertz) {
  *megahertz = 345;
  return 0;
}
int nvmlDeviceGetTemperature(void* /*device*/, int /*sensor*/, unsigned* celsius) {
  *celsius = 91;
  return 0;
}
}
