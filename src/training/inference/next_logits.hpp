// SPDX-License-Identifier: Apache-2.0
// Computes a model's logits for the next token of texts in two ways: with keys and values cached
// from token to token (model/decoder.hpp), or from the whole window each time (Gpt::next_logits).
//
// 1. The model sees the text's window (window_begin): the whole text if it fits into the context,
//    else its newest tokens. A window moves by half a context at a time, because a decoder must
//    read a moved window again. Both ways use the same window, so they give the same logits, with
//    the same bits if the decoder guarantees that.
// 2. The logits after a text depend on the text alone, not on its slot or on other requests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "model/decoder.hpp"
#include "model/gpt.hpp"
#include "nn/hooks.hpp"

namespace trireme::inference {

/// Where the window of a text of `length` tokens begins: 0, or a multiple of half the context.
std::int64_t window_begin(std::int64_t length, std::int64_t context);

class NextLogits {
 public:
  /// A text of at least one token in one of the slots. If the text of a slot has grown since its
  /// last request, only the new tokens are computed.
  struct Request {
    std::size_t slot = 0;
    std::span<const std::int32_t> text;
  };

  /// With kept keys and values, for `slots.sequences` texts of up to `slots.positions` tokens, or
  /// of any length if that is the context. `parameters` as for Gpt::bind; device, views, hooks and
  /// stream outlive the object. Requires: ops::has_cached_attention(device).
  NextLogits(device::Device& device,
             const model::GptShape& shape,
             DType dtype,
             std::vector<ConstView> parameters,
             const nn::CacheSize& slots,
             nn::Hooks& hooks,
             device::Stream& stream);
  /// One text at a time, from the whole window. `gpt` has its parameters.
  NextLogits(model::Gpt& gpt, device::Device& device, nn::Hooks& hooks, device::Stream& stream);

  [[nodiscard]] std::int64_t slots() const { return std::ssize(slots_); }
  [[nodiscard]] const model::GptShape& shape() const { return shape_; }
  /// logits = [requests, V], in memory of the host; complete on return. All slots differ.
  void after(std::span<const Request> requests, std::span<float> logits);

 private:
  /// The part of a text that a sequence of the decoder holds.
  struct Slot {
    std::size_t begin = 0;  ///< of the window, in its text
    std::vector<std::int32_t> tokens;
    std::size_t read = 0;  ///< how many of them were read at once; the others came one by one

    [[nodiscard]] bool grew_by_one(std::size_t at, std::span<const std::int32_t> window) const;
  };

  NextLogits(device::Device& device,
             const model::GptShape& shape,
             std::int64_t slots,
             nn::Hooks& hooks,
             device::Stream& stream);
  /// Whole pieces that were read for the text before are kept.
  void read(std::size_t number, std::span<const std::int32_t> window, View logits);

  device::Device& device_;
  const model::GptShape shape_;
  nn::Hooks& hooks_;
  device::Stream& stream_;
  device::Buffer logits_;
  std::vector<Slot> slots_;
  std::optional<model::Decoder> decoder_;  // with kept keys and values; else gpt_
  model::Gpt* gpt_ = nullptr;
};

}  // namespace trireme::inference
