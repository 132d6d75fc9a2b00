// SPDX-License-Identifier: Apache-2.0
// The manifest that `trireme tokenize` writes next to its shards, as JSON:
//
//     PREFIX_train_000000.bin  PREFIX_val_000000.bin  PREFIX_manifest.json
//
// It identifies the tokenizer by its hash and lists every shard with its counts and the hash of its
// tokens. A reader compares a shard with the manifest and refuses one of another tokenizer or with
// other tokens, even if its size is right.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/text_format.hpp"

namespace trireme::tokens {

struct ManifestShard {
  std::string file = {};  ///< without directories
  std::int64_t tokens = 0, documents = 0;
  std::int64_t bytes = 0;  ///< of text
  std::uint64_t hash = 0;  ///< IndexHeader::hash
};

/// The sum of the counts, without a name and a hash.
ManifestShard sum_of(const std::vector<ManifestShard>& shards);

struct Manifest {
  std::uint64_t tokenizer = 0;  ///< its hash
  std::string kind;             ///< of the tokenizer
  std::int64_t vocabulary = 0;
  std::optional<std::int32_t> end_of_text;
  double validation_fraction = 0;
  std::vector<ManifestShard> train, validation;
  TextNotes notes = {};  ///< about the text: separators, lines that were skipped
};

std::string to_json(const Manifest& manifest);
/// Throws UserError with `path` for what is not a manifest.
Manifest manifest_from_json(std::string_view text, const std::string& path);

/// PREFIX_manifest.json for PREFIX_train_NNNNNN.bin and PREFIX_val_NNNNNN.bin; "" for other names.
std::string manifest_of_shard(const std::string& path);

/// The manifests next to shards, each read once.
class Manifests {
 public:
  /// The manifest next to the shard at `path`; null: there is none.
  const Manifest* of(const std::string& path);
  /// How the shard at `path` differs from the manifest next to it, in a sentence; "" where it
  /// agrees or there is none. `tokenizer` is the hash of the run's; 0: not known.
  std::string problem(const std::string& path,
                      std::int64_t tokens,
                      std::uint64_t hash,
                      std::uint64_t tokenizer);

 private:
  std::map<std::string, std::optional<Manifest>> read_;
};

}  // namespace trireme::tokens
