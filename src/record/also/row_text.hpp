// SPDX-License-Identifier: Apache-2.0
// Rows of /steps and /validation as lines of text: what steps.jsonl, validation.jsonl, steps.csv
// and validation.csv hold. Names and order are those of the columns (run_schema.hpp).
//
// 1. A number is the shortest text that reads back as the same bits, with ".0" where it would look
//    like an integer. postproc's export writes the same bytes.
// 2. What is not finite is null in JSON, which cannot express it, and nan, inf or -inf in CSV.
// 3. A line ends with a line feed, and begins with its step.
//
// Source of the formats: RFC 8259 (JSON), jsonlines.org, RFC 4180 (CSV; no field needs quotes).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "record/run/run_file.hpp"

namespace trireme::record {

std::string json_line(const StepRow& row);
std::string json_line(const ValidationRow& row);

std::string csv_line(const StepRow& row);
std::string csv_line(const ValidationRow& row);
/// The first line of the file: the columns' names.
std::string csv_header(const StepRow& row);
std::string csv_header(const ValidationRow& row);

/// The step of a line of either format, without its line feed; nothing where it is none of ours.
std::optional<std::int64_t> step_of_line(std::string_view line);

}  // namespace trireme::record
