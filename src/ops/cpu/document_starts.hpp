// SPDX-License-Identifier: Apache-2.0
// CPU body of document_starts.hpp.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

void document_starts(std::int32_t* starts,
                     const std::int32_t* tokens,
                     std::int64_t rows,
                     std::int64_t time,
                     std::int32_t token);

}  // namespace trireme::ops::cpu
