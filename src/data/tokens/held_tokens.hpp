// SPDX-License-Identifier: Apache-2.0
// Tokens in memory, and text that is encoded without a cache, for data that are read once and are
// small compared with a training corpus.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"
#include "tokens/text_format.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::tokens {

class HeldTokens final : public TokenStream {
 public:
  /// Throws ContractError for a token that is not below `vocabulary`.
  HeldTokens(std::vector<std::int32_t> tokens, std::int64_t vocabulary, std::string description);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

  const std::vector<std::int32_t> tokens_;
};

/// All documents of the files that `entries` name (sources.hpp), in order, each after the
/// tokenizer's end-of-text token, as in a run's token cache. `key` names the entries in findings.
/// Throws UserError as find_text() and Documents do.
std::vector<std::int32_t> encode_text(const std::vector<std::string>& entries,
                                      const TextFormat& format,
                                      const text::Tokenizer& tokenizer,
                                      const std::string& key);

}  // namespace trireme::tokens
