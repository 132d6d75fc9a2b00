// SPDX-License-Identifier: Apache-2.0
#include "record/run/row_hashes.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/hash.hpp"

#include "h5/dataset.hpp"
#include "record/run/columns.hpp"
#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

/// Rows per block where they are hashed anew.
constexpr std::int64_t rows_per_block = 4096;
constexpr std::int64_t chunk_blocks = 256;

struct Table {
  const char* name;
  std::vector<std::string> datasets;  ///< the first names the rows, where they are numbers
};

template <class Columns>
std::vector<std::string> paths_of(const std::string& group, const Columns& columns) {
  std::vector<std::string> paths;
  for (const auto& column : columns) paths.push_back(group + "/" + column.name);
  return paths;
}

const std::vector<Table>& tables() {
  static const std::vector<Table> all = {
      {"/steps", paths_of("steps", step_columns)},
      {"/validation", paths_of("validation", validation_columns)},
      {"/checkpoints", paths_of("checkpoints", checkpoint_columns)},
      {"/timings/samples", {"timings/samples"}},
      {"/noise_scale", paths_of("noise_scale", noise_scale_columns)}};
  return all;
}

std::uint64_t hash_of(const h5::File& file,
                      const Table& table,
                      std::int64_t begin,
                      std::int64_t count) {
  std::uint64_t hash = 0;
  std::string bytes;
  for (const std::string& path : table.datasets) {
    const h5::Dataset column = h5::Dataset::open(file.get(), path);
    bytes.resize(static_cast<std::size_t>(count) * column.element_bytes());
    column.read(begin, count, column.type(), bytes.data());
    hash = hash_bytes(bytes, hash);
  }
  return hash;
}

std::int64_t rows_of(const h5::File& file, const Table& table) {
  std::int64_t rows = std::numeric_limits<std::int64_t>::max();
  for (const std::string& path : table.datasets)
    rows = std::min(rows, h5::Dataset::open(file.get(), path).elements());
  return rows;
}

void append_block(const h5::File& file, std::size_t table, std::int64_t begin, std::int64_t count) {
  append_one(file, "blocks/table", static_cast<std::int64_t>(table));
  append_one(file, "blocks/begin", begin);
  append_one(file, "blocks/count", count);
  append_one(file, "blocks/hash", hash_of(file, tables()[table], begin, count));
}

/// "of step 3 to 7", or by their places where they have no step.
std::string which(const h5::File& file,
                  const Table& table,
                  std::int64_t begin,
                  std::int64_t count) {
  if (table.datasets.size() == 1)
    return fmt::format("{} to {}", begin, begin + count - 1);
  const auto steps = h5::Dataset::open(file.get(), table.datasets.front()).read_all<std::int64_t>();
  return fmt::format("of step {} to {}", steps[static_cast<std::size_t>(begin)],
                     steps[static_cast<std::size_t>(begin + count) - 1]);
}

}  // namespace

void make_blocks(const h5::File& file) {
  const h5::Group blocks = h5::open_group(file.get(), "blocks");
  const auto whole = h5::type_of<std::int64_t>();
  add_dataset(blocks.get(), "table", whole, chunk_blocks, "table",
              "0: /steps, 1: /validation, 2: /checkpoints, 3: /timings/samples, 4: /noise_scale.");
  add_dataset(blocks.get(), "begin", whole, chunk_blocks, "rows", "First row of the block.");
  add_dataset(blocks.get(), "count", whole, chunk_blocks, "rows", "Number of rows of the block.");
  add_dataset(blocks.get(), "hash", h5::type_of<std::uint64_t>(), chunk_blocks, "",
              "XXH64 of the bytes of the block's rows, one column after the other.");
}

void hash_rows(const h5::File& file, HashedTable table, std::int64_t count) {
  if (count == 0)
    return;
  const auto number = static_cast<std::size_t>(table);
  append_block(file, number, rows_of(file, tables()[number]) - count, count);
}

void hash_all_rows(const h5::File& file) {
  for (const char* path : {"blocks/table", "blocks/begin", "blocks/count", "blocks/hash"})
    h5::Dataset::open(file.get(), path).resize(0);
  for (std::size_t number = 0; number < tables().size(); ++number) {
    const std::int64_t rows = rows_of(file, tables()[number]);
    for (std::int64_t begin = 0; begin < rows; begin += rows_per_block)
      append_block(file, number, begin, std::min(rows_per_block, rows - begin));
  }
}

std::vector<std::string> check_rows(const h5::File& file) {
  std::vector<std::string> found;
  const auto numbers = [&](const char* path) {
    return h5::Dataset::open(file.get(), path).read_all<std::int64_t>();
  };
  const auto table = numbers("blocks/table"), begin = numbers("blocks/begin"),
             count = numbers("blocks/count");
  const auto hash = h5::Dataset::open(file.get(), "blocks/hash").read_all<std::uint64_t>();
  const std::size_t blocks = std::min({table.size(), begin.size(), count.size(), hash.size()});
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto number = static_cast<std::size_t>(table[b]);
    if (number >= tables().size() || begin[b] < 0 || count[b] < 1 ||
        begin[b] > std::numeric_limits<std::int64_t>::max() - count[b]) {
      found.push_back(fmt::format("row {} of /blocks is no block", b));
      continue;
    }
    const Table& one = tables()[number];
    // Rows that were not written because of a crash show in the columns' lengths.
    if (begin[b] + count[b] > rows_of(file, one) ||
        hash_of(file, one, begin[b], count[b]) == hash[b])
      continue;
    found.push_back(
        fmt::format("the rows {} of {} are not what was written there: the disk or "
                    "another program changed them; they are left as they are",
                    which(file, one, begin[b], count[b]), one.name));
  }
  return found;
}

}  // namespace trireme::record
