// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/manifest.hpp"
#include "record/checkpoint/manifest_share.hpp"
#include "record/checkpoint/piece_reader.hpp"

namespace trireme::record {

class CheckpointReader::Impl {
 public:
  explicit Impl(const std::string& path)
      : directory(path), manifest(read_manifest(directory)), reader(directory, manifest) {
    states.reserve(manifest.states.size());
    parameters.reserve(manifest.parameters.size());
    for (const SavedState& state : manifest.states) states.push_back(state.name);
    for (const SavedParameter& parameter : manifest.parameters)
      parameters.push_back(parameter.name);
    std::vector<std::uint32_t> files(manifest.file_bytes.size());
    std::iota(files.begin(), files.end(), 0U);
    check_rank_files(directory, manifest, files);
  }
  [[nodiscard]] std::size_t parameter(const std::string& name) const {
    const auto found = std::ranges::find(parameters, name);
    if (found == parameters.end())
      throw UserError(Place{directory}, fmt::format("the checkpoint has no parameter '{}'", name));
    return static_cast<std::size_t>(found - parameters.begin());
  }

  std::string directory;
  Manifest manifest;
  PieceReader reader;
  std::vector<std::string> states, parameters;
};

CheckpointReader::CheckpointReader(const std::string& directory)
    : impl_(std::make_unique<Impl>(directory)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

const CheckpointFacts& CheckpointReader::facts() const {
  return impl_->manifest.facts;
}
const std::vector<std::string>& CheckpointReader::states() const {
  return impl_->states;
}
const std::vector<std::string>& CheckpointReader::parameters() const {
  return impl_->parameters;
}
int CheckpointReader::ranks() const {
  return impl_->manifest.ranks();
}
std::uint64_t CheckpointReader::content_hash(const std::string& state,
                                             const std::string& parameter) const {
  return impl_->manifest.content_hash(impl_->reader.state(state), impl_->parameter(parameter));
}
void CheckpointReader::read(const std::string& state,
                            const std::string& parameter,
                            View data) const {
  const std::size_t index = impl_->parameter(parameter);
  TRIREME_EXPECT(data.elements == impl_->manifest.parameters[index].elements,
                 "{} elements for {}, which has {}", data.elements, parameter,
                 impl_->manifest.parameters[index].elements);
  impl_->reader.read(impl_->reader.state(state), index, 0, data);
}

}  // namespace trireme::record
