// SPDX-License-Identifier: Apache-2.0
#include "inference/next_logits.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::inference {
namespace {

using Window = std::span<const std::int32_t>;

Window window_of(Window text, std::int64_t context) {
  TRIREME_EXPECT(!text.empty(), "what comes after a text of no tokens");
  return text.subspan(static_cast<std::size_t>(window_begin(std::ssize(text), context)));
}

}  // namespace

std::int64_t window_begin(std::int64_t length, std::int64_t context) {
  if (length <= context)
    return 0;
  const std::int64_t step = std::max<std::int64_t>(1, context / 2);
  return rounded_up(length - context, step);
}

NextLogits::NextLogits(device::Device& device,
                       const model::GptShape& shape,
                       DType dtype,
                       std::vector<ConstView> parameters,
                       const nn::CacheSize& slots,
                       nn::Hooks& hooks,
                       device::Stream& stream)
    : NextLogits(device, shape, slots.sequences, hooks, stream) {
  decoder_.emplace(device, shape, dtype, slots);
  decoder_->bind(std::move(parameters));
}

NextLogits::NextLogits(model::Gpt& gpt,
                       device::Device& device,
                       nn::Hooks& hooks,
                       device::Stream& stream)
    : NextLogits(device, gpt.shape(), 1, hooks, stream) {
  gpt_ = &gpt;
}

NextLogits::NextLogits(device::Device& device,
                       const model::GptShape& shape,
                       std::int64_t slots,
                       nn::Hooks& hooks,
                       device::Stream& stream)
    : device_(device),
      shape_(shape),
      hooks_(hooks),
      stream_(stream),
      logits_(device.allocate(static_cast<std::size_t>(slots * shape.vocabulary) * sizeof(float),
                              "logits of texts")),
      slots_(static_cast<std::size_t>(slots)) {}

void NextLogits::after(std::span<const Request> requests, std::span<float> logits) {
  const std::int64_t V = shape_.vocabulary;
  TRIREME_EXPECT(std::ssize(requests) <= slots() && std::ssize(logits) == std::ssize(requests) * V,
                 "{} texts in {} slots, {} logits", requests.size(), slots(), logits.size());
  const View results = logits_.view(DType::f32);
  const auto fetch = [&](std::size_t request, ConstView from) {
    device_.copy(view_of(logits.data() + static_cast<std::int64_t>(request) * V, V), from, stream_);
    stream_.synchronize();
  };
  std::vector<model::Decoder::Row> rows;
  std::vector<std::size_t> of_rows;  // which text a row is of
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Slot& slot = slots_.at(requests[i].slot);
    const Window window = window_of(requests[i].text, shape_.context);
    const std::size_t begin = requests[i].text.size() - window.size();
    if (gpt_ != nullptr) {
      gpt_->next_logits(view_of(window.data(), std::ssize(window)), results, hooks_, stream_);
      fetch(i, results);
    } else if (slot.grew_by_one(begin, window)) {
      rows.push_back({static_cast<std::int32_t>(requests[i].slot),
                      static_cast<std::int32_t>(window.size() - 1), window.back()});
      of_rows.push_back(i);
    } else {
      read(requests[i].slot, window, results.slice(0, V));
      fetch(i, results.slice(0, V));
    }
    slot.begin = begin;
    slot.tokens.assign(window.begin(), window.end());
  }
  if (rows.empty())
    return;
  decoder_->step(rows, results.slice(0, std::ssize(rows) * V), hooks_, stream_);
  for (std::size_t r = 0; r < rows.size(); ++r)
    fetch(of_rows[r], results.slice(static_cast<std::int64_t>(r) * V, V));
}

bool NextLogits::Slot::grew_by_one(std::size_t at, std::span<const std::int32_t> window) const {
  return begin == at && !tokens.empty() && window.size() == tokens.size() + 1 &&
         std::equal(tokens.begin(), tokens.end(), window.begin());
}

void NextLogits::read(std::size_t number, std::span<const std::int32_t> window, View logits) {
  Slot& slot = slots_[number];
  const auto same = static_cast<std::size_t>(
      std::mismatch(slot.tokens.begin(), slot.tokens.end(), window.begin(), window.end()).first -
      slot.tokens.begin());
  constexpr auto piece = static_cast<std::size_t>(model::Decoder::piece_tokens);
  const std::size_t kept = std::min({same, slot.read, window.size() - 1}) / piece * piece;
  decoder_->read(static_cast<std::int64_t>(number), static_cast<std::int64_t>(kept),
                 window.subspan(kept), logits, hooks_, stream_);
  slot.read = window.size();
}

}  // namespace trireme::inference
