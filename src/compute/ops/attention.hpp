// SPDX-License-Identifier: Apache-2.0
// Causal multi-head self-attention on a packed QKV tensor.
// Source: Vaswani et al. 2017, eq. 1, scale 1/sqrt(D); backward as in Dao et al. 2022, appendix B.
//
// A row attends to positions <= its own: with a window of W, only to the last W of these; with
// documents, to none before starts[b, t] (elementwise.hpp). Dropout acts on the probabilities; its
// element index within a sample is (h·T + t)·T + s.
// 1. Work is tiled by query block, and tiles that no query sees are skipped. At most one tile of
//    scores per thread exists at a time.
// 2. Results do not depend on the number of threads.
// 3. On a CPU, scratch is in the workspace of the stream (device/cpu/workspace.hpp). Only one call
//    at a time per object.
#pragma once

#include <compare>
#include <memory>
#include <string>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/attention_calls.hpp"
#include "ops/options.hpp"

namespace trireme::ops {

struct AttentionShape {
  std::int64_t batch = 0, time = 0, heads = 0, head_channels = 0;
  DType dtype = DType::f32;
  bool drops = false;  ///< whether calls may use dropout
  /// Number G of key and value heads; divides heads. heads / G consecutive query heads share one.
  /// 0: the same as heads.
  std::int64_t grouped_heads = 0;
  /// Number of positions that a row sees, including its own. 0: all up to its own.
  std::int64_t window = 0;
  /// Whether calls give the starts of documents; if false, they must not.
  bool documents = false;

  [[nodiscard]] std::int64_t key_value_heads() const {
    return grouped_heads != 0 ? grouped_heads : heads;
  }
  [[nodiscard]] std::int64_t group() const { return heads / key_value_heads(); }
  [[nodiscard]] std::int64_t packed_width() const {
    return (heads + 2 * key_value_heads()) * head_channels;
  }

  auto operator<=>(const AttentionShape&) const = default;
};

/// Why this attention cannot be captured in a graph (Capture of device.hpp); empty if it can.
std::string capture_trouble(const device::Device& device,
                            const AttentionShape& shape,
                            const AttentionOptions& options = {});

/// Why a GPU computes this attention without tensor cores, which is many times slower: "heads of 60
/// channels …". Empty if it does not, and for fp32, which never uses them.
std::string slow_on_gpu(const AttentionShape& shape);

class Attention {
 public:
  /// Allocates the scratch on a GPU, once.
  Attention(device::Device& device,
            const AttentionShape& shape,
            const AttentionOptions& options = {});
  ~Attention();

  void forward(const AttentionForward& call, device::Stream& stream) const;
  void backward(const AttentionBackward& call, device::Stream& stream) const;

  [[nodiscard]] const AttentionShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t scratch_bytes() const;
  /// Allowance, not measured, for a cuDNN plan in each direction. Only cuDNN knows the true size.
  static constexpr std::size_t cudnn_plan_bytes = std::size_t{16} << 20U;
  /// Upper bound of scratch_bytes() on a GPU, estimated from the shape, because cuDNN can only be
  /// asked where there is a GPU. Sum of: one fp32 per row; if backward is cuDNN's, dP in bf16
  /// (B·H·T² with T rounded up to 64) if deterministic, else dQ in fp32; cudnn_plan_bytes for each
  /// direction that is cuDNN's. Source: cudnn-frontend 1.18, scaled_dot_product_flash_attention.h.
  static std::size_t gpu_scratch_bytes(const AttentionShape& shape,
                                       const AttentionOptions& options = {});
  /// FLOP of forward, causal half only, a multiply-add counted as 2: 2 · 2 · B·H·D·T·(T+1)/2; with
  /// a window, only the pairs inside it. Document masks are ignored.
  [[nodiscard]] double forward_flops() const;

  struct Implementation;

 private:
  AttentionShape shape_;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace trireme::ops
