// SPDX-License-Identifier: Apache-2.0
// Values as bytes, to travel between ranks: pack() on one, unpack() on another. Both ends are the
// same executable on the same kind of processor, so there is no format to keep.
//
// Packed are numbers and other trivially copyable types, as they are stored in memory; strings,
// vectors, pairs, tuples (of references, too) and optionals of what is packed; and structs that
// list their members:
//
//     struct Range {
//       std::string path;
//       std::int64_t begin = 0;
//       auto fields() { return std::tie(path, begin); }
//     };
//
// A struct may also be listed by a function fields(STRUCT&) of its namespace.
//
// Taking more than was put is our own bug: a ContractError.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace trireme {

template <class T>
auto fields(T& value) -> decltype(value.fields()) {
  return value.fields();
}
template <class T>
concept HasFields = requires(T& value) {
  fields(value);
};

/// Puts one value after the other; take() ends it.
class Packer {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void number(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view text) {
    number(text.size());
    bytes_ += text;
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void array(const std::vector<T>& values) {
    text({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }

  void put(const std::string& value) { text(value); }
  template <class T>
  void put(const T& value) {
    if constexpr (HasFields<T>)
      put(fields(const_cast<T&>(value)));  // only read
    else
      number(value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    number(values.size());
    for (const T& value : values) put(value);
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void put(const std::vector<T>& values) { array(values); }
  template <class T>
  void put(const std::optional<T>& value) {
    number(value.has_value());
    if (value)
      put(*value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& value) {
    put(value.first);
    put(value.second);
  }
  template <class... T>
  void put(const std::tuple<T...>& values) {
    std::apply([this](const auto&... value) { (put(value), ...); }, values);
  }

  /// All bytes so far; the packer is empty then.
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Takes in the order in which a Packer was given. The bytes must outlive it.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  void get(std::string& value) { value = next(number<std::size_t>()); }
  template <class T>
  void get(T& value) {
    if constexpr (HasFields<T>)
      get_all(fields(value));
    else
      value = number<T>();
  }
  template <class T>
  void get(std::vector<T>& values) {
    values.resize(number<std::size_t>());
    for (T& value : values) get(value);
  }
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void get(std::vector<T>& values) {
    const std::string_view bytes = next(number<std::size_t>());
    values.resize(bytes.size() / sizeof(T));
    if (!values.empty())
      std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  template <class T>
  void get(std::optional<T>& value) {
    value.reset();
    if (number<bool>())
      get(value.emplace());
  }
  template <class A, class B>
  void get(std::pair<A, B>& value) {
    get(value.first);
    get(value.second);
  }
  template <class... T>
  void get_all(const std::tuple<T&...>& values) {
    std::apply([this](auto&... value) { (get(value), ...); }, values);
  }

 private:
  template <class T>
  requires std::is_trivially_copyable_v<T> T number() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  /// The next `count` bytes.
  std::string_view next(std::size_t count) {
    TRIREME_EXPECT(count <= rest_.size(), "{} bytes wanted of {} that are left", count,
                   rest_.size());
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  std::string_view rest_;
};

template <class T>
std::string pack(const T& value) {
  Packer packer;
  packer.put(value);
  return packer.take();
}

template <class T>
T unpack(std::string_view bytes) {
  T value{};
  Unpacker(bytes).get(value);
  return value;
}
/// Into the members that a tuple of references lists.
template <class... T>
void unpack_to(const std::tuple<T&...>& values, std::string_view bytes) {
  Unpacker(bytes).get_all(values);
}

}  // namespace trireme
