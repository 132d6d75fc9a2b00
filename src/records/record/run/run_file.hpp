// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/run.h5: what a run was, did and learned, as tables. It is made from steps.jsonl
// (run_log.hpp) and from spans, and is never open while a run computes.
//
//   /            attributes filetype "trireme-run", version [1, 0], schema, date_and_time, machine,
// and
//                the facts of the first session (software, software_version, git_sha1, …)
//   /deck        one attribute per key of the newest session's resolved deck:
//                "optimizer.learning_rate"; numbers are numbers, everything else is text
//   /sessions    one row per start or resumption: first_step, date_and_time, ranks, machine, facts,
//                and the deck that its steps were made with
//   /steps       one dataset per column of StepRow
//   /buckets     one dataset per column of BucketRow, a row per bucket and start: what
//                the `index` of samples named reduce.… and gather.… counts
//   /validation  one dataset per column of ValidationRow
//   /evaluation  one group per set of evaluate.sets, with one dataset per column of
//                EvaluationRow; an attribute of the set's name describes it
//   /tokenizer   one string, from which the tokenizer of the run's tokens can be made again,
//                where it is known
//   /checkpoints one dataset per column of CheckpointRow
//   /skipped     one dataset per column of SkippedRow: steps that updated nothing
//   /noise_scale one dataset per column of NoiseScaleRow; empty unless the deck asks
//   /norms       one dataset per column of NormRow, a row per layer and measured step; likewise
//   /energy      one dataset per column of RankEnergyRow; empty where nothing is counted
//   /timings     samples (rows of device::TimeSample, of some ranks and steps), ranks (rows of
//                RankSpanRow, over all ranks), names (row i names id i), anchors;
//                attributes dropped, flops_per_token, …
//   /memory      one integer attribute per name, bytes
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

/// Writes the rows of the log that count, and the spans, into a new file at `path`. Memory does not
/// grow with the log. Throws StorageError; what it wrote until then is at `path`.
void write_run_file(const std::string& path,
                    const std::string& log,
                    const Rewinds& rewinds,
                    const Spans& spans);

/// The spans of a run file that this program wrote, of the steps that still count after `line` of
/// the log. Throws StorageError.
Spans read_spans(const std::string& path, const Rewinds& rewinds, std::int64_t line);

/// Size and CRC-32 of a file, as a line of the kind run_file states them. Throws StorageError.
std::pair<std::int64_t, std::string> size_and_sum(const std::string& path);

}  // namespace trireme::record
