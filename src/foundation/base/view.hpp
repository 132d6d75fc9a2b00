// SPDX-License-Identifier: Apache-2.0
// Borrowed, typed pieces of memory. A view never owns, does not state on which device it is (the
// stream of a call does), and is two words and a dtype, so it is passed by value. Elements, not
// bytes, are its unit.
//
// 1. The creator of a view keeps its memory alive until all work that uses it is done; for work on
//    a stream, until the stream has finished it.
// 2. Shapes are not part of a view: an operation takes them as separate arguments and compares the
//    number of elements.
// 3. Several threads may read one view. The caller must synchronize writes to overlapping views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/host_device.hpp"

namespace trireme {

namespace detail {
// Not inline: kernels include this header, and message formatting slows nvcc down.
[[noreturn]] void fail_slice(std::int64_t begin, std::int64_t count, std::int64_t elements);
[[noreturn]] void fail_read_as(DType dtype, DType wanted);
}  // namespace detail

template <bool Const>
struct BasicView {
  using Byte = std::conditional_t<Const, const std::byte, std::byte>;

  Byte* data = nullptr;
  std::int64_t elements = 0;
  DType dtype = DType::f32;

  BasicView() = default;
  BasicView(Byte* bytes, std::int64_t count, DType type)
      : data(bytes), elements(count), dtype(type) {}
  /// A mutable view is also a constant one.
  template <bool Other>
  requires(Const && !Other)
      BasicView(const BasicView<Other>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), elements(other.elements), dtype(other.dtype) {}

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements) * size_bytes(dtype);
  }
  [[nodiscard]] TRIREME_HOST_DEVICE bool empty() const { return elements == 0; }
  explicit operator bool() const { return data != nullptr; }

  /// The elements [begin, begin + count). Throws ContractError when they are not inside.
  [[nodiscard]] BasicView slice(std::int64_t begin, std::int64_t count) const {
    if (begin < 0 || count < 0 || begin > elements || count > elements - begin) [[unlikely]]
      detail::fail_slice(begin, count, elements);
    return {data + static_cast<std::size_t>(begin) * size_bytes(dtype), count, dtype};
  }

  /// The first element as a T. Throws ContractError on the host when T is not the view's dtype; a
  /// kernel does not check.
  template <class T>
  [[nodiscard]] TRIREME_HOST_DEVICE auto as() const {
#ifndef __CUDA_ARCH__
    if (DTypeOf<T>::value != dtype) [[unlikely]]
      detail::fail_read_as(dtype, DTypeOf<T>::value);
#endif
    return reinterpret_cast<std::conditional_t<Const, const T*, T*>>(data);
  }
  /// The same, but null for an empty view of any dtype: an operand that was omitted.
  template <class T>
  [[nodiscard]] TRIREME_HOST_DEVICE auto as_optional() const {
    return empty() ? nullptr : as<T>();
  }
};

using View = BasicView<false>;
using ConstView = BasicView<true>;

/// Wraps host memory whose element type has a DType.
template <class T>
View view_of(T* data, std::int64_t elements) {
  return {reinterpret_cast<std::byte*>(data), elements, DTypeOf<T>::value};
}
template <class T>
ConstView view_of(const T* data, std::int64_t elements) {
  return {reinterpret_cast<const std::byte*>(data), elements, DTypeOf<T>::value};
}

}  // namespace trireme
