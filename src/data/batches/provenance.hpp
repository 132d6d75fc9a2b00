// SPDX-License-Identifier: Apache-2.0
// Where the tokens of a stream come from: which documents of which files. For questions about a
// run, not for its steps: text that was encoded at the start of a run is encoded again, a shard at
// a time.
//
// Documents of text begin at a byte of the text of their file. Those of token files begin at a
// token: the end of text, or what Megatron's index states. A document that a shard cuts is one in
// each; a file without known documents is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "batches/dataset.hpp"
#include "corpus/tokenize.hpp"

namespace trireme::batches {

struct Document {
  std::string file;
  std::int64_t offset = 0;          ///< of its first byte, or token, in the file
  std::int64_t begin = 0, end = 0;  ///< tokens of the stream
};

/// One thread uses it.
class Provenance {
 public:
  /// The stream outlives the object.
  explicit Provenance(const Stream& stream);

  /// The document of a token of the stream.
  Document document(std::int64_t token);
  /// The document at a byte, or token, of a file; nothing where the stream does not have it.
  std::optional<Document> find(const std::string& file, std::int64_t offset);

 private:
  /// The documents of a shard, in order.
  const std::vector<Document>& documents(std::size_t shard);

  const Stream& stream_;
  std::vector<std::int64_t> begins_;  ///< of the shards, and the end of the stream
  std::vector<corpus::Unit> units_;   ///< of text
  std::map<std::size_t, std::vector<Document>> known_;
};

}  // namespace trireme::batches
