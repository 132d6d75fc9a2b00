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
void run_into(const CrossEntropyForwardBackward& call) {
  const std::int64_t V = call.vocabulary();
  auto* const kernel = call.terms.capped()
                           ? TRIREME_BEST(cross_entropy_forward_backward<true, T, D>)
                           : TRIREME_BEST(cross_entropy_forward_backward<false, T, D>);
  for_rows(call.targets.elements, V, [&](std::int64_t begin, std::int64_t end) {
    kernel(call.losses.as<float>() + begin, call.d_logits.as<D>() + begin * V,
           call.logits.as<T>() + begin * V, call.targets.as<std::int32_t>() + begin, &call.terms,
           call.scale, end - begin, V);
  });
}

}  // namespace

template <class T>
void run(Threads, const CrossEntropyForward& call) {
  const std::int64_t V = call.vocabulary();
  auto* const kernel = call.terms.capped() ? TRIREME_BEST(cross_entropy_forward<true, T>)
                                           : TRIREME_BEST(cross_entropy_forward<false, T>);
  for_rows(call.targets.elements, V, [&](std::int64_t begin, std::int64_t end) {
    kernel(call.losses.as<float>() + begin, call.logits.as<T>() + begin * V,
           call.targets.as<std::int32_t>() + begin, &call.terms, end - begin, V);
  });
}

template <class T>
void run(Threads, const CrossEntropyForwardBackward& call) {
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

TRIREME_CPU_BODIES(CrossEntropyForward);
TRIREME_CPU_BODIES(CrossEntropyForwardBackward);
template void run<float>(Threads, const CapLogits&);

}  // namespace trireme::ops::cpu
