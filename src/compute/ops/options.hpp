// SPDX-License-Identifier: Apache-2.0
// How a GPU computes what can be computed in several ways. CPU operations have one way each and
// take no notice.
//
// 1. Options are values. An operation is given its own at construction and keeps them; nothing is
//    kept with the device, so two models on one device may differ.
// 2. The values below are the defaults of the deck's section `gpu` (session/config.hpp takes them
//    from here), with which runs repeat to the bit. A tool that has no deck leaves them out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::ops {

/// Of a Matmul.
struct ProductOptions {
  /// Time what the library offers at the first call of each product, and keep the fastest, a GELU
  /// of its own among it; else keep what the heuristics put first, which is the same in every run.
  bool timed = false;
  bool fused_gelu = true;           ///< GELU inside of products, where the library can
  bool fused_gelu_backward = true;  ///< the same of its gradient
  bool fused_row_sums = false;      ///< row sums as part of a product, where the library can
  int blocks = 0;                   ///< multiprocessors to plan for; 0: all
  /// Scratch that a product may ask for, for sums that several blocks share.
  std::size_t workspace_bytes = std::size_t{32} << 20U;
};

/// Which kernels compute attention in bf16 on a GPU.
enum class AttentionKernels : std::uint8_t {
  automatic,  ///< cuDNN's where they take the shape; ours where cuDNN refuses it
  cudnn,      ///< as automatic, but a refusal by cuDNN is an error
  own         ///< ours only
};

/// Of an Attention.
struct AttentionOptions {
  /// Backward adds up dQ in one order, by way of dP in memory; else in the order of arrival, which
  /// moves fewer bytes.
  bool deterministic = true;
  AttentionKernels kernels = AttentionKernels::automatic;
};

/// Of all operations that a model makes.
struct Options {
  ProductOptions products = {};
  AttentionOptions attention = {};
};

}  // namespace trireme::ops
