// SPDX-License-Identifier: Apache-2.0
// The rows of run.h5 as JSON lines (`record.also: [jsonl]`), written while the run proceeds:
//
//   RUN_DIR/steps.jsonl, validation.jsonl   a JSON object per row
//
// run.h5 stays the record. Rows are added after run.h5 has them (RunFile::flush), by the thread
// that wrote them there. Other formats are made from these files by `trireme-postproc export
// --follow`, or from run.h5 by `trireme-postproc export`.
//
// 1. A file has no row that run.h5 does not have, and after the constructor the same rows: the file
//    is rewritten from them and renamed into place. That repairs rows of later steps, a line cut by
//    a kill, and rows lost in a power cut. Earlier rows than those of run.h5 (of a record that was
//    damaged and moved aside) stay.
// 2. A failure is kept, and nothing is written afterwards: add() never throws, so that run.h5 is
//    still written. The owner of the record checks problem() and ends the run with it.
// 3. A batch of lines is appended whole: what a full disk accepted of it is cut off again.
// 4. One thread at a time uses an object.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "record/also/append_file.hpp"
#include "record/run/run_file.hpp"

namespace trireme::record {

/// All rows that a record holds.
struct RecordedRows {
  std::vector<StepRow> steps;
  std::vector<ValidationRow> validation;
};

/// The names of the files in a run directory.
inline constexpr const char* json_lines_names[] = {"steps.jsonl", "validation.jsonl"};

class AlsoFiles {
 public:
  /// `first_step` is the first that this start may record; `there` is what run.h5 holds of the
  /// steps before. `warnings` gets a sentence for each file that had to be moved aside. Throws
  /// StorageError.
  AlsoFiles(const std::string& run_directory,
            const RecordedRows& there,
            std::int64_t first_step,
            std::vector<std::string>& warnings);

  void add(std::span<const StepRow> steps, std::span<const ValidationRow> validation) noexcept;
  /// The failure of an add(); null when there was none.
  [[nodiscard]] std::exception_ptr problem() const { return problem_; }

 private:
  AppendFile steps_, validation_;
  std::exception_ptr problem_;
};

}  // namespace trireme::record
