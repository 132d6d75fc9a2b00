// SPDX-License-Identifier: Apache-2.0
// Options of GPU operations that can be computed in several ways. CPU operations ignore them.
// 1. Options are values. An operation copies its options at construction. The device stores none,
//    so two models on one device may differ.
// 2. The values below are the defaults of the deck's section `gpu` (session/config.hpp uses them).
//    With them runs are bitwise reproducible. A tool without a deck omits them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::ops {

/// Of a Matmul.
struct ProductOptions {
  /// At the first call of each product, time the library's algorithms, also with a separate GELU,
  /// and keep the fastest. false: keep the heuristics' first choice, the same in every run.
  bool timed = false;
  bool fused_gelu = true;           ///< fuse GELU with products, if the library can
  bool fused_gelu_backward = true;  ///< the same for its gradient
  bool fused_row_sums = false;      ///< fuse row sums with products, if the library can
  int blocks = 0;                   ///< multiprocessors to plan for; 0: all
  /// Scratch that a product may ask for, for sums that several blocks share.
  std::size_t workspace_bytes = std::size_t{32} << 20U;
};

/// Which kernels compute attention in bf16 on a GPU.
enum class AttentionKernels : std::uint8_t {
  automatic,  ///< cuDNN's if they support the shape; ours if cuDNN refuses it
  cudnn,      ///< as automatic, but a refusal by cuDNN is an error
  own         ///< ours only
};

struct AttentionOptions {
  /// Backward adds up dQ in a fixed order, with dP in memory. false: in the order of arrival, which
  /// moves fewer bytes.
  bool deterministic = true;
  AttentionKernels kernels = AttentionKernels::automatic;
};

/// Options of all operations of a model.
struct Options {
  ProductOptions products = {};
  AttentionOptions attention = {};
};

}  // namespace trireme::ops
