// SPDX-License-Identifier: Apache-2.0
#include "text/json_file.hpp"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "files/descriptor.hpp"
#include "files/path.hpp"

namespace trireme::text {
namespace {

constexpr int deepest = 32;

/// Where a byte of a text is; both count from 1.
Place place_of(const FileText& file, std::size_t offset) {
  const std::string_view before = std::string_view(file.bytes).substr(0, offset);
  return {file.path, static_cast<int>(std::ranges::count(before, '\n')) + 1,
          static_cast<int>(before.size() - (before.rfind('\n') + 1)) + 1};
}

}  // namespace

FileText read_bounded(const std::string& path) {
  files::expect_input_file(path);
  const files::InputFile file(path);
  if (file.size() > most_file_bytes)
    throw UserError({path}, fmt::format("the file has {} bytes; at most {} are allowed",
                                        file.size(), most_file_bytes));
  FileText text{path, std::string(static_cast<std::size_t>(file.size()), '\0')};
  file.read(0, std::as_writable_bytes(std::span(text.bytes)));
  return text;
}

Json parse_json(const FileText& file) {
  using Event = Json::parse_event_t;
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, Event event, const Json& value) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= deepest)
      throw UserError({file.path}, fmt::format("nested more than {} levels deep", deepest));
    if (event == Event::object_start)
      keys.emplace_back();
    else if (event == Event::object_end)
      keys.pop_back();
    else if (event == Event::key && !keys.back().insert(value.get<std::string>()).second)
      refuse_key(file.path, shortened(value.get_ref<const std::string&>()),
                 "the key occurs twice in one object");
    return true;
  };
  try {
    return Json::parse(file.bytes, look);
  } catch (const Json::parse_error& error) {
    throw UserError(place_of(file, std::max<std::size_t>(error.byte, 1) - 1),
                    error.byte > file.bytes.size()
                        ? "the JSON ends too early: the file was truncated"
                        : "this is not JSON");
  } catch (const Json::out_of_range& error) {
    throw UserError({file.path}, fmt::format("this is not JSON: {}", error.what()));
  }
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
      findings.add({path},
                   where.empty() ? shortened(key) : fmt::format("{}.{}", where, shortened(key)),
                   "this is not supported");
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
      findings.add({file.path, number, 1}, "", std::move(problem));
  }
  findings.settle();
}

const Json& member(const Json& object, std::string_view key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

}  // namespace trireme::text
