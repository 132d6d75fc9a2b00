// SPDX-License-Identifier: Apache-2.0
#include "ops/document_starts.hpp"

#include "ops/calls/document_starts.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void document_starts(
    View starts, ConstView tokens, std::int64_t time, std::int32_t token, device::Stream& stream) {
  TRIREME_EXPECT(time >= 1 && tokens.elements % time == 0 && starts.elements == tokens.elements,
                 "starts of {} positions for {} tokens in rows of {}", starts.elements,
                 tokens.elements, time);
  enqueue(DocumentStarts{starts.as<std::int32_t>(), tokens.as<std::int32_t>(),
                         tokens.elements / time, time, token},
          stream);
}

}  // namespace trireme::ops
