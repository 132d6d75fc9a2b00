// SPDX-License-Identifier: Apache-2.0
// Reads runs of elements out of a checkpoint's rank files, whoever wrote them. Every piece that is
// touched is read whole, in blocks of fixed size, and its hash is compared with the manifest's;
// what else lies in a file is compared before HDF5 opens it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/view.hpp"

#include "h5/file.hpp"

#include "record/manifest.hpp"

namespace trireme::record {

class PieceReader {
 public:
  /// Both must outlive the reader.
  PieceReader(const std::string& directory, const Manifest& manifest);

  /// The number of a state. Throws UserError when the checkpoint does not hold it.
  [[nodiscard]] std::size_t state(const std::string& name) const;

  /// Fills `data` with the elements from `begin` on and returns the sum of their element hashes, as
  /// stored. Converts between fp32 and bf16. Throws UserError when a piece is damaged or missing.
  std::uint64_t read(std::size_t state, std::size_t parameter, std::int64_t begin, View data);

 private:
  std::uint64_t read_piece(const Piece& piece, std::int64_t begin, View data);
  const h5::File& file(std::uint32_t rank);

  const std::string& directory_;
  const Manifest& manifest_;
  std::map<std::uint32_t, h5::File> files_;
  std::set<std::uint32_t> framed_;  ///< files whose frame was found to be as written
  std::vector<std::byte> block_;
};

}  // namespace trireme::record
