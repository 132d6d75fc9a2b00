// SPDX-License-Identifier: Apache-2.0
// Text into shards of tokens (llm.c's format, tokens/token_files.hpp) with an index of each
// (tokens/token_index.hpp) and a manifest (tokens/manifest.hpp), for `trireme tokenize` and for the
// cache of a run's text.
//
//     PREFIX_train_000000.bin …  PREFIX_val_000000.bin …  PREFIX_manifest.json
//
// The text is cut into units of about `shard_bytes`: whole files, and ranges of plain files that
// are larger, cut where tokens do not change (tokens/documents.hpp). Unit k becomes shard k of each
// set; a set without documents of that unit has no shard k. Units are assigned to ranks cyclically.
//
// A document goes to validation when the hash of its first 64 KiB, as a fraction of 2^64, is below
// `validation_fraction`: the same text is always in the same set. Each document begins with the
// tokenizer's end of text, where it has one. Where tokens are bytes, a newline is put between two
// documents if the first does not end with one.
//
// 1. What is written does not depend on the number of ranks.
// 2. Shards and manifest are written under temporary names, fsync'ed and renamed, the manifest
//    last. A corpus without a manifest is unfinished.
// 3. A start after a kill continues with the units that are missing: PREFIX.parts/ records the
//    finished units and the sources. A start with other text, tokenizer or options is refused.
// 4. A cache has a hash of its text and options in its name, so other text has another cache. A
//    start waits while another one makes the same cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "text/tokenizer.hpp"
#include "tokens/manifest.hpp"
#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"

namespace trireme::corpus {

struct TokenizeRequest {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<std::string> text;  ///< files, directories, globs
  tokens::TextFormat format;
  std::string output;  ///< the prefix
  double validation_fraction = 0;
  std::int64_t shard_bytes = std::int64_t{100} << 20U;
  std::string key = "--text";  ///< names the text in findings
  bool is_cache = false;

  [[nodiscard]] std::string manifest() const { return output + "_manifest.json"; }
  /// The directory of what is unfinished, and the record of a finished unit in it.
  [[nodiscard]] std::string parts() const { return output + ".parts"; }
  [[nodiscard]] std::string parts(const std::string& file) const { return parts() + "/" + file; }
  [[nodiscard]] std::string record_of(std::size_t unit) const {
    return parts(fmt::format("{:06}.json", unit));
  }
};

struct Corpus {
  std::string output;  ///< the prefix, complete
  tokens::Manifest manifest;
  bool is_new = false;  ///< was not finished before
};

inline constexpr std::int64_t least_shard_bytes = std::int64_t{64} << 10U;
inline constexpr std::int64_t most_shard_bytes = std::int64_t{1} << 30U;

/// Bytes [begin, end) of a file; end -1: all of it.
struct Range {
  std::string path;
  std::int64_t begin = 0, end = -1;
  std::int64_t bytes = 0;  ///< of the file, for progress

  auto fields() { return std::tie(path, begin, end, bytes); }
};

struct Unit {
  std::vector<Range> ranges;
  bool after_text = false;  ///< the text before it does not end with a newline

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

/// Collective. A corpus whose shards are missing, or have another size or header than its manifest
/// states, is made again. Throws UserError for text that is missing, damaged, no JSON lines or
/// empty, and for an output that is another corpus; StorageError.
Corpus tokenize(TokenizeRequest request, comm::World& world, Log& log);

}  // namespace trireme::corpus
