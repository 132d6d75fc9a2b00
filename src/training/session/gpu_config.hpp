// SPDX-License-Identifier: Apache-2.0
// The deck section `gpu`: options of GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/key.hpp"

#include "ops/options.hpp"

namespace trireme::session {

/// Only `graphs` applies to CPUs too, for tests.
struct GpuConfig {
  ops::ProductOptions products;  ///< `blocks` and `workspace_bytes` have keys of their own
  Or<std::int64_t> product_workspace;
  ops::AttentionOptions attention;
  Or<bool> graphs;

  [[nodiscard]] std::size_t product_workspace_bytes(std::size_t memory_bytes) const {
    if (product_workspace.given())
      return static_cast<std::size_t>(*product_workspace.value) << 20U;
    const std::size_t usual = ops::ProductOptions().workspace_bytes;
    return products.timed && memory_bytes >= std::size_t{64} << 30U ? 4 * usual : usual;
  }
};

template <class V>
void describe(V& v, GpuConfig& c) {
  v("timed_products", c.products.timed,
    {.help = "Time cuBLASLt's algorithms for each matrix product in the first step and use the "
             "fastest. It may differ between runs and ranks, and with it the last bits. false: use "
             "the first choice of cuBLASLt's heuristics."});
  v("fused_gelu", c.products.fused_gelu,
    {.help = "In bf16, compute GELU in the matrix product before it, which rounds once less. Not "
             "used with model.recompute: gelu, whose bits therefore differ."});
  v("fused_gelu_backward", c.products.fused_gelu_backward,
    {.help = "In bf16, compute the gradient of GELU in the matrix product before it, which rounds "
             "once less."});
  v("fused_bias_gradients", c.products.fused_row_sums,
    {.help = "In bf16, compute the bias gradients of qkv and fc in the products of their weight "
             "gradients. cuBLASLt does not document the order of these sums."});
  v("product_workspace", c.product_workspace,
    {.unit = "MiB",
     .help =
         "Workspace of a matrix product, for split-K. auto: 128 with gpu.timed_products on a GPU "
         "with 64 GiB or more, else 32.",
     .min = 1,
     .max = 4096});
  v("deterministic_attention", c.attention.deterministic,
    {.help =
         "In bf16, use a fixed order of additions in the backward pass of attention, which needs "
         "a context x context matrix per head. false: less memory and traffic, but runs do not "
         "repeat to the bit."});
  v("attention", c.attention.kernels,
    {.help = "Kernels of attention in bf16. auto: cuDNN, or trireme's own with a warning if cuDNN "
             "does not support the shape. cudnn: an error in this case. own: always trireme's. The "
             "kernels differ in the last bits."});
  v("graphs", c.graphs,
    {.help = "Capture a micro-step once and then launch it as a CUDA graph, which saves most calls "
             "of the host. The numbers are the same. auto: on GPUs, with memory.pool."});
}

}  // namespace trireme::session
