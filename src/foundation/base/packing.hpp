// SPDX-License-Identifier: Apache-2.0
// Small structures as bytes, to travel between ranks: numbers as they lie in memory, texts and
// arrays after their lengths. Both ends are the same executable on the same kind of processor, so
// there is no format to keep.
//
// Taking more than was put is our own bug: a ContractError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace trireme {

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

  /// All bytes so far; the packer is empty then.
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Takes in the order in which a Packer was given. The bytes must outlive it.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  /// All that was put has been taken.
  [[nodiscard]] bool empty() const { return rest_.empty(); }

  template <class T>
  requires std::is_trivially_copyable_v<T> T number() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(next(number<std::size_t>())); }
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> array() {
    const std::string_view bytes = next(number<std::size_t>());
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty())
      std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }

 private:
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

}  // namespace trireme
