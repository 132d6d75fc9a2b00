// SPDX-License-Identifier: Apache-2.0
// Serializes values to send them between ranks: pack() and unpack(). Both ranks run the same
// executable on the same kind of processor, so the format need not be stable.
//
// Supported types: numbers and other trivially copyable types, as they are stored in memory;
// strings; vectors, pairs, tuples (also of references) and optionals of supported types; and
// structs that list their members:
//
//     struct Range {
//       std::string path;
//       std::int64_t begin = 0;
//       auto fields() { return std::tie(path, begin); }
//     };
//
// A free function fields(STRUCT&) in the struct's namespace is also accepted. Reading more than was
// packed is a ContractError.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error.hpp"

namespace trireme {

template <class T>
auto fields(T& value) -> decltype(value.fields()) {
  return value.fields();
}

namespace detail {

struct Packer {
  static constexpr bool packs = true;
  std::string bytes;

  void move(const void* data, std::size_t count) {
    bytes.append(static_cast<const char*>(data), count);
  }
};
/// Takes bytes in the order in which a Packer got them.
struct Unpacker {
  static constexpr bool packs = false;
  std::string_view rest;

  void move(void* data, std::size_t count) {
    TRIREME_EXPECT(count <= rest.size(), "{} bytes wanted of {} that are left", count, rest.size());
    std::copy_n(rest.data(), count, static_cast<char*>(data));
    rest.remove_prefix(count);
  }
};

/// Packs or unpacks a value, member by member.
template <class Mover, class T>
void move_value(Mover& mover, T& value) {
  const auto move_all = [&mover](auto&... parts) { (move_value(mover, parts), ...); };
  if constexpr (std::is_const_v<T>) {  // packing
    move_value(mover, const_cast<std::remove_const_t<T>&>(value));
  } else if constexpr (requires { fields(value); }) {
    std::apply(move_all, fields(value));
  } else if constexpr (requires { value.emplace(); }) {  // an optional; its padding is not packed
    bool there = value.has_value();
    mover.move(&there, sizeof there);
    if (!Mover::packs)
      value.reset();
    if (there)
      move_value(mover, Mover::packs ? *value : value.emplace());
  } else if constexpr (std::is_trivially_copyable_v<T>) {
    mover.move(&value, sizeof value);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply(move_all, value);
  } else {
    using Element = typename T::value_type;
    constexpr bool at_once = std::is_trivially_copyable_v<Element>;
    constexpr std::size_t unit = at_once ? sizeof(Element) : 1;
    std::size_t size = value.size() * unit;
    mover.move(&size, sizeof size);
    if constexpr (!Mover::packs) {
      TRIREME_EXPECT(size <= mover.rest.size(), "a size of {} in {} bytes", size,
                     mover.rest.size());
      value.resize(size / unit);
    }
    if constexpr (at_once)
      mover.move(value.data(), size);
    else
      for (Element& one : value) move_value(mover, one);
  }
}

}  // namespace detail

template <class T>
std::string pack(const T& value) {
  detail::Packer packer;
  detail::move_value(packer, value);
  return std::move(packer.bytes);
}

/// Unpacks into a value, or into the members that a tuple of references lists.
template <class T>
void unpack_to(T&& values, std::string_view bytes) {
  detail::Unpacker unpacker{bytes};
  detail::move_value(unpacker, values);
}
template <class T>
T unpack(std::string_view bytes) {
  T value{};
  unpack_to(value, bytes);
  return value;
}

}  // namespace trireme
