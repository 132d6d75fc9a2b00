// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/cpu/levels.hpp"

#define TRIREME_KERNELS "ops/cpu/cross_entropy_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T, class D>
void run_into(const CrossEntropy& call) {
  const std::int64_t V = call.vocabulary();
  D* d_logits = call.d_logits.as_optional<D>();
  auto* const kernel = call.terms.capped() ? TRIREME_BEST(cross_entropy<true, T, D>)
                                           : TRIREME_BEST(cross_entropy<false, T, D>);
  for_rows(call.targets.elements, V, [&](std::int64_t begin, std::int64_t end) {
    kernel(call.losses.as<float>() + begin, d_logits == nullptr ? nullptr : d_logits + begin * V,
           call.logits.as<T>() + begin * V, call.targets.as<std::int32_t>() + begin, &call.terms,
           call.scale, end - begin, V);
  });
}

}  // namespace

template <class T>
void run(Threads, const CrossEntropy& call) {
  if (call.d_logits.dtype == DType::bf16)
    run_into<T, Bf16>(call);
  else
    run_into<T, T>(call);
}

template <class T>
void run(Threads, const CapLogits& call) {
  for_chunks(call.logits.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    TRIREME_BEST(cap_logits)(call.logits.as<T>() + begin, &call.terms, end - begin);
  });
}

TRIREME_CPU_BODIES(CrossEntropy);
template void run<float>(Threads, const CapLogits&);

}  // namespace trireme::ops::cpu
