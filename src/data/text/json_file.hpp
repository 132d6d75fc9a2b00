// SPDX-License-Identifier: Apache-2.0
// Parses JSON files of other programs with nlohmann-json, with additional limits.
//
// A syntax error is reported with line and column, and a wrong value with the path of its key, as in
// "model.merges[17]". Also refused: a key that occurs twice in one object,
// nesting below 32 levels, a file larger than most_file_bytes (vocabulary.hpp).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace trireme::text {

using Json = nlohmann::json;

/// The bytes of a file of at most most_file_bytes. Throws UserError, StorageError.
std::string read_bounded(const std::string& path);

/// `bytes` are those of the file `path`. Throws UserError.
Json parse_json(const std::string& path, std::string_view bytes);

/// For a message: at most 60 bytes of it.
std::string shortened(std::string_view text);

/// What readers of JSON throw: one finding about a key.
[[noreturn]] void refuse_key(const std::string& path, std::string_view key, std::string text);

/// Refuses every key of `object` that is not among `known`, all of them at once. `where` is the
/// object's own key, "" for the file.
void expect_keys(const std::string& path,
                 std::string_view where,
                 const Json& object,
                 std::initializer_list<std::string_view> known);

/// A member, or null where there is none.
const Json& member(const Json& object, std::string_view key);

}  // namespace trireme::text
