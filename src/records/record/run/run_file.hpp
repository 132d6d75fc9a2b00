// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/run.h5: the setup, progress and results of a run as tables. It is generated from
// steps.jsonl (run_log.hpp) and from spans, and is never kept open during steps. rows.hpp defines
// the columns, and docs/reference/run-file.md lists the groups and attributes.
//
// Every dataset of a table is 1-D and has the attributes `units` and `long_name`; the first column
// is an HDF5 dimension scale of the others, so that xarray and netCDF4 find the rows' coordinate.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "device/recorder.hpp"

#include "record/run/run_log.hpp"

namespace trireme::record {

inline constexpr const char* run_file_name = "run.h5";

using Spans = std::deque<device::TimeSample>;

/// Writes the log's valid rows and the spans into a new file at `path`, with bounded memory. Throws
/// StorageError; a partial file then remains at `path`.
void write_run_file(const std::string& path,
                    const std::string& log,
                    const Rewinds& rewinds,
                    const Spans& spans);

/// Reads the spans of a run file that this program wrote. Omits spans of steps that were withdrawn
/// after `line` of the log. Throws StorageError.
Spans read_spans(const std::string& path, const Rewinds& rewinds, std::int64_t line);

/// Size and CRC-32 of a file, as in a line of kind run_file. Throws StorageError.
std::pair<std::int64_t, std::string> size_and_sum(const std::string& path);

}  // namespace trireme::record
