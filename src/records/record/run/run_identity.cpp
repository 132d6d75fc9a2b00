// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_identity.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.hpp"
#include "files/input_file.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/journal.hpp"
#include "record/run/run_file.hpp"
#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

constexpr const char* filetype = "trireme-run";
const std::vector<std::int64_t> this_version{1, 0};

[[noreturn]] void refuse(const std::string& path, const std::string& text) {
  throw UserError(Place{path}, text);
}

}  // namespace

void write_identity(const h5::File& file) {
  h5::write_attribute(file.get(), "filetype", filetype);
  h5::write_attribute(file.get(), "version", this_version);
}

void expect_run_file(const std::string& path) {
  std::string why;
  switch (h5::probe(path, &why, h5::Writes::journaled)) {
    case h5::Probe::whole:
      break;
    case h5::Probe::absent:
      refuse(path, "there is no run file to continue");
    case h5::Probe::unreadable:
      throw StorageError("record", "continue " + path, why, __FILE__, __LINE__);
    case h5::Probe::not_hdf5:
      refuse(path, fmt::format("not an HDF5 file: {}", move_away));
    case h5::Probe::damaged:
      refuse(path, fmt::format("the run file is truncated or damaged: {}", move_away));
  }
  const h5::File file = h5::open_file(path, h5::Access::read, h5::Writes::journaled);
  if (!h5::has_attribute(file.get(), "filetype") || !h5::has_attribute(file.get(), "version") ||
      h5::read_attribute<std::string>(file.get(), "filetype") != filetype)
    refuse(path, fmt::format("an HDF5 file, but not a run file of trireme: {}", move_away));
  const auto version = h5::read_attribute<std::vector<std::int64_t>>(file.get(), "version");
  if (version != this_version)
    refuse(path, fmt::format("the run file is format version {} and this trireme reads {}: "
                             "continue with the trireme that wrote it, or {}",
                             fmt::join(version, "."), fmt::join(this_version, "."), move_away));
}

std::string RunFile::damage(const std::string& path) {
  std::string why;
  switch (h5::probe(path, &why, h5::Writes::journaled)) {
    case h5::Probe::whole:
      break;
    case h5::Probe::absent:
    case h5::Probe::unreadable:
      return "";
    case h5::Probe::not_hdf5:
    case h5::Probe::damaged:
      return why;
  }
  try {
    const h5::File file = h5::open_file(path, h5::Access::read, h5::Writes::journaled);
    if (!h5::has_attribute(file.get(), "filetype") ||
        h5::read_attribute<std::string>(file.get(), "filetype") != filetype)
      return "";  // of another program
    if (h5::read_attribute<std::vector<std::int64_t>>(file.get(), "version") != this_version)
      return "";  // another trireme's
    read_everything(file);
  } catch (const h5::DamagedError& error) {
    return error.what();
  }
  return "";
}

void RunFile::finish_journal(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(h5::journal_of(path), ignored) &&
      h5::probe(path, nullptr, h5::Writes::journaled) == h5::Probe::whole)
    h5::close(h5::open_file(path, h5::Access::read_write, h5::Writes::journaled));
}

namespace {

/// Whether the file begins with zeros, or is empty: HDF5's signature is written last when a run file
/// is made, so its process was killed before.
bool is_unfinished(const std::string& path) {
  std::array<std::byte, 8> begin{};
  const std::size_t got = files::InputFile(path).read_some(0, begin);
  return std::all_of(begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(got),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

/// The last element of a dataset of steps, as RunFile::last_step().
std::optional<std::int64_t> last_in(const std::string& path, const char* dataset) {
  switch (h5::probe(path, nullptr, h5::Writes::journaled)) {
    case h5::Probe::whole:
      break;
    case h5::Probe::damaged:
      return 0;
    case h5::Probe::not_hdf5:
      return is_unfinished(path) ? std::optional<std::int64_t>(0) : std::nullopt;
    case h5::Probe::absent:
    case h5::Probe::unreadable:
      return std::nullopt;
  }
  const h5::File file = h5::open_file(path, h5::Access::read, h5::Writes::journaled);
  if (!h5::has_attribute(file.get(), "filetype"))
    return h5::attribute_names(file.get()).empty() ? std::optional<std::int64_t>(0) : std::nullopt;
  if (h5::read_attribute<std::string>(file.get(), "filetype") != filetype)
    return std::nullopt;
  if (!h5::exists(file.get(), dataset))
    return 0;
  const auto steps = h5::Dataset::open(file.get(), dataset).read_all<std::int64_t>();
  return steps.empty() ? 0 : steps.back();
}

}  // namespace

std::optional<std::int64_t> RunFile::last_step(const std::string& path) {
  return last_in(path, "steps/step");
}

std::int64_t RunFile::last_checkpoint(const std::string& path) {
  return last_in(path, "checkpoints/step").value_or(0);
}

}  // namespace trireme::record
