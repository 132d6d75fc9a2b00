// SPDX-License-Identifier: Apache-2.0
#include "ops/calls/document_starts.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

void run(Threads, const DocumentStarts& call) {
  for_chunks(call.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int32_t start = 0;
      for (std::int64_t t = 0; t < call.time; ++t) {
        if (call.tokens[row * call.time + t] == call.token)
          start = static_cast<std::int32_t>(t);
        call.starts[row * call.time + t] = start;
      }
    }
  });
}

}  // namespace trireme::ops::cpu
