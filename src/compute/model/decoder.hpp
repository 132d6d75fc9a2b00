// SPDX-License-Identifier: Apache-2.0
// Generates text with a cache of keys and values: each token costs a forward pass of one position.
//
// It uses the layers of Gpt (layers.hpp) with views of the same parameters, planned for single
// positions: a row of a call is one position of one of `sequences` independent sequences.
//
// 1. The logits after a token equal those of Gpt::next_logits for the sequence up to it. On a CPU
//    they are bitwise equal if rows of products and attention are computed independently
//    (ops/matmul.hpp, ops/cached_attention.hpp), else up to rounding.
// 2. A row of step() does not depend on the other rows. If products do not compute rows
//    independently, the result of read() depends on its pieces: piece_tokens at a time, counted
//    from `first`. Reads that start at multiples of piece_tokens give the same bits as one call.
// 3. Reading from position 0 restarts a sequence. Cached values include the position, so a window
//    that moves must be read again.
// 4. Only for CPUs (ops::has_cached_attention()); use Gpt::next_logits on a GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/buffer.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "model/config.hpp"
#include "model/layers.hpp"
#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/hooks.hpp"
#include "nn/kernels.hpp"

namespace trireme::model {

class Decoder {
 public:
  /// Maximum rows of a call. Calls are padded to one of a few sizes, each with its own products.
  static constexpr std::int64_t most_rows = 256;
  static constexpr std::int64_t piece_tokens = most_rows;

  /// One token of a sequence, and its position.
  struct Row {
    std::int32_t sequence = 0, position = 0, token = 0;
  };

  /// `cache`: sequences and tokens of each, at most most_rows and shape.context. `dtype` is that of
  /// the parameters. Throws DeviceError where ops::has_cached_attention() is false.
  Decoder(device::Device& device, const GptShape& shape, DType dtype, const nn::CacheSize& cache);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Views in registration order, as for Gpt::bind.
  void bind(std::vector<ConstView> parameters);

  /// Reads `tokens` at the positions from `first` on; earlier positions must have been read before.
  /// logits = [V] fp32 after the last token.
  void read(std::int64_t sequence,
            std::int64_t first,
            std::span<const std::int32_t> tokens,
            View logits,
            nn::Hooks& hooks,
            device::Stream& stream);
  /// Reads one token of each of several sequences, at most most_rows. logits = [rows, V] fp32.
  void step(std::span<const Row> rows, View logits, nn::Hooks& hooks, device::Stream& stream);

  [[nodiscard]] const GptShape& shape() const { return layers_.shape; }
  [[nodiscard]] std::int64_t sequences() const { return cache_.sequences; }
  /// Activations and all caches.
  [[nodiscard]] std::size_t bytes() const { return plan_.bytes(); }

 private:
  /// Where the document of a row begins; stored for the next row of the sequence.
  std::int32_t start_of(const Row& row);
  /// Runs the layers up to the final norm and returns its output for all rows, including padding.
  View forward(nn::Call& call, std::span<const Row> rows);
  nn::Call call_of(std::int64_t rows, nn::Hooks& hooks, device::Stream& stream);

  device::Device& device_;
  device::ScratchPool scratch_;
  const DType dtype_;
  const nn::CacheSize cache_;
  std::vector<std::int32_t> starts_;  // where its document begins: [sequences, positions]
  Layers layers_;
  const nn::ActivationPlan plan_;
  device::Buffer buffer_;
  device::Buffer rows_;    // tokens, sequences, positions and starts, most_rows each
  device::Buffer logits_;  // with padded rows
  nn::Kernels kernels_;
  nn::Bound bound_;
};

}  // namespace trireme::model
