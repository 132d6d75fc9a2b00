// SPDX-License-Identifier: Apache-2.0
// A run's header and rows, for tests of its record.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/run_record.hpp"

namespace trireme::record {

inline const RunHeader run_header{
    .facts = {{"software", "trireme"}, {"git_sha1", "abc123"}},
    .deck = {{"run.name", "tiny"}, {"optimizer.learning_rate", "0.001"}},
    .hosts = {"node1", "node1", "node2"},
    .buckets = {{"b", "a", 96, 2, 32}, {"wte", "wte", 192, 0, 64}},
    .counts = {{"parameters", 288}}};

inline StepRow step_row(std::int64_t step) {
  const double x = static_cast<double>(step);
  return {.step = step,
          .loss = 8 - 0.125 * x,
          .grad_norm = x,
          .learning_rate = 1e-3,
          .tokens = 100 * step,
          .seconds = 0.5,
          .tokens_per_s = 200,
          .flops_per_s = 1e9,
          .exposed_s = 0.01 * x,
          .allocations = 0};
}

inline device::TimeSample span_sample(std::uint32_t step, std::uint32_t rank) {
  return {.step = step,
          .micro = 1,
          .name = 6,
          .index = 2,
          .rank = rank,
          .begin_s = 0.5,
          .duration_s = 0.25};
}

inline std::vector<device::TimeSample> span_samples(
    std::initializer_list<device::TimeSample> samples) {
  return samples;
}

/// Continues the record in a directory.
inline RunRecord resumed(const std::string& directory,
                         std::int64_t step,
                         const RunHeader& header = run_header,
                         RunRecordOptions options = {}) {
  const LogFacts found = look_at_log(directory + "/" + run_log_name);
  return RunRecord::resume(directory, header, step, found, std::move(options));
}

template <class T>
std::vector<T> column_of(const std::string& path, const std::string& name) {
  return h5::Dataset::open(h5::open_file(path).get(), name).read_all<T>();
}

}  // namespace trireme::record
