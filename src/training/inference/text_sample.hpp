// SPDX-License-Identifier: Apache-2.0
// Generates text: one sample during training, or any number of samples from a trained model, with
// prompts and samples divided among the ranks. The run's tokenizer, which its checkpoints contain,
// encodes the prompts and decodes the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"

#include "model/gpt.hpp"

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"

#include "inference/generate.hpp"
#include "inference/loaded_model.hpp"

namespace trireme::inference {

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

struct SampleRequest {
  ModelSource source;
  std::vector<std::string> prompts;  ///< the first rank's count
  std::int64_t samples = 1;          ///< of each prompt
  /// tokens, distribution, seed and repetition; the rest follows from the tokenizer.
  GenerateRules rules{};
  bool ends = true;          ///< at the end of a text
  bool commands = false;     ///< special tokens may be spelled out in prompts
  std::int64_t at_once = 8;  ///< texts that grow together on a rank
  bool cache = true;         ///< keys and values are kept; never changes the text
};

/// Sample `sample` of prompt `prompt`, both counted from 0.
struct Sampled {
  std::int64_t prompt = 0, sample = 0;
  std::vector<std::int32_t> tokens;  ///< without the prompt
  std::string text;                  ///< of the tokens, without the prompt
  GenerateEnd end = GenerateEnd::length;
};

/// Called on the first rank.
struct SampleListener {
  /// Of a single text: its bytes as they are decided.
  std::function<void(const std::string& bytes)> decided;
  /// Each text, in order of prompts and then of samples.
  std::function<void(const Sampled& sampled)> finished;
};

/// Collective: `trireme sample`. Texts are shared out over the ranks one by one; their random
/// numbers follow from the seed and their number alone, so they are the same on any number of
/// ranks. Throws UserError as load_model() does.
void sample_run(const SampleRequest& request,
                comm::World& world,
                Log& log,
                const SampleListener& listener);

}  // namespace trireme::inference
