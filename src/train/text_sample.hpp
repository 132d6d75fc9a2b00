// SPDX-License-Identifier: Apache-2.0
// Text from a byte-level model, while it trains and afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "base/log.hpp"

#include "device/device.hpp"

#include "model/gpt.hpp"

namespace trireme::train {

struct TextRequest {
  std::string prompt;  ///< empty: a line break
  std::int64_t tokens = 0;
  double temperature = 1;
  std::uint64_t seed = 0;
};

/// The continuation of the prompt, without the prompt. Throws UserError for a vocabulary below 256.
std::string continue_text(model::Gpt& model,
                          device::Device& device,
                          const TextRequest& request,
                          model::Hooks& hooks,
                          device::Stream& stream);

/// `text` fit for a terminal: printable ASCII, line breaks and tabs as they are, anything else as
/// \xNN.
std::string for_terminal(const std::string& text);

/// `trireme sample`: text from the newest checkpoint below `run_directory`, prompt included, on
/// this process alone. Throws UserError when there is no checkpoint, or it is damaged.
std::string sample_run(const std::string& run_directory, const TextRequest& request, Log& log);

}  // namespace trireme::train
