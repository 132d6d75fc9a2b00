// SPDX-License-Identifier: Apache-2.0
// A GPT that reads tokens one after another: the keys and values of what it has read are kept, so
// that a token costs one forward pass of one position.
//
// It has the layers of Gpt (layers.hpp), over views of the same parameters, planned for single
// positions: a row of a call is one position of one of `sequences` sequences, each of which grows
// on its own.
//
// 1. The logits after a token are those of Gpt::next_logits for the tokens from position 0 of its
//    sequence to it. On a CPU they are so to the bit, where rows of products and of attention are
//    computed alone (ops::rows_are_independent, ops/cached_attention.hpp), and else up to rounding.
// 2. A step's row has the same bits whatever the other rows are. What read() leaves depends, where
//    products do not compute rows alone, on the pieces in which it reads: piece_tokens at a time,
//    counted from `first`, and the rest. A sequence that was read from multiples of piece_tokens on
//    is what one call makes of it.
// 3. A sequence starts again by reading from position 0. A position, learned or rotary, is part of
//    what is kept, so a window that moves has to be read again.
// 4. CPUs alone (can_decode()); a GPU has Gpt::next_logits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
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

/// Whether the device has what a Decoder needs.
bool can_decode(const device::Device& device);

class Decoder {
 public:
  /// The most rows of a call; calls are filled up to one of few sizes, each of which has its own
  /// products.
  static constexpr std::int64_t most_rows = 256;
  static constexpr std::int64_t piece_tokens = most_rows;

  /// One token of a sequence, and its position.
  struct Row {
    std::int32_t sequence = 0, position = 0, token = 0;
  };

  /// For `sequences` sequences of up to shape.context tokens. `dtype` is that of the parameters.
  /// Scratch and options as in Gpt. Throws DeviceError where can_decode() is false.
  Decoder(device::Device& device,
          const GptShape& shape,
          DType dtype,
          std::int64_t sequences,
          device::ScratchPool* scratch = nullptr,
          const ops::Options& options = {});
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Views in registration order, as for Gpt::bind.
  void bind(std::vector<ConstView> parameters);

  /// Reads `tokens` as the positions from `first` on of a sequence, whose earlier positions were
  /// read before. logits = [V] fp32 after the last.
  void read(std::int64_t sequence,
            std::int64_t first,
            std::span<const std::int32_t> tokens,
            View logits,
            nn::Hooks& hooks,
            device::Stream& stream);
  /// One token of each of several sequences, at most most_rows. logits = [rows, V] fp32.
  void step(std::span<const Row> rows, View logits, nn::Hooks& hooks, device::Stream& stream);

  [[nodiscard]] const GptShape& shape() const { return layers_.shape; }
  [[nodiscard]] std::int64_t sequences() const { return cache_.sequences; }
  /// Activations and all caches.
  [[nodiscard]] std::size_t bytes() const { return plan_.bytes(); }

 private:
  /// How a linear layer takes the rows of a call.
  enum class Products : bool { row_by_row, together };
  std::size_t size_of(std::int64_t rows, Products products);
  /// Where the document of a row begins, which then is known to the next one of its sequence.
  std::int32_t start_of(const Row& row);
  /// Up to the final norm; the rows are filled up. Returns the final norm's output for them all.
  View forward(nn::Call& call, std::span<const Row> rows);
  nn::Call call_of(std::int64_t rows, Products products, nn::Hooks& hooks, device::Stream& stream);

  device::Device& device_;
  std::optional<device::ScratchPool> own_scratch_;  // when none is lent
  device::ScratchPool& scratch_;
  const DType dtype_;
  const nn::CacheSize cache_;
  std::vector<std::int32_t> starts_;  // where its document begins: [sequences, positions]
  Layers layers_;
  const nn::ActivationPlan plan_;
  device::Buffer buffer_;
  device::Buffer rows_;    // tokens, sequences, positions and starts, most_rows each
  device::Buffer logits_;  // of rows that were filled up
  nn::Kernels kernels_;
  std::map<std::pair<std::int64_t, Products>, std::size_t> sizes_;
  nn::Bound bound_;
};

}  // namespace trireme::model
