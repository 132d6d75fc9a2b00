// SPDX-License-Identifier: Apache-2.0
// One unit of a corpus: ranges of text files that give one shard of each set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "corpus/tokenize.hpp"
#include "tokens/manifest.hpp"
#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"

namespace trireme::corpus {

/// Bytes [begin, end) of a file; end -1: all of it.
struct Range {
  std::string path;
  std::int64_t begin = 0, end = -1;
  std::int64_t bytes = 0;  ///< of the file, for progress

  auto fields() { return std::tie(path, begin, end, bytes); }
};

struct Unit {
  std::vector<Range> ranges;
  /// The text before it does not end with a newline.
  bool after_text = false;

  [[nodiscard]] std::int64_t bytes() const;
  auto fields() { return std::tie(ranges, after_text); }
};

/// The units of the files, in order. Opens only files that are cut.
std::vector<Unit> units_of(const tokens::TextSources& sources, const TokenizeRequest& request);

struct UnitResult {
  /// No tokens: there is no shard.
  tokens::ManifestShard train, validation;
  tokens::TextNotes notes = {};
};

std::string to_json(const UnitResult& result);
/// Nothing for text that is not a result.
std::vector<UnitResult> result_from_json(const std::string& text);

/// The name of a shard without directories.
std::string shard_name(const std::string& prefix, const char* set, std::size_t number);
/// The number in such a name, and whether its set is "val".
std::pair<std::size_t, bool> unit_of_shard(const std::string& name);

/// Whether the shard has the header and the size that it should have, or should not be there. Throws
/// UserError when another file is in its place.
bool is_whole(const TokenizeRequest& request, const tokens::ManifestShard& shard);

/// Encodes a unit into its shards, which are whole when this returns. `report` gets the bytes of
/// files that are done.
UnitResult make_unit(const Unit& unit,
                     std::size_t number,
                     const TokenizeRequest& request,
                     const std::function<void(std::int64_t)>& report);

/// A document, or the part of it with which a range begins.
struct UnitDocument {
  std::string path;
  std::int64_t at = 0;     ///< byte of the text of its file
  std::int64_t token = 0;  ///< of its shard
  bool validates = false;
};
/// The documents of a unit. Encodes the text again.
std::vector<UnitDocument> documents_of(const Unit& unit, const TokenizeRequest& request);

}  // namespace trireme::corpus
