// SPDX-License-Identifier: Apache-2.0
// A model's logits for what comes after some texts, computed in two ways: with keys and values kept
// from token to token (model/decoder.hpp), or from the whole window each time (Gpt::next_logits).
//
// 1. The model sees the text's window (window_begin): all of it while it fits into the context, and
//    from then on its newest tokens. A window moves by half a context at a time, so that a decoder,
//    which has to read a moved window again, does so seldom. Both ways see the same window, so both
//    give the same logits: to the bit where the decoder guarantees that.
// 2. What is after a text depends on the text alone, not on the slot or on the other requests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "model/gpt.hpp"
#include "nn/hooks.hpp"

namespace trireme::inference {

/// Where the window of a text of `length` tokens begins: 0 up to the context, then multiples of
/// half of it.
std::int64_t window_begin(std::int64_t length, std::int64_t context);

class NextLogits {
 public:
  /// A text of at least one token in one of the slots. If the text of a slot has grown since its
  /// last request, only the new tokens are computed.
  struct Request {
    std::size_t slot = 0;
    std::span<const std::int32_t> text;
  };

  virtual ~NextLogits() = default;
  [[nodiscard]] virtual std::int64_t slots() const = 0;
  [[nodiscard]] virtual const model::GptShape& shape() const = 0;
  /// logits = [requests, V], in memory of the host; complete on return. All slots differ.
  virtual void after(std::span<const Request> requests, std::span<float> logits) = 0;
};

/// With kept keys and values. `parameters` as for Gpt::bind; device, views, hooks and stream
/// outlive the object. Requires: ops::has_cached_attention(device).
std::unique_ptr<NextLogits> with_cache(device::Device& device,
                                       const model::GptShape& shape,
                                       DType dtype,
                                       std::vector<ConstView> parameters,
                                       std::int64_t slots,
                                       nn::Hooks& hooks,
                                       device::Stream& stream);

/// One text at a time, from the whole window. `gpt` has its parameters.
std::unique_ptr<NextLogits> without_cache(model::Gpt& gpt,
                                          device::Device& device,
                                          nn::Hooks& hooks,
                                          device::Stream& stream);

}  // namespace trireme::inference
