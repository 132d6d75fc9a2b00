// SPDX-License-Identifier: Apache-2.0
#include "train/machine.hpp"

#include <algorithm>

#include <sched.h>
#include <unistd.h>

#include "ops/matmul.hpp"

namespace trireme::train {

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return CPU_COUNT(&set);
}

int choose_threads(const Or<std::int64_t>& asked, const comm::World& world) {
  if (asked.given())
    return static_cast<int>(*asked.value);
  const int usable = usable_cpus();
  const bool bound = usable < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, bound ? usable : usable / world.local_size());
}

std::unique_ptr<device::Device> open_device(DeviceChoice choice, int threads) {
  if (choice == DeviceChoice::cuda)
    throw UserError("run.device: this build has no CUDA; use run.device: cpu");
  return device::make_cpu_device(threads);
}

DType choose_dtype(Precision precision, const device::Device& device) {
  switch (precision) {
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::automatic:
      break;
  }
  return ops::has_fast_bf16(device) ? DType::bf16 : DType::f32;
}

}  // namespace trireme::train
