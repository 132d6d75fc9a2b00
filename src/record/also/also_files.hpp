// SPDX-License-Identifier: Apache-2.0
// Copies of the record for other programs (`record.also`), written while the run goes on:
//
//   RUN_DIR/steps.jsonl, validation.jsonl   a JSON object per row
//   RUN_DIR/steps.csv, validation.csv       a line of names, then a line per row
//   RUN_DIR/tensorboard/events.out.tfevents.SECONDS.HOST   one file per start; tags "steps/loss",
//                                           "validation/loss", …, one for every column but `step`
//
// run.h5 stays the record. Rows come here once run.h5 has them (RunFile::flush), by the thread that
// wrote them there.
//
// 1. A text file holds no row that run.h5 does not, and after open() the same ones: it is made anew
//    from them and renamed into its place, so that rows of later steps, a line cut by a kill, and
//    rows that a power cut took are all put right. Rows from before those of run.h5 (of one that
//    was damaged and moved aside) stay.
// 2. An event file is not changed by a later start. That one's file states from which step on the
//    earlier ones count no more. Without an earlier file, the rows that run.h5 holds come first.
// 3. A failure is kept, and nothing is written afterwards: add() never throws, so that run.h5 goes
//    on; the owner of the record checks problem() and ends the run with it.
// 4. What is appended is appended whole: what a full disk let through of it is cut off again.
// 5. One thread at a time uses an object.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "record/config.hpp"
#include "record/run/run_file.hpp"

namespace trireme::record {

/// All rows that a record holds.
struct RecordedRows {
  std::vector<StepRow> steps;
  std::vector<ValidationRow> validation;
};

/// Where each format lies in a run directory: files and, for TensorBoard, a directory.
std::vector<std::string> also_names(AlsoFormat format);

class AlsoFiles {
 public:
  /// `first_step` is the first that this start may record; `there` is what run.h5 holds of the
  /// steps before. `warnings` gets a sentence for what had to be moved aside. Throws StorageError.
  AlsoFiles(const std::string& run_directory,
            std::span<const AlsoFormat> formats,
            const RecordedRows& there,
            std::int64_t first_step,
            std::vector<std::string>& warnings);
  ~AlsoFiles();
  AlsoFiles(const AlsoFiles&) = delete;
  AlsoFiles& operator=(const AlsoFiles&) = delete;

  void add(std::span<const StepRow> steps, std::span<const ValidationRow> validation) noexcept;
  /// The failure of an add(); null when there was none.
  [[nodiscard]] std::exception_ptr problem() const { return problem_; }

 private:
  class Sink;
  class TextSink;
  class EventSink;

  std::vector<std::unique_ptr<Sink>> sinks_;
  std::exception_ptr problem_;
};

}  // namespace trireme::record
