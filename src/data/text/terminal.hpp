// SPDX-License-Identifier: Apache-2.0
// Text of a model, which may generate any bytes, made safe for a terminal as it arrives.
#pragma once

#include <string>
#include <string_view>

namespace trireme::text {

/// Text that arrives in pieces, which may end inside of a character.
class Streamed {
 public:
  /// What can be shown now that `bytes` have arrived: everything but a character at the end that
  /// may still become whole.
  std::string add(std::string_view bytes);
  /// The rest, when nothing more arrives.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace trireme::text
