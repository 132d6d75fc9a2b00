// SPDX-License-Identifier: Apache-2.0
// Continues a text with a model: tokens of the prompt, and text of the tokens that follow. The run's
// tokenizer, which its checkpoints contain, encodes and decodes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.hpp"

#include "model/gpt.hpp"

#include "text/tokenizer.hpp"

namespace trireme::inference {

/// The tokens of a prompt. `commands`: special tokens may be spelled out in it. An empty one is
/// `begin`, the token that begins a text, or a line break.
std::vector<std::int32_t> prompt_tokens(const text::Tokenizer& tokenizer,
                                        const std::string& prompt,
                                        bool commands,
                                        const std::optional<std::int32_t>& begin);
std::string decoded(const text::Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

struct TextRequest {
  std::string
      prompt;  ///< empty: what begins a document, where the tokenizer has that, or a line break
  std::int64_t tokens = 0;
  double temperature = 1;
  std::uint64_t seed = 0;
};

/// The continuation of the prompt, without the prompt; it continues after the end of a text. Throws
/// UserError for a model whose vocabulary does not hold the tokenizer's. Each token costs a pass
/// over the whole context, since a model that trains has no memory to spare for kept keys and
/// values. `decided` is called for each token, and may throw to end the text.
std::string continue_text(model::Gpt& model,
                          device::Device& device,
                          const text::Tokenizer& tokenizer,
                          const TextRequest& request,
                          model::Hooks& hooks,
                          device::Stream& stream,
                          const std::function<void(std::size_t, std::int32_t)>& decided = {});

}  // namespace trireme::inference
