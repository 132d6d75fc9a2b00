// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/document_starts.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

void document_starts(std::int32_t* starts,
                     const std::int32_t* tokens,
                     std::int64_t rows,
                     std::int64_t time,
                     std::int32_t token) {
  for_chunks(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int32_t start = 0;
      for (std::int64_t t = 0; t < time; ++t) {
        if (tokens[row * time + t] == token)
          start = static_cast<std::int32_t>(t);
        starts[row * time + t] = start;
      }
    }
  });
}

}  // namespace trireme::ops::cpu
