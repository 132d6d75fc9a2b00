// SPDX-License-Identifier: Apache-2.0
#include "base/view.hpp"

#include "base/error.hpp"

namespace trireme::detail {

void fail_slice(std::int64_t begin, std::int64_t count, std::int64_t elements) {
  throw ContractError(
      "expected", "the slice is inside of the view",
      fmt::format("slice of {} from {} of a view with {} elements", count, begin, elements));
}

void fail_read_as(DType dtype, DType wanted) {
  throw ContractError("expected", "the dtype of the view",
                      fmt::format("a view of {} read as {}", name(dtype), name(wanted)));
}

}  // namespace trireme::detail
