// SPDX-License-Identifier: Apache-2.0
#include "text/terminal.hpp"

#include <cstddef>
#include <utility>

#include "base/text.hpp"

namespace trireme::text {
std::string Streamed::add(std::string_view bytes) {
  waiting_ += bytes;
  // The last character may be cut: at most three of its bytes are there.
  std::size_t whole = waiting_.size();
  for (std::size_t back = 1; back <= 3 && back <= waiting_.size(); ++back) {
    const char lead = waiting_[waiting_.size() - back];
    if ((lead & 0xC0) == 0x80)
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
