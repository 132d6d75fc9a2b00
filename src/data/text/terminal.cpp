// SPDX-License-Identifier: Apache-2.0
#include "text/terminal.hpp"

#include <cstddef>
#include <utility>

#include "base/text.hpp"

namespace trireme::text {
namespace {

/// How many bytes a character has that begins with `lead`, when it is well-formed; 1 for what
/// begins none.
std::size_t promised_bytes(unsigned char lead) {
  return lead >= 0xF0 && lead < 0xF5   ? 4
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xC2 && lead < 0xE0 ? 2
                                       : 1;
}

}  // namespace

std::string Streamed::add(std::string_view bytes) {
  waiting_ += bytes;
  // The last character may be cut: at most three of its bytes are there.
  std::size_t whole = waiting_.size();
  for (std::size_t back = 1; back <= 3 && back <= waiting_.size(); ++back) {
    const auto lead = static_cast<unsigned char>(waiting_[waiting_.size() - back]);
    if ((lead & 0xC0U) == 0x80U)
      continue;
    if (promised_bytes(lead) > back)
      whole = waiting_.size() - back;
    break;
  }
  std::string shown = for_terminal(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return shown;
}

std::string Streamed::finish() {
  return for_terminal(std::exchange(waiting_, {}));
}

}  // namespace trireme::text
