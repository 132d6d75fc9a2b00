// SPDX-License-Identifier: Apache-2.0
// The call of document_starts.hpp.
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"

namespace trireme::ops {

struct DocumentStarts {
  static constexpr const char* name = "document_starts";
  std::int32_t* starts;
  const std::int32_t* tokens;
  std::int64_t rows, time;
  std::int32_t token;  ///< with which documents begin
};

namespace cpu {
void run(Threads, const DocumentStarts& call);
}
namespace cuda {
void run(const Queue& queue, const DocumentStarts& call);
}

}  // namespace trireme::ops
