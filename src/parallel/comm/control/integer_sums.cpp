// SPDX-License-Identifier: Apache-2.0
#include "comm/control/integer_sums.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

#include "comm/control/requests.hpp"

namespace trireme::comm {

void IntegerSums::all_reduce(View values) {
  TRIREME_EXPECT(values.elements <= std::numeric_limits<int>::max(), "{} integers in one sum",
                 values.elements);
  auto* at = values.as<std::int64_t>();
  const auto count = static_cast<std::size_t>(values.elements);
  buffer_.resize(std::max(buffer_.size(), count));
  std::copy_n(at, count, buffer_.data());
  MPI_Request request = MPI_REQUEST_NULL;
  TRIREME_MPI(MPI_Iallreduce(MPI_IN_PLACE, buffer_.data(), static_cast<int>(count), MPI_INT64_T,
                             MPI_SUM, comm_, &request));
  while (!completed(request)) progress_.pause();
  progress_.moved();
  std::copy_n(buffer_.data(), count, at);
}

}  // namespace trireme::comm
