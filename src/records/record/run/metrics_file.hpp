// SPDX-License-Identifier: Apache-2.0
// Writes the newest row of /steps as a Prometheus text file, for a node exporter's textfile
// collector: a gauge `trireme_COLUMN` for each column with a value, labelled with the run. Replaces
// the file as a whole, at most every `every_s` seconds, but never one that trireme did not write.
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "record/run/rows.hpp"

namespace trireme::record {

/// Throws UserError if another program's file is at `path`.
void expect_place_of_metrics(const std::string& path);

class MetricsFile {
 public:
  static constexpr double every_s = 5;

  /// Throws as expect_place_of_metrics(). `warn` receives a sentence if a write fails, once until a
  /// write succeeds again.
  MetricsFile(std::string path,
              const std::string& name,
              const std::string& id,
              std::function<void(const std::string&)> warn);

  /// Whether a row should be written at time `now`, in seconds. If true, counts as a write.
  bool due(double now);
  void write(const StepRow& row);

 private:
  const std::string path_, labels_;
  const std::function<void(const std::string&)> warn_;
  double written_s_ = -std::numeric_limits<double>::infinity();
  bool fails_ = false;
};

}  // namespace trireme::record
