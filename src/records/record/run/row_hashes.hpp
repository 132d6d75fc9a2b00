// SPDX-License-Identifier: Apache-2.0
// Hashes of the rows of a run file: HDF5 has none of its own for the data of a dataset, so a bit
// that flips on the disk would become a wrong number in a plot.
//
//   /blocks   table, begin, count, hash: the rows [begin, begin + count) of that table, as they
//             were when they were written; one row per table and flush
//
// A hash is the XXH64 of the columns' bytes as stored, one column after the other. Tables of text
// (/sessions) are left out.
//
// One thread, the one of the RunFile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "h5/file.hpp"

namespace trireme::record {

/// The tables, in the order of /blocks/table.
enum class HashedTable : std::uint8_t { steps, validation, checkpoints, samples, noise_scales };

/// The datasets of /blocks, empty.
void make_blocks(const h5::File& file);
/// After the last `count` rows of a table were written.
void hash_rows(const h5::File& file, HashedTable table, std::int64_t count);
/// Forgets all hashes and makes them anew from what is there: after rows were dropped.
void hash_all_rows(const h5::File& file);
/// A sentence for every block whose rows are not what was written. Throws h5::DamagedError when
/// rows or hashes cannot be read.
std::vector<std::string> check_rows(const h5::File& file);

}  // namespace trireme::record
