// SPDX-License-Identifier: Apache-2.0
#include "deck/value.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>

#include <fmt/ranges.h>

#include "base/text.hpp"

#include "deck/references.hpp"

namespace trireme::deck {
namespace {

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// The problem with a node that is not a plain word, for every type except text.
Problem no_plain_word(const Node& node, const char* wanted) {
  if (node.kind == Node::Kind::null)
    return fmt::format("the value is missing; expected {}", wanted);
  if (node.kind != Node::Kind::word)
    return fmt::format("found {}, expected {}", in_words(node), wanted);
  if (node.quoted)
    return fmt::format("\"{}\" is a text because it is quoted; expected {}", node.word, wanted);
  return std::nullopt;
}

/// Refuses "0x10", "0b1", "0o17" and "010", which YAML dialects interpret differently.
Problem ambiguous_number(std::string_view word) {
  std::string_view digits = word;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+'))
    digits.remove_prefix(1);
  if (digits.size() < 2 || digits[0] != '0')
    return std::nullopt;
  if (std::isalpha(static_cast<unsigned char>(digits[1])) != 0 && digits[1] != 'e' &&
      digits[1] != 'E')
    return fmt::format("'{}': write the number in decimal", word);
  if (std::isdigit(static_cast<unsigned char>(digits[1])) != 0)
    return fmt::format("'{}' begins with 0, which could mean octal. Write it without the 0.", word);
  return std::nullopt;
}

template <class T>
Problem convert(const std::string& word, T& value, const char* wanted) {
  if (Problem problem = ambiguous_number(word))
    return problem;
  const char* begin = word.data();
  const char* end = begin + word.size();
  if (word.size() > 1 && word[0] == '+' && word[1] != '-')
    ++begin;
  T parsed{};
  const auto [stop, error] = std::from_chars(begin, end, parsed);
  if (error == std::errc::result_out_of_range && stop == end)
    return fmt::format("'{}' is too large{}", word,
                       std::is_same_v<T, double> ? " or too small" : "");
  if (error != std::errc{} || stop != end)
    return fmt::format("'{}' is not {}", word, wanted);
  value = parsed;
  return std::nullopt;
}

/// Whether YAML readers return the word unchanged and as text.
bool safe_unquoted(const std::string& text) {
  if (text.empty() || text.front() == '-' || text.front() == '.' ||
      std::isdigit(static_cast<unsigned char>(text.front())) != 0)
    return false;
  const std::string small = lower(text);
  for (const char* special : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
    if (small == special)
      return false;
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  });
}

struct Unit {
  const char* name;
  std::int64_t bytes;
};
constexpr Unit units[] = {{"TiB", std::int64_t{1} << 40U},
                          {"GiB", std::int64_t{1} << 30U},
                          {"MiB", std::int64_t{1} << 20U},
                          {"KiB", std::int64_t{1} << 10U},
                          {"B", 1}};

}  // namespace

Problem decode(const Node& node, bool& value) {
  if (Problem problem = no_plain_word(node, "true or false"))
    return problem;
  if (node.word == "true" || node.word == "false") {
    value = node.word == "true";
    return std::nullopt;
  }
  const std::string small = lower(node.word);
  const auto among = [&](std::initializer_list<const char*> words) {
    return std::ranges::any_of(words, [&](const char* word) { return small == word; });
  };
  const char* hint = among({"true", "yes", "on", "y", "1"})    ? ". Write true."
                     : among({"false", "no", "off", "n", "0"}) ? ". Write false."
                                                               : "";
  return fmt::format("'{}' is not true or false{}", node.word, hint);
}

Problem decode(const Node& node, std::int64_t& value) {
  if (Problem problem = no_plain_word(node, "a whole number"))
    return problem;
  Problem problem = convert(node.word, value, "a whole number");
  if (!problem)
    return std::nullopt;
  double number = 0;
  if (!convert(node.word, number, "") && std::abs(number) < 1e15 && number == std::floor(number))
    return fmt::format("'{}' is not a whole number in digits. Write {}.", node.word,
                       static_cast<std::int64_t>(number));
  return problem;
}

Problem decode(const Node& node, double& value) {
  if (Problem problem = no_plain_word(node, "a number"))
    return problem;
  std::string small = lower(node.word);
  std::erase_if(small, [](char c) { return c == '.' || c == '+' || c == '-'; });
  if (small == "nan" || small == "inf" || small == "infinity")
    return fmt::format("'{}' is not a finite number", node.word);
  return convert(node.word, value, "a number");
}

Problem decode(const Node& node, Duration& value) {
  constexpr const char* wanted = "a time as H:MM:SS or in seconds";
  if (Problem problem = no_plain_word(node, wanted))
    return problem;
  const std::string& word = node.word;
  const std::size_t first = word.find(':');
  if (first == std::string::npos) {
    double seconds = 0;
    if (decode(node, seconds))
      return fmt::format("'{}' is not {}", word, wanted);
    value.seconds = seconds;
    return std::nullopt;
  }
  const std::string hours = word.substr(0, first);
  const std::string rest = word.substr(first + 1);
  if (!all_digits(hours) || hours.size() > 6 || rest.size() != 5 || rest[2] != ':' ||
      !all_digits(rest.substr(0, 2)) || !all_digits(rest.substr(3)) || rest[0] > '5' ||
      rest[3] > '5')
    return fmt::format("'{}' is not {}", word, wanted);
  value.seconds =
      std::stod(hours) * 3600 + std::stod(rest.substr(0, 2)) * 60 + std::stod(rest.substr(3));
  return std::nullopt;
}

