// SPDX-License-Identifier: Apache-2.0
// The type and range of a key as text for help and messages, and the range check of a value that
// decode() accepted (value.hpp).
//
// 1. Bounds have the unit of the key (base/key.hpp). above_min and below_max make them exclusive.
// 2. A range is printed as yaml_text() writes values, so a bound can be copied into a deck.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "base/key.hpp"

#include "deck/value.hpp"

namespace trireme::deck {

/// The kind of value that the key takes: "integer", "auto | cpu | cuda", "integer | none | node".
template <class T>
std::string type_text(const T& value) {
  if constexpr (NamedEnum<T>) {
    return choices_of<T>();
  } else if constexpr (IsOr<T>::value) {
    return type_text(typename decltype(value.value)::value_type{}) + " | " + value.keyword;
  } else if constexpr (IsNumberOr<T>::value) {
    return "integer | " + choices_of<decltype(value.keyword)>();
  } else if constexpr (IsWordsOrBytes<T>::value) {
    return fmt::format("{} | list of these | {{{}: bytes, or as 60 GiB}}",
                       type_text(std::variant_alternative_t<0, decltype(value.value)>{}),
                       value.key);
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true | false";
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return "integer";
  } else if constexpr (std::is_same_v<T, double>) {
    return "number";
  } else if constexpr (std::is_same_v<T, Duration>) {
    return "H:MM:SS | number";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "text";
  } else {
    return "list of text";
  }
}

/// "[0, 1)"; empty if the key has no range.
template <class T>
std::string range_text(const Key<T>& key) {
  if (!key.min && !key.max)
    return "";
  return fmt::format("{}{}, {}{}", key.above_min || !key.min ? '(' : '[',
                     key.min ? yaml_text(*key.min) : "-inf", key.max ? yaml_text(*key.max) : "inf",
                     key.below_max || !key.max ? ')' : ']');
}

/// Whether `value` is within the key's bounds; NaN is not.
template <class T, class Bound>
bool in_range(const Bound& value, const Key<T>& key) {
  const bool above = !key.min || value > *key.min || (!key.above_min && value == *key.min);
  const bool below = !key.max || value < *key.max || (!key.below_max && value == *key.max);
  return above && below;
}

/// The problem with a value of the key, or nothing. Keywords, words, texts, lists and sizes in
/// bytes are always in range. A duration is compared in seconds.
template <class K, class T>
Problem range_problem(const T& value, const Key<K>& key) {
  if constexpr (IsOr<T>::value) {
    return value.given() ? range_problem(*value.value, key) : std::nullopt;
  } else if constexpr (IsNumberOr<T>::value) {
    return value.number ? range_problem(*value.number, key) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>) {
    if (in_range(value, key))
      return std::nullopt;
    return fmt::format("{} is outside {}{}{}", yaml_text(value), range_text(key),
                       *key.unit ? " " : "", key.unit);
  } else if constexpr (std::is_same_v<T, Duration>) {
    return range_problem(value.seconds, key);
  } else {
    return std::nullopt;
  }
}

}  // namespace trireme::deck
