// SPDX-License-Identifier: Apache-2.0
#include "inference/next_logits.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "model/decoder.hpp"

namespace trireme::inference {
namespace {

using Tokens = std::vector<std::int32_t>;
using Window = std::span<const std::int32_t>;

Window window_of(Window text, std::int64_t context) {
  TRIREME_EXPECT(!text.empty(), "what comes after a text of no tokens");
  return text.subspan(static_cast<std::size_t>(window_begin(std::ssize(text), context)));
}

class WithCache final : public NextLogits {
 public:
  WithCache(device::Device& device,
            const model::GptShape& shape,
            DType dtype,
            std::vector<ConstView> parameters,
            std::int64_t slots,
            nn::Hooks& hooks,
            device::Stream& stream)
      : device_(device),
        hooks_(hooks),
        stream_(stream),
        decoder_(device, shape, dtype, slots),
        logits_(device.allocate(static_cast<std::size_t>(slots * shape.vocabulary) * sizeof(float),
                                "logits of texts")),
        slots_(static_cast<std::size_t>(slots)) {
    decoder_.bind(std::move(parameters));
  }

  [[nodiscard]] std::int64_t slots() const override { return decoder_.sequences(); }
  [[nodiscard]] const model::GptShape& shape() const override { return decoder_.shape(); }

  void after(std::span<const Request> requests, std::span<float> logits) override {
    const std::int64_t V = shape().vocabulary;
    TRIREME_EXPECT(
        std::ssize(requests) <= slots() && std::ssize(logits) == std::ssize(requests) * V,
        "{} texts in {} slots, {} logits", requests.size(), slots(), logits.size());
    const View results = logits_.view(DType::f32);
    std::vector<model::Decoder::Row> rows;
    std::vector<std::size_t> of_rows;  // which text a row is of
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Slot& slot = slots_.at(requests[i].slot);
      const Window window = window_of(requests[i].text, shape().context);
      const std::size_t begin = requests[i].text.size() - window.size();
      if (slot.grew_by_one(begin, window)) {
        rows.push_back({static_cast<std::int32_t>(requests[i].slot),
                        static_cast<std::int32_t>(window.size() - 1), window.back()});
        of_rows.push_back(i);
      } else {
        read(requests[i].slot, window, results.slice(0, V));
        fetch(logits.subspan(i * static_cast<std::size_t>(V), static_cast<std::size_t>(V)),
              results.slice(0, V));
      }
      slot.begin = begin;
      slot.tokens.assign(window.begin(), window.end());
    }
    if (rows.empty())
      return;
    decoder_.step(rows, results.slice(0, std::ssize(rows) * V), hooks_, stream_);
    for (std::size_t r = 0; r < rows.size(); ++r)
      fetch(logits.subspan(of_rows[r] * static_cast<std::size_t>(V), static_cast<std::size_t>(V)),
            results.slice(static_cast<std::int64_t>(r) * V, V));
  }

 private:
  /// What a sequence of the decoder holds.
  struct Slot {
    std::size_t begin = 0;  ///< of the window, in its text
    Tokens tokens;
    std::size_t read = 0;  ///< how many of them were read at once; the others came one by one

    [[nodiscard]] bool grew_by_one(std::size_t at, Window window) const {
      return begin == at && !tokens.empty() && window.size() == tokens.size() + 1 &&
             std::equal(tokens.begin(), tokens.end(), window.begin());
    }
  };

  /// Whole pieces that were read for the text before are kept.
  void read(std::size_t number, Window window, View logits) {
    Slot& slot = slots_[number];
    const auto same = static_cast<std::size_t>(
        std::mismatch(slot.tokens.begin(), slot.tokens.end(), window.begin(), window.end()).first -
        slot.tokens.begin());
    constexpr auto piece = static_cast<std::size_t>(model::Decoder::piece_tokens);
    const std::size_t kept = std::min({same, slot.read, window.size() - 1}) / piece * piece;
    decoder_.read(static_cast<std::int64_t>(number), static_cast<std::int64_t>(kept),
                  window.subspan(kept), logits, hooks_, stream_);
    slot.read = window.size();
  }

  void fetch(std::span<float> to, ConstView from) {
    device_.copy(view_of(to.data(), std::ssize(to)), from, stream_);
    stream_.synchronize();
  }

  device::Device& device_;
  nn::Hooks& hooks_;
  device::Stream& stream_;
  model::Decoder decoder_;
  device::Buffer logits_;
  std::vector<Slot> slots_;
};

class WithoutCache final : public NextLogits {
 public:
  WithoutCache(model::Gpt& gpt, device::Device& device, nn::Hooks& hooks, device::Stream& stream)
      : gpt_(gpt),
        device_(device),
        hooks_(hooks),
        stream_(stream),
        logits_(device.allocate(static_cast<std::size_t>(gpt.shape().vocabulary) * sizeof(float),
                                "logits of a text")) {}

  [[nodiscard]] std::int64_t slots() const override { return 1; }
  [[nodiscard]] const model::GptShape& shape() const override { return gpt_.shape(); }

  void after(std::span<const Request> requests, std::span<float> logits) override {
    const std::int64_t V = shape().vocabulary;
    TRIREME_EXPECT(requests.size() == 1 && std::ssize(logits) == V,
                   "{} texts in one slot, {} logits", requests.size(), logits.size());
    const Window window = window_of(requests[0].text, shape().context);
    gpt_.next_logits(view_of(window.data(), std::ssize(window)), logits_.view(DType::f32), hooks_,
                     stream_);
    device_.copy(view_of(logits.data(), V), logits_.view(DType::f32), stream_);
    stream_.synchronize();
  }

 private:
  model::Gpt& gpt_;
  device::Device& device_;
  nn::Hooks& hooks_;
  device::Stream& stream_;
  device::Buffer logits_;
};

}  // namespace

std::int64_t window_begin(std::int64_t length, std::int64_t context) {
  if (length <= context)
    return 0;
  const std::int64_t step = std::max<std::int64_t>(1, context / 2);
  return rounded_up(length - context, step);
}

std::unique_ptr<NextLogits> with_cache(device::Device& device,
                                       const model::GptShape& shape,
                                       DType dtype,
                                       std::vector<ConstView> parameters,
                                       std::int64_t slots,
                                       nn::Hooks& hooks,
                                       device::Stream& stream) {
  return std::make_unique<WithCache>(device, shape, dtype, std::move(parameters), slots, hooks,
                                     stream);
}

std::unique_ptr<NextLogits> without_cache(model::Gpt& gpt,
                                          device::Device& device,
                                          nn::Hooks& hooks,
                                          device::Stream& stream) {
  return std::make_unique<WithoutCache>(gpt, device, hooks, stream);
}

}  // namespace trireme::inference
