// SPDX-License-Identifier: Apache-2.0
// A deck; words of the command line follow after NUL bytes.
#include <algorithm>
#include <vector>

#include "base/error.hpp"

#include "../deck/values.hpp"
#include "deck/deck.hpp"
#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string deck(input.substr(0, input.find('\0')));
  std::vector<std::string> overrides;
  for (auto at = input.find('\0'); at != std::string_view::npos;) {
    const auto end = input.find('\0', at + 1);
    overrides.emplace_back(
        input.substr(at + 1, end == std::string_view::npos ? end : end - at - 1));
    at = end;
  }
  try {
    const deck::Circumstances circumstances{.ranks = static_cast<int>(size % 5) + 1,
                                            .tokenizer = text::byte_tokenizer(),  // opens no file
                                            .reads_weights = false};
    const deck::Deck read = deck::parse(deck, "deck.yaml", overrides, circumstances);
    const deck::Deck again = deck::parse(deck::echo(read), "echo.yaml", {});
    fuzz::promise(deck::values_of(read.config) == deck::values_of(again.config),
                  "a deck's echo reads as the deck");
  } catch (const UserError& error) {
    fuzz::promise(!error.findings().empty(), "a refusal has a reason");
    for (const Diagnostic& finding : error.findings())
      fuzz::promise(std::ranges::none_of(to_string(finding),
                                         [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
                    "a finding is one line without control characters");
  }
  return 0;
}
