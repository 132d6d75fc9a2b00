// SPDX-License-Identifier: Apache-2.0
// The numbers of reductions.hpp and their arithmetic, shared by host and GPU so that both give the
// same bits. Square root, product and quotient are IEEE fp64 operations, and the product is never
// fused with the operation after it.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace trireme::ops {

struct GradientNorm {
  double norm = 0;          ///< L2 norm of the scaled gradient, before clipping
  float scale = 1;          ///< of the gradient in AdamW: gradient_scale times the clip factor
  std::int32_t finite = 1;  ///< 0: the norm is not finite, and AdamW writes nothing
};

struct Clipping {
  double gradient_scale = 1;  ///< 1 / (ranks · micro-steps)
  double clip_norm = 0;       ///< maximum gradient norm; 0: no limit
};

/// Source of the clip factor: torch.nn.utils.clip_grad_norm_, and Megatron-LM's clip_grads.py.
TRIREME_HOST_DEVICE inline GradientNorm norm_and_scale(double squares, const Clipping& clipping) {
  constexpr double clip_guard = 1e-6;  // added to the norm before dividing
  GradientNorm result;
#ifdef __CUDA_ARCH__
  result.norm = __dmul_rn(std::sqrt(squares), clipping.gradient_scale);  // not fused with the guard
#else
  result.norm = std::sqrt(squares) * clipping.gradient_scale;
#endif
  result.finite = std::isfinite(result.norm) ? 1 : 0;
  const double factor =
      clipping.clip_norm > 0 ? clipping.clip_norm / (result.norm + clip_guard) : 1;
  result.scale = static_cast<float>(clipping.gradient_scale * (factor < 1 ? factor : 1));
  return result;
}

}  // namespace trireme::ops
