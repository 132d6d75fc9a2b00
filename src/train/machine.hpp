// SPDX-License-Identifier: Apache-2.0
// What the deck leaves to the machine: threads, precision, device.
#pragma once

#include <memory>

#include "base/dtype.hpp"

#include "device/device.hpp"

#include "comm/world.hpp"

#include "train/config.hpp"

namespace trireme::train {

/// CPUs that this process may run on (its affinity mask).
int usable_cpus();

/// `threads: auto` is this rank's share of the CPUs that it may use: all of them when it is bound
/// to some, an equal part when the ranks of its host share the whole machine. At least 1.
int choose_threads(const Or<std::int64_t>& asked, const comm::World& world);

/// Throws UserError when this build or machine has no such device.
std::unique_ptr<device::Device> open_device(DeviceChoice choice, int threads);

/// `precision: auto` is bf16 where the hardware multiplies bf16 matrices, else fp32.
DType choose_dtype(Precision precision, const device::Device& device);

}  // namespace trireme::train
