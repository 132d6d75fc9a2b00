// SPDX-License-Identifier: Apache-2.0
// What a file of kernels sees in place of the toolkit's cuda_runtime.h when the host's compiler
// reads it: the words of kernels as plain C++, and cudaLaunchKernelEx(). Types, and the functions of
// the runtime, are the toolkit's own.
//
// 1. `__shared__` memory is a static variable of the one thread that runs kernels (block.hpp), so
//    sanitizers see it; it holds what the block before has left. `extern __shared__` is not there.
// 2. The double and fp32 functions are the host's: rounded correctly where CUDA's are, else near.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include "../block.hpp"
#include "../tensor_cores.hpp"

#undef __shared__
#define __shared__ static
#undef __grid_constant__
#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)

using emulated::blockDim;
using emulated::blockIdx;
using emulated::gridDim;
using emulated::threadIdx;

using std::isinf;
using std::isnan;

inline void __syncthreads() {
  emulated::wait_for_block();
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  static_cast<void>(emulated::exchange(mask, 0, -1));
}

namespace emulated {

/// Every lane of `mask` gives a value and takes that of lane `source`.
template <class T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace emulated

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return emulated::shuffle(mask, value, static_cast<int>(emulated::lane()) ^ lanes);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emulated::shuffle(mask, value, source % emulated::warp_lanes);
}

/// Integers only: their sums have no order. One thread runs all kernels.
template <class T>
T atomicAdd(T* at, T term) {
  static_assert(std::is_integral_v<T>);
  const T before = *at;
  using Unsigned = std::make_unsigned_t<T>;
  *at = static_cast<T>(static_cast<Unsigned>(before) + static_cast<Unsigned>(term));
  return before;
}

template <class T>
T atomicMin(T* at, T other) {
  const T before = *at;
  *at = other < before ? other : before;
  return before;
}

inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __uint_as_float(unsigned bits) {
  return emulated::bits_as<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return emulated::bits_as<unsigned>(value);
}
inline long long __double_as_longlong(double value) {
  return emulated::bits_as<long long>(value);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert((std::size_t{0} + ... + sizeof(Parameters)) <= 4096,
                "too many bytes of parameters");
  const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  const auto function = reinterpret_cast<const void*>(kernel);
  std::apply([&](const Parameters&... value) { (emulated::check_argument(function, value), ...); },
             values);
  return emulated::launch(*config, function, [kernel, values] { std::apply(kernel, values); });
}
