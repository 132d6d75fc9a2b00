// SPDX-License-Identifier: Apache-2.0
// Rows of /steps and /validation as lines of JSON: what steps.jsonl and validation.jsonl hold.
// Names and order are those of the columns (run_schema.hpp).
//
// 1. A number is the shortest text that reads back as the same bits, with ".0" where it would look
//    like an integer. `trireme-postproc export` writes the same bytes.
// 2. NaN and infinities are null, because JSON cannot express them.
// 3. A line ends with a line feed, and begins with its step.
//
// Source of the format: RFC 8259 (JSON), jsonlines.org.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "record/run/run_file.hpp"

namespace trireme::record {

std::string json_line(const StepRow& row);
std::string json_line(const ValidationRow& row);

/// The step of a line without its line feed; nothing when json_line() did not write the line.
std::optional<std::int64_t> step_of_line(std::string_view line);

}  // namespace trireme::record
