// SPDX-License-Identifier: Apache-2.0
#include "text/json_file.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "files/descriptor.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t deepest = 32;

/// Where a byte of a text is; both count from 1.
Place place_of(const FileText& file, std::size_t offset) {
  const std::string_view before = std::string_view(file.bytes).substr(0, offset);
  return {file.path, static_cast<int>(std::ranges::count(before, '\n')) + 1,
          static_cast<int>(before.size() - (before.rfind('\n') + 1)) + 1};
}

/// Makes the value. Throws at the first thing that is not to be read.
class Builder {
 public:
  explicit Builder(const FileText& file) : file_(file) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& /*as_written*/) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  static bool binary(Json::binary_t& /*value*/) { return false; }
  bool start_object(std::size_t /*size*/) { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    if (open_.back()->contains(value))
      refuse_key(file_.path, shortened(value), "the key occurs twice in one object");
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position,
                   const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) {
    throw UserError(place_of(file_, std::max<std::size_t>(position, 1) - 1),
                    position > file_.bytes.size()
                        ? "the JSON ends too early: the file was truncated"
                        : "this is not JSON");
  }

  Json result;

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
    if (open_.size() == deepest)
      throw UserError({file_.path}, fmt::format("nested more than {} levels deep", deepest));
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const FileText& file_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

FileText read_bounded(const std::string& path) {
  const files::InputFile file(path);
  if (file.size() > most_file_bytes)
    throw UserError({path}, fmt::format("the file has {} bytes; at most {} are allowed",
                                        file.size(), most_file_bytes));
  FileText text{path, std::string(static_cast<std::size_t>(file.size()), '\0')};
  file.read(0, std::as_writable_bytes(std::span(text.bytes)));
  return text;
}

Json parse_json(const FileText& file) {
  Builder builder(file);
  Json::sax_parse(file.bytes, &builder);
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
  Findings findings;
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      findings.add({{path},
                    where.empty() ? shortened(key) : fmt::format("{}.{}", where, shortened(key)),
                    "this is not supported"});
  findings.settle();
}

void each_line(const FileText& file,
               const std::function<std::string(int, std::string_view)>& take) {
  Findings findings;
  std::string_view rest = file.bytes;
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (std::string problem = take(number, line); !problem.empty())
      findings.add({{file.path, number, 1}, "", std::move(problem)});
  }
  findings.settle();
}

const Json& member(const Json& object, std::string_view key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

}  // namespace trireme::text