Problem decode(const Node& node, Bytes& value) {
  constexpr const char* wanted = "a number of bytes, or of KiB, MiB, GiB or TiB as in 60 GiB";
  if (Problem problem = no_plain_word(node, wanted))
    return problem;
  const std::string& word = node.word;
  const std::size_t digits = std::min(word.find_first_not_of("0123456789.eE+-"), word.size());
  const std::size_t name = std::min(word.find_first_not_of(' ', digits), word.size());
  const std::string unit = name == word.size() ? "B" : word.substr(name);
  const auto* const known =
      std::ranges::find_if(units, [&](const Unit& one) { return unit == one.name; });
  double number = 0;
  if (known == std::end(units) || convert(word.substr(0, digits), number, wanted))
    return fmt::format("'{}' is not {}", word, wanted);
  const double bytes = number * static_cast<double>(known->bytes);
  if (!(bytes >= 1) || bytes > 0x1p53 || bytes != std::floor(bytes))
    return fmt::format("'{}' is not a whole number of bytes from 1 to 2^53", word);
  value.count = static_cast<std::int64_t>(bytes);
  return std::nullopt;
}

Problem decode_limit(const Node& node, const char* key, Bytes& value) {
  if (node.children.size() != 1 || node.children.front().key != key) {
    std::string given;
    for (const Node& child : node.children) given += (given.empty() ? "" : ", ") + child.key;
    return fmt::format("found a map with {}; expected a map with only {}, such as {{{}: 60 GiB}}",
                       given.empty() ? "nothing" : given, key, key);
  }
  const Node& limit = node.children.front();
  if (limit.kind == Node::Kind::broken)
    return std::nullopt;
  if (Problem problem = decode(limit, value))
    return fmt::format("{}: {}", key, *problem);
  return std::nullopt;
}

Problem decode(const Node& node, std::string& value) {
  if (node.kind == Node::Kind::null)
    return "the value is missing; expected text";
  if (node.kind != Node::Kind::word)
    return fmt::format("found {}, expected text. Quote it if it is meant as text.", in_words(node));
  if (node.word.find('\0') != std::string::npos)
    return "it contains a zero byte, which is not allowed in a path or name";
  value = node.word;
  return std::nullopt;
}

Problem decode(const Node& node, std::vector<std::string>& value) {
  if (node.kind == Node::Kind::null)
    return "the value is missing; expected a list";
  if (node.kind == Node::Kind::word)
    return fmt::format("found {}, expected a list. Write [{}].", in_words(node), node.word);
  if (node.kind != Node::Kind::list)
    return fmt::format("found {}, expected a list", in_words(node));
  std::vector<std::string> words;
  for (const Node& element : node.children) {
    if (element.kind == Node::Kind::broken)
      continue;
    if (element.kind != Node::Kind::word || element.word.empty())
      return fmt::format("element {} of the list is {}, not text", words.size() + 1,
                         element.kind == Node::Kind::word ? "empty" : in_words(element));
    if (element.word.find('\0') != std::string::npos)
      return fmt::format(
          "element {} of the list contains a zero byte, which is not allowed in a path or name",
          words.size() + 1);
    words.push_back(element.word);
  }
  value = std::move(words);
  return std::nullopt;
}

std::string not_one_of(const Node& node, const std::vector<std::string>& words) {
  const std::string list = fmt::format("{}", fmt::join(words, ", "));
  if (node.kind == Node::Kind::null)
    return fmt::format("the value is missing; expected one of {}", list);
  if (node.kind != Node::Kind::word)
    return fmt::format("found {}, expected one of {}", in_words(node), list);
  if (words.size() == 1)
    return fmt::format("{} is not a valid value; the only one is {}", in_words(node), list);
  const auto hint = nearest(lower(node.word), words);
  return fmt::format("{} is not one of {}{}", in_words(node), list,
                     hint ? "; did you mean '" + *hint + "'?" : "");
}

std::string yaml_text(bool value) {
  return value ? "true" : "false";
}
std::string yaml_text(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string yaml_text(double value) {
  return fmt::format("{}", value);
}
std::string yaml_text(Duration value) {
  const double seconds = value.seconds;
  if (seconds != std::floor(seconds) || seconds >= 1e9)
    return yaml_text(seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}
std::string yaml_text(Bytes value) {
  for (const Unit& unit : units)
    if (value.count % unit.bytes == 0 && unit.bytes > 1 && value.count > 0)
      return fmt::format("{} {}", value.count / unit.bytes, unit.name);
  return fmt::format("{}", value.count);
}
std::string yaml_text(const std::string& value) {
  if (safe_unquoted(value))
    return value;
  std::string text = "\"";
  for (const char c : escaped(value)) {
    if (c == '"' || c == '\\')
      text += '\\';
    if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      text += c;
  }
  return text + "\"";
}
std::string yaml_text(const std::vector<std::string>& value) {
  std::vector<std::string> elements;
  for (const std::string& element : value) elements.push_back(yaml_text(element));
  return fmt::format("[{}]", fmt::join(elements, ", "));
}

}  // namespace trireme::deck
