// SPDX-License-Identifier: Apache-2.0
// One unit of a corpus: ranges of text files that give one shard of each set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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

/// Whether all shards have the header and the size that they should have. Throws UserError when
/// another file is in the place of one.
bool is_whole(const TokenizeRequest& request, const tokens::Manifest& manifest);

/// The number in the name of a shard, and whether its set is "val".
std::pair<std::size_t, bool> unit_of_shard(const std::string& name);

/// Encodes a unit into its shards, which are whole when this returns: at most one of each set.
/// `report` gets the bytes of files that are done.
tokens::Manifest make_unit(const Unit& unit,
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
