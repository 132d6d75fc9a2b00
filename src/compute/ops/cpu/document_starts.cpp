// SPDX-License-Identifier: Apache-2.0
#include "ops/document_starts.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

template <class T>
void run(Threads, const DocumentStarts& call) {
  for_chunks(call.tokens.elements / call.time, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* tokens = call.tokens.as<T>() + row * call.time;
      T* starts = call.starts.as<T>() + row * call.time;
      T start = 0;
      for (std::int64_t t = 0; t < call.time; ++t) {
        if (tokens[t] == call.token)
          start = static_cast<T>(t);
        starts[t] = start;
      }
    }
  });
}

template void run<std::int32_t>(Threads, const DocumentStarts&);

}  // namespace trireme::ops::cpu
