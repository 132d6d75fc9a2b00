// SPDX-License-Identifier: Apache-2.0
#include "ops/document_starts.hpp"

#include "ops/cpu/document_starts.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void document_starts(
    View starts, ConstView tokens, std::int64_t time, std::int32_t token, device::Stream& stream) {
  TRIREME_EXPECT(time >= 1 && tokens.elements % time == 0 && starts.elements == tokens.elements,
                 "starts of {} positions for {} tokens in rows of {}", starts.elements,
                 tokens.elements, time);
  on_cpu(stream, "document_starts")
      .run([to = starts.as<std::int32_t>(), from = tokens.as<std::int32_t>(),
            rows = tokens.elements / time, time,
            token] { cpu::document_starts(to, from, rows, time, token); });
}

}  // namespace trireme::ops
