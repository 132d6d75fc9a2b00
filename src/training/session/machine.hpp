// SPDX-License-Identifier: Apache-2.0
// Choices that the deck leaves to the machine: threads, precision, device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "ops/options.hpp"

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// `threads: auto` is this rank's share of the CPUs that it may use: all of them if it is bound, an
/// equal part if the ranks of its host share the whole machine; but at most an equal part of the
/// quota of control groups (docker --cpus, CPUQuota of systemd), and at least 1. `note`, if any,
/// receives a line if the quota was the limit, or is exceeded by the deck's number.
int choose_threads(const Or<std::int64_t>& asked,
                   const comm::World& world,
                   std::string* note = nullptr);
/// The same for a rank that may use `usable` CPUs, with `quota` CPUs for the `ranks` ranks of its
/// host; 0: no quota.
int share_of_cpus(int usable, bool bound, int ranks, double quota);

/// The device of a single rank that sees these GPUs.
device::Kind choose_kind(DeviceChoice choice, const device::CudaCensus& gpus);

/// Collective. Throws UserError if any rank would compute on a GPU, for commands that measure only
/// CPUs: `what` in the message ("trireme tune"). `gpus`: those of this rank.
void expect_cpus(comm::World& world,
                 const std::string& what,
                 DeviceChoice choice,
                 const device::CudaCensus& gpus);

/// Collective. A line for the log if each rank of a host sees only one GPU (`visible` is 1), and
/// not all of them see the same one (`gpu` names that of this rank): the launcher has assigned the
/// GPUs, and NCCL can then connect them only through the host's memory. Else "".
std::string isolation_note(comm::World& world, int visible, const std::string& gpu);

/// The CPU, or this rank's GPU: the only one that it sees, or the one whose number is its local
/// rank. `device: auto` uses GPUs if every rank has one. `notes`, if any, receives a line if `auto`
/// chose less than some rank supports. Collective. Throws DeviceError if a rank has no GPU.
std::unique_ptr<device::Device> open_device(DeviceChoice choice,
                                            int threads,
                                            comm::World& world,
                                            std::vector<std::string>* notes = nullptr);
/// The deck's options for products and attention on that device.
ops::Options operation_options(const Job& job, const device::Device& device);
/// The deck's options for collectives, with these replicas of the state.
comm::Options communicator_options(const Sections& config, const layout::ReplicaRanks& replicas);

/// For GPUs, one line per rank: host, GPU, UUID, and the CPUs that the rank may use. Collective.
std::vector<std::string> gpu_table(comm::World& world, const device::Device& device);

/// `precision: auto` is bf16 if every rank multiplies bf16 faster than fp32, else fp32. Collective;
/// `notes` as above. `fast_bf16`: whether this rank does.
DType choose_dtype(Precision precision,
                   bool fast_bf16,
                   comm::World& world,
                   std::vector<std::string>* notes = nullptr);
DType choose_dtype(Precision precision,
                   const device::Device& device,
                   comm::World& world,
                   std::vector<std::string>* notes = nullptr);

}  // namespace trireme::session
