// SPDX-License-Identifier: Apache-2.0
// Declares deck keys. A component's config.hpp contains a plain struct with defaults and one
// function
//
//     template <class V> void describe(V& v, Config& c) {
//       v("warmup_steps", c.warmup_steps, {.unit = "steps", .help = "Warm-up length.", .min = 0});
//       v.section("schedule", c.schedule);   // a nested map with its own describe()
//     }
//
// The parser, the range check, `trireme help deck`, deck.resolved.yaml and the HDF5 attributes all
// use that line. Components do not depend on YAML; the visitors are in `deck`.
//
// A key's type is one of: bool, std::int64_t, double, Duration, Bytes, std::string,
// std::vector<std::string>, an enum with EnumNames, NumberOr<E> or WordsOrBytes<E> of such an enum,
// or Or<T> of one of the scalar types; or a list of structs, by v.list(). Every field is taken
// literally: no visitor corrects a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

/// A value, or a keyword instead of it: `threads: auto`, `walltime: none`.
template <class T>
struct Or {
  std::optional<T> value;
  const char* keyword = "auto";

  [[nodiscard]] bool given() const { return value.has_value(); }
  [[nodiscard]] T value_or(T fallback) const { return value.value_or(fallback); }
  bool operator==(const Or& other) const { return value == other.value; }
};

/// A length of time; a deck writes it as H:MM:SS or as a number of seconds.
struct Duration {
  double seconds = 0;
  bool operator==(const Duration&) const = default;
};

/// A size in memory; a deck writes it as `60 GiB` or as a number of bytes.
struct Bytes {
  std::int64_t count = 0;
  bool operator==(const Bytes&) const = default;
};

namespace detail {

/// The name of an enumerator, with a final 0; of a value without a name, digits. GCC and Clang end
/// the name of this function with "trireme::comm::Transport::mpi]" and "(trireme::comm::Transport)9]".
template <auto value>
constexpr auto spelled() {
  constexpr std::string_view function = __PRETTY_FUNCTION__;
  constexpr std::size_t begin = function.find_last_of(":)") + 1;
  std::array<char, function.size() - begin> word{};
  function.copy(word.data(), word.size() - 1, begin);
  return word;
}
template <auto value>
inline constexpr auto spelling = spelled<value>();

template <class E, std::size_t count = 0>
constexpr std::size_t num_enumerators() {
  if constexpr (spelling<static_cast<E>(count)>[0] <= '9')
    return count;
  else
    return num_enumerators<E, count + 1>();
}

template <class E, std::size_t... index>
constexpr auto enumerators(std::index_sequence<index...> /*all*/) {
  const auto word = [](const char* name) {
    return std::string_view(name) == "automatic" ? "auto" : name;
  };
  return std::array{
      std::pair(static_cast<E>(index), word(spelling<static_cast<E>(index)>.data()))...};
}

}  // namespace detail

/// `table`: every value of an enum and its spelling in decks and records, which is the enumerator's
/// name, and `auto` for `automatic`. Specialize it for other spellings.
template <class E>
struct EnumNames;
template <class E>
requires(std::is_enum_v<E>&& detail::num_enumerators<E>() > 0) struct EnumNames<E> {
  static constexpr auto table =
      detail::enumerators<E>(std::make_index_sequence<detail::num_enumerators<E>()>());
};

template <class E>
concept NamedEnum = requires {
  EnumNames<E>::table;
};

template <NamedEnum E>
constexpr const char* word(E value) {
  for (const auto& [known, text] : EnumNames<E>::table)
    if (known == value)
      return text;
  return "?";
}

template <NamedEnum E>
constexpr std::optional<E> value_named(std::string_view spelling) {
  for (const auto& [value, text] : EnumNames<E>::table)
    if (spelling == text)
      return value;
  return std::nullopt;
}

/// A number, or a word of an enum with EnumNames instead: `replicate: node`.
template <class E>
struct NumberOr {
  std::optional<std::int64_t> number;
  E keyword{};  ///< used if there is no number

  bool operator==(const NumberOr& other) const {
    return number == other.number && (number.has_value() || keyword == other.keyword);
  }
};

/// One word for all parts, or a list with a word per part, or a memory limit from which the words
/// are chosen: `block`, `[block, none]`, `{memory: 60 GiB}`.
template <NamedEnum E>
struct WordsOrBytes {
  static constexpr const char* key = "memory";  ///< the key of the limit

  std::variant<E, std::vector<E>, Bytes> value{};

  WordsOrBytes() = default;
  WordsOrBytes(E all) : value(all) {}  // NOLINT(google-explicit-constructor): a word is one
  explicit WordsOrBytes(std::vector<E> each) : value(std::move(each)) {}
  explicit WordsOrBytes(Bytes limit) : value(limit) {}

  [[nodiscard]] const std::vector<E>* list() const { return std::get_if<std::vector<E>>(&value); }
  [[nodiscard]] const Bytes* limit() const { return std::get_if<Bytes>(&value); }
  /// The word for part `i`. Requires: no limit; if there is a list, it has a word for `i`.
  [[nodiscard]] E of(std::size_t i) const {
    return list() != nullptr ? list()->at(i) : std::get<E>(value);
  }
  bool operator==(const WordsOrBytes&) const = default;
};

/// Type of the range bounds of a key. Strings, lists, bools and enums have no bounds.
template <class T>
struct BoundOf {
  using type = T;
};
template <>
struct BoundOf<Duration> {
  using type = double;
};
template <class T>
struct BoundOf<Or<T>> {
  using type = typename BoundOf<T>::type;
};
template <class E>
struct BoundOf<NumberOr<E>> {
  using type = std::int64_t;
};

/// Whether a resumed run may change a key: freely, only if run.allow_changes names it, or never.
enum class Change : std::uint8_t { free, asked, never };

template <class T>
struct Key {
  const char* unit = "";
  const char* help = "";
  /// Inclusive; written so that NaN is outside.
  std::optional<typename BoundOf<T>::type> min{};
  std::optional<typename BoundOf<T>::type> max{};
  /// `min` itself is not allowed.
  bool above_min = false;
  bool below_max = false;
  bool required = false;
  Change change = Change::free;
};

/// Options of a list whose items are structs with their own describe(): v.list("groups", c.groups,
/// {.help = …}). Bounds belong to the keys of the items.
struct ListKey {
  const char* help = "";
  Change change = Change::free;
};

}  // namespace trireme
