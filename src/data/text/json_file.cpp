// SPDX-License-Identifier: Apache-2.0
#include "text/json_file.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "files/input_file.hpp"

#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t deepest = 32;

/// Where a byte of a text is; both count from 1.
Place place_of(const std::string& path, std::string_view bytes, std::size_t offset) {
  const std::string_view before = bytes.substr(0, std::min(offset, bytes.size()));
  const std::size_t line = before.rfind('\n');
  return {
      path, static_cast<int>(std::ranges::count(before, '\n')) + 1,
      static_cast<int>(line == std::string_view::npos ? before.size() : before.size() - line - 1) +
          1};
}

/// Makes the value, and stops at the first thing that is not to be read.
class Builder {
 public:
  Builder(const std::string& path, std::string_view bytes) : path_(path), bytes_(bytes) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& /*as_written*/) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& /*value*/) { return false; }
  bool start_object(std::size_t /*size*/) { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    if (open_.back()->contains(value)) {
      problem_ = {{path_}, shortened(value), "the key occurs twice in one object"};
      return false;
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position,
                   const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) {
    problem_ = {place_of(path_, bytes_, position == 0 ? 0 : position - 1), "",
                position > bytes_.size() ? "the JSON ends too early: the file was truncated"
                                         : "this is not JSON"};
    return false;
  }

  Json result;
  [[nodiscard]] const Diagnostic& problem() const { return problem_; }

 private:
  Json* place(Json&& value) {
    if (open_.empty()) {
      result = std::move(value);
      return &result;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (open_.size() == deepest) {
      problem_ = {{path_}, "", fmt::format("nested more than {} levels deep", deepest)};
      return false;
    }
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& path_;
  std::string_view bytes_;
  std::vector<Json*> open_;
  std::string key_;
  Diagnostic problem_{{}, "", "this is not JSON"};
};

}  // namespace

std::string read_bounded(const std::string& path) {
  const files::InputFile file(path);
  if (file.size() > most_file_bytes)
    throw UserError({path}, fmt::format("{} bytes; a tokenizer's file has at most {}", file.size(),
                                        most_file_bytes));
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Json parse_json(const std::string& path, std::string_view bytes) {
  Builder builder(path, bytes);
  if (!Json::sax_parse(bytes.begin(), bytes.end(), &builder))
    throw UserError(std::vector<Diagnostic>{builder.problem()});
  return std::move(builder.result);
}

std::string shortened(std::string_view text) {
  return text.size() <= 60 ? std::string(text) : std::string(text.substr(0, 57)) + "...";
}

void refuse_key(const std::string& path, std::string_view key, std::string text) {
  throw UserError(std::vector<Diagnostic>{{{path}, std::string(key), std::move(text)}});
}

void expect_keys(const std::string& path,
                 std::string_view where,
                 const Json& object,
                 std::initializer_list<std::string_view> known) {
  if (!object.is_object())
    refuse_key(path, where, "expected an object {...}");
  std::vector<Diagnostic> findings;
  for (const auto& [key, value] : object.items())
    if (findings.size() < 20 && std::ranges::find(known, key) == known.end())
      findings.push_back(
          {{path},
           where.empty() ? shortened(key) : fmt::format("{}.{}", where, shortened(key)),
           "this is not supported"});
  if (!findings.empty())
    throw UserError(std::move(findings));
}

const Json& member(const Json& object, std::string_view key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

}  // namespace trireme::text
