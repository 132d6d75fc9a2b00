// SPDX-License-Identifier: Apache-2.0
// A checkpoint's manifest. Even first byte: the bytes of the file and of its sum, which must match
// before HDF5 reads the file. Odd: its tables, as a file with a matching sum would give them.
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/manifest.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;

void read_file(fuzz::Input& input) {
  static const fuzz::Directory directory;
  const std::size_t sum = input.count(40);
  const std::string_view rest = input.rest();
  fuzz::write(directory.path + "/manifest.xxh64", rest.substr(0, sum));
  fuzz::write(directory.path + "/manifest.h5", rest.size() < sum ? "" : rest.substr(sum));
  if (sum == 40)  // the matching sum; HDF5 would now read an input that is HDF5
    fuzz::write(directory.path + "/manifest.xxh64", record::manifest_sum(directory.path));
  if (sum == 40 && rest.size() >= sum + 8 && rest.substr(sum + 1, 3) == "HDF")
    return;
  try {
    static_cast<void>(record::read_manifest(directory.path));
    fuzz::promise(false, "what is not a manifest is refused");
  } catch (const UserError&) {
  }
}

record::Manifest tables(fuzz::Input& input) {
  record::Manifest manifest;
  const std::size_t parameters = input.count(4), states = input.count(3), files = input.count(4),
                    pieces = input.count(8);
  for (std::size_t i = 0; i < parameters; ++i) {
    record::SavedParameter parameter{"p" + std::to_string(i), {}, input.take<std::int64_t>()};
    for (std::size_t d = input.count(3); d > 0; --d)
      parameter.shape.push_back(input.take<std::int64_t>());
    manifest.parameters.push_back(std::move(parameter));
  }
  for (std::size_t i = 0; i < states; ++i)
    manifest.states.push_back({"s" + std::to_string(i), DType::f32});
  for (std::size_t i = 0; i < files; ++i) {
    manifest.file_bytes.push_back(input.take<std::int64_t>());
    manifest.file_frames.push_back(input.take<std::uint64_t>());
  }
  for (std::size_t i = 0; i < pieces; ++i)
    manifest.pieces.push_back({.state = input.take<std::uint8_t>(),
                               .parameter = input.take<std::uint8_t>(),
                               .rank = input.take<std::uint8_t>(),
                               .begin = input.take<std::int64_t>(),
                               .count = input.take<std::int64_t>(),
                               .hash = input.take<std::uint64_t>(),
                               .offset = input.take<std::int64_t>()});
  return manifest;
}

/// What all code that reads a checkpoint relies on.
void expect_complete(const record::Manifest& manifest) {
  for (const record::SavedParameter& parameter : manifest.parameters) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : parameter.shape) elements *= extent;
    fuzz::promise(parameter.elements > 0 && elements == parameter.elements,
                  "a parameter has the elements of its shape");
  }
  for (std::size_t s = 0; s < manifest.states.size(); ++s)
    for (std::size_t p = 0; p < manifest.parameters.size(); ++p) {
      std::int64_t end = 0;
      for (const record::Piece& piece : manifest.pieces_of(s, p)) {
        fuzz::promise(piece.begin == end && piece.count > 0 && piece.offset >= 0 &&
                          static_cast<int>(piece.rank) < manifest.ranks(),
                      "pieces follow one another in files that there are");
        end += piece.count;
      }
      fuzz::promise(end == 0 || end == manifest.parameters[p].elements, "pieces tile a parameter");
    }
  static_cast<void>(manifest.fingerprint());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  if (input.take<std::uint8_t>() % 2 == 0) {
    read_file(input);
    return 0;
  }
  record::Manifest manifest = tables(input);
  if (manifest.complete().empty())
    expect_complete(manifest);
  return 0;
}
