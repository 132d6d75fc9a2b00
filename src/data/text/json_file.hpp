// SPDX-License-Identifier: Apache-2.0
// Parses JSON files of other programs with nlohmann-json, with additional limits.
//
// Syntax errors are reported with line and column, wrong values with the path of their key, as in
// "model.merges[17]". A key twice in one object and nesting deeper than 32 levels are refused.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace trireme::text {

using Json = nlohmann::json;

/// Above the size of any vocabulary, configuration and index.
inline constexpr std::int64_t most_file_bytes = std::int64_t{64} << 20U;

struct FileText {
  std::string path, bytes;
};
/// Throws UserError for a file of more than most_file_bytes, StorageError.
FileText read_bounded(const std::string& path);

/// Throws UserError.
Json parse_json(const FileText& file);

/// For a message: at most 60 bytes of it.
std::string shortened(std::string_view text);

/// Throws a UserError of one finding about a key; `path` is "" where it is not one of a file.
[[noreturn]] void refuse_key(const std::string& path, std::string_view key, std::string text);

/// Refuses every key of `object` that is not among `known`, all of them at once. `where` is the
/// object's own key, "" for the file.
void expect_keys(const std::string& path,
                 std::string_view where,
                 const Json& object,
                 std::initializer_list<std::string_view> known);

/// Calls take(number, line), which returns what is wrong, or "". Throws UserError with findings.
void each_line(const FileText& file, const std::function<std::string(int, std::string_view)>& take);

/// A member, or null where there is none.
const Json& member(const Json& object, std::string_view key);

}  // namespace trireme::text
