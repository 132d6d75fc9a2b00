// SPDX-License-Identifier: Apache-2.0
// What the deck leaves to the machine: threads, precision, device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"
#include "ops/options.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// `threads: auto` is this rank's share of the CPUs that it may use: all of them when it is bound
/// to some, an equal part when the ranks of its host share the whole machine. At least 1.
int choose_threads(const Or<std::int64_t>& asked, const comm::World& world);

/// What one rank alone would choose that sees these GPUs.
device::Kind choose_kind(DeviceChoice choice, const device::CudaCensus& gpus);

/// Throws UserError where the optimizer has no operations for such a device.
void expect_served(optim::Kind optimizer, device::Kind device);

/// Collective. A line where ranks of one host see one GPU each (`visible` is 1), and `gpu`, which
/// names this rank's, is not the same for all of them: a launcher gave each its own, and NCCL then
/// finds no way between them but the host's memory. Else nothing.
std::string isolation_note(comm::World& world, int visible, const std::string& gpu);

/// The CPU, or this rank's GPU: the only one that it sees, or the one with its local rank as
/// number. `device: auto` takes GPUs when every rank has one. Collective. Throws DeviceError when
/// there is none to be had.
std::unique_ptr<device::Device> open_device(DeviceChoice choice,
                                            int threads,
                                            comm::World& world,
                                            std::vector<std::string>* notes = nullptr);
/// The deck's choice. `notes`, if any, is given a line where `auto` means less than some rank has.
std::unique_ptr<device::Device> open_device(const Job& job,
                                            int threads,
                                            comm::World& world,
                                            std::vector<std::string>* notes = nullptr);

/// How a deck has a GPU's products and attention computed on that device.
ops::Options operation_options(const Job& job, const device::Device& device);

/// For GPUs, one line per rank: host, GPU, UUID, and the CPUs that the rank may use. Collective.
std::vector<std::string> gpu_table(comm::World& world, const device::Device& device);

/// `precision: auto` is bf16 where every rank multiplies bf16 faster than fp32, else fp32.
/// Collective; `notes` as above. `fast_bf16`: whether this rank's does.
DType choose_dtype(Precision precision,
                   bool fast_bf16,
                   comm::World& world,
                   std::vector<std::string>* notes = nullptr);
DType choose_dtype(Precision precision,
                   const device::Device& device,
                   comm::World& world,
                   std::vector<std::string>* notes = nullptr);

}  // namespace trireme::session
