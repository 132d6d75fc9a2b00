// SPDX-License-Identifier: Apache-2.0
// One checkpoint opened for reading by one process: what the tests compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/piece_reader.hpp"

namespace trireme::record {

class CheckpointReader {
 public:
  /// Throws UserError as load_checkpoint does.
  explicit CheckpointReader(const std::string& path)
      : directory_(path), manifest_(read_manifest(directory_)), reader_(directory_, manifest_) {
    check_rank_files(directory_, manifest_);
  }

  [[nodiscard]] const CheckpointFacts& facts() const { return manifest_.facts; }
  [[nodiscard]] int ranks() const { return manifest_.ranks(); }
  [[nodiscard]] std::vector<std::string> states() const { return names_of(manifest_.states); }
  /// Names in registration order.
  [[nodiscard]] std::vector<std::string> parameters() const {
    return names_of(manifest_.parameters);
  }
  [[nodiscard]] std::uint64_t content_hash(const std::string& state,
                                           const std::string& parameter) const {
    return manifest_.content_hash(reader_.state(state), index_of(parameter));
  }
  /// A whole parameter, verified; `data` has its element count.
  void read(const std::string& state, const std::string& parameter, View data) const {
    const std::size_t index = index_of(parameter);
    TRIREME_EXPECT(data.elements == manifest_.parameters[index].elements,
                   "{} elements for {}, which has {}", data.elements, parameter,
                   manifest_.parameters[index].elements);
    reader_.read(reader_.state(state), index, 0, data);
  }

 private:
  template <class Named>
  static std::vector<std::string> names_of(const std::vector<Named>& all) {
    std::vector<std::string> names;
    for (const Named& one : all) names.push_back(one.name);
    return names;
  }
  [[nodiscard]] std::size_t index_of(const std::string& name) const {
    const auto found = std::ranges::find(manifest_.parameters, name, &SavedParameter::name);
    if (found == manifest_.parameters.end())
      throw UserError(Place{directory_}, fmt::format("the checkpoint has no parameter '{}'", name));
    return static_cast<std::size_t>(found - manifest_.parameters.begin());
  }

  std::string directory_;
  Manifest manifest_;
  mutable PieceReader reader_;
};

}  // namespace trireme::record
