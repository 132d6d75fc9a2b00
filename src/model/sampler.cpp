// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::model {

std::int32_t draw_token(std::span<const float> logits,
                        double temperature,
                        std::uint32_t a,
                        std::uint32_t b) {
  TRIREME_EXPECT(!logits.empty() && temperature >= 0, "{} logits, temperature {}", logits.size(),
                 temperature);
  const bool defined = std::ranges::none_of(logits, [](float logit) { return std::isnan(logit); });
  const auto best = std::ranges::max_element(logits);
  if (!defined || !std::isfinite(*best))
    throw UserError("the model's output is not a number: its training has diverged");
  if (temperature == 0)
    return static_cast<std::int32_t>(best - logits.begin());

  const double top = static_cast<double>(*best);
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - top) / temperature);
  };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  const auto word = (static_cast<std::uint64_t>(a) << 32U) | b;
  const double target = static_cast<double>(word >> 11U) * 0x1.0p-53 * total;
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sum += weight(logits[i]);
    if (target < sum)
      return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(best - logits.begin());  // target < total: not reached
}

std::vector<std::int32_t> generate(Gpt& gpt,
                                   device::Device& device,
                                   std::span<const std::int32_t> prompt,
                                   const SampleRequest& request,
                                   Hooks& hooks,
                                   device::Stream& stream) {
  const std::int64_t T = gpt.shape().context, V = gpt.shape().vocabulary;
  TRIREME_EXPECT(!prompt.empty(), "a sample needs a prompt of at least one token");
  TRIREME_EXPECT(request.count >= 0 && request.alphabet >= 0 && request.alphabet <= V,
                 "{} tokens of an alphabet of {} from a vocabulary of {}", request.count,
                 request.alphabet, V);
  for (const std::int32_t token : prompt)
    TRIREME_EXPECT(token >= 0 && token < V, "token {} in a vocabulary of {}", token, V);

  const device::Buffer buffer =
      device.allocate(static_cast<std::size_t>(V) * sizeof(float), "logits of a sample");
  std::vector<float> logits(static_cast<std::size_t>(V));
  const auto alphabet = static_cast<std::size_t>(request.alphabet > 0 ? request.alphabet : V);
  const RandomKey key = RandomKey::of(request.seed, Draw::text);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  text.reserve(prompt.size() + static_cast<std::size_t>(request.count));
  for (std::int64_t i = 0; i < request.count; ++i) {
    const auto length = std::min(static_cast<std::int64_t>(text.size()), T);
    const std::int32_t* window = text.data() + text.size() - static_cast<std::size_t>(length);
    gpt.next_logits(view_of(window, length), buffer.view(DType::f32), hooks, stream);
    device.copy(view_of(logits.data(), V), buffer.view(DType::f32), stream);
    stream.synchronize();
    const Words4 words = philox(key, static_cast<std::uint64_t>(i));
    text.push_back(
        draw_token(std::span(logits).first(alphabet), request.temperature, words.w[0], words.w[1]));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace trireme::model
