// SPDX-License-Identifier: Apache-2.0
// The ways in which buckets can travel between ranks.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

namespace trireme::comm {

/// shared_memory: ranks of one host read each other's buckets. mpi: messages. hierarchical: shared
/// memory inside a host, messages between hosts. nccl: GPU memory.
enum class Transport : std::uint8_t { automatic, self, shared_memory, mpi, hierarchical, nccl };

/// sum: whatever order is fastest. ordered: rank order. tree: pairs, then pairs of pairs. With the
/// last two, the same bits on every transport and placement.
enum class Reduction : std::uint8_t { sum, ordered, tree };

}  // namespace trireme::comm

template <>
struct trireme::EnumNames<trireme::comm::Transport> {
  using enum comm::Transport;
  static constexpr std::pair<comm::Transport, const char*> table[] = {
      {automatic, "auto"},
      {self, "self"},
      {shared_memory, "shared_memory"},
      {mpi, "mpi"},
      {hierarchical, "hierarchical"},
      {nccl, "nccl"}};
};
template <>
struct trireme::EnumNames<trireme::comm::Reduction> {
  using enum comm::Reduction;
  static constexpr std::pair<comm::Reduction, const char*> table[] = {
      {sum, "sum"}, {ordered, "ordered"}, {tree, "tree"}};
};
