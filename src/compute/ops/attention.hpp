// SPDX-License-Identifier: Apache-2.0
// Causal multi-head self-attention on a packed QKV tensor.
// Source: Vaswani et al. 2017, eq. 1, scale 1/sqrt(D); backward as in Dao et al. 2022, appendix B.
//
// Rows attend to positions <= their own; with a window of W only to the last W of these; with
// documents to none before starts[b, t] (elementwise.hpp). Dropout acts on the probabilities;
// its element index within a sample is (h·T + t)·T + s.
// 1. Work is tiled by query block, and tiles that no query sees are not computed; no more than a
//    tile of scores per thread exists at a time.
// 2. Results do not depend on the number of threads.
// 3. A CPU's scratch is in the workspace of the stream (device/cpu/workspace.hpp). One call at a time
//    per object.
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
  bool drops = false;  ///< some calls will be with dropout; without it none may be
  /// G, of keys and values; divides heads; heads / G consecutive heads share one. 0: as many as
  /// heads.
  std::int64_t grouped_heads = 0;
  /// Positions that a row sees, its own among them. 0: all up to its own.
  std::int64_t window = 0;
  /// Calls give the starts of documents; without it none may.
  bool documents = false;

  [[nodiscard]] std::int64_t key_value_heads() const {
    return grouped_heads != 0 ? grouped_heads : heads;
  }
  /// Query heads that share keys and values.
  [[nodiscard]] std::int64_t group() const { return heads / key_value_heads(); }
  /// Elements of a position's queries, keys and values.
  [[nodiscard]] std::int64_t packed_width() const {
    return (heads + 2 * key_value_heads()) * head_channels;
  }

  auto operator<=>(const AttentionShape&) const = default;
};

/// Why this attention cannot be captured in a graph (Capture of device.hpp); empty where it can.
std::string capture_trouble(const device::Device& device,
                            const AttentionShape& shape,
                            const AttentionOptions& options = {});

/// Why a GPU trains this attention without tensor cores, in kernels of ours that are many times
/// slower than those with: "heads of 60 channels …"; empty where it does not, and in fp32, which
/// none are for.
std::string slow_on_gpu(const AttentionShape& shape);

class Attention {
 public:
  /// A GPU's scratch is allocated here, once.
  Attention(device::Device& device,
            const AttentionShape& shape,
            const AttentionOptions& options = {});
  ~Attention();

  void forward(const AttentionForward& call, device::Stream& stream) const;
  void backward(const AttentionBackward& call, device::Stream& stream) const;

  [[nodiscard]] const AttentionShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t scratch_bytes() const;
  /// Memory that a plan of cuDNN may need in each direction, in addition to what is computed from
  /// the shape. Only the library knows, on a GPU: an allowance, not measured.
  static constexpr std::size_t cudnn_plan_bytes = std::size_t{16} << 20U;
  /// What scratch_bytes() comes to on a GPU at most, estimated from the shape: cuDNN itself can
  /// only be asked where there is one. A sum per row in fp32; where backward is cuDNN's, for the
  /// deterministic one dP in bf16, B·H·T² with T rounded up to 64, for the other one dQ in fp32;
  /// and cudnn_plan_bytes for each direction that is cuDNN's. Source: cudnn-frontend 1.18,
  /// scaled_dot_product_flash_attention.h.
  static std::size_t gpu_scratch_bytes(const AttentionShape& shape,
                                       const AttentionOptions& options = {});
  /// Multiply-adds of forward counted as 2, causal half only: 2 · 2 · B·H·D·T·(T+1)/2. Documents
  /// are not known: counted as one.
  [[nodiscard]] double forward_flops() const;

  struct Implementation;

 private:
  AttentionShape shape_;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace trireme::ops
