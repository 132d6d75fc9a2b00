// SPDX-License-Identifier: Apache-2.0
// Converts untrusted bytes to text that is safe on a terminal. A model may generate any bytes, and a
// file name may contain any.
#pragma once

#include <string>
#include <string_view>

#include "base/text.hpp"

namespace trireme::text {

using trireme::for_terminal;

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
