// SPDX-License-Identifier: Apache-2.0
#include "record/run/metrics_file.hpp"

#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"
#include "files/output_file.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* first_line = "# Written by trireme (record.metrics_file).";

/// Quotes a label's value; Prometheus has three escape sequences.
std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\')
      quoted += '\\';
    quoted += letter == '\n' ? std::string("\\n") : std::string(1, letter);
  }
  return quoted + '"';
}

/// Why the file cannot be written; "" if it can.
std::string obstacle(const std::string& path) {
  std::error_code ignored;
  const auto status = fs::symlink_status(path, ignored);
  const bool ours = fs::is_regular_file(status) &&
                    files::read_whole(path).starts_with(fmt::format("{}\n", first_line));
  return !fs::exists(status) || ours ? ""
                                     : "trireme did not write what is here, so it is not replaced";
}

}  // namespace

void expect_place_of_metrics(const std::string& path) {
  if (const std::string found = obstacle(path); !found.empty())
    throw UserError(Place{path}, found + ". Give record.metrics_file another path");
}

MetricsFile::MetricsFile(std::string path,
                         const std::string& name,
                         const std::string& id,
                         std::function<void(const std::string&)> warn)
    : path_(std::move(path)),
      labels_(fmt::format("{{run={},run_id={}}}", quoted(name), quoted(id))),
      warn_(std::move(warn)) {
  expect_place_of_metrics(path_);
}

bool MetricsFile::due(double now) {
  if (now - written_s_ < every_s)
    return false;
  written_s_ = now;
  return true;
}

void MetricsFile::write(const StepRow& row) {
  std::string text = fmt::format("{}\n", first_line);
  StepRow::columns(row, [&](const char* name, auto value, const char* unit, const char* help) {
    if (!std::isnan(static_cast<double>(value)))
      text += fmt::format(
          "# HELP trireme_{0} {1} Unit: {2}\n# TYPE trireme_{0} gauge\n"
          "trireme_{0}{3} {4}\n",
          name, help, unit, labels_, static_cast<double>(value));
  });
  std::string problem;
  try {
    problem = obstacle(path_);
    if (problem.empty())
      files::write_staged(path_, text);
  } catch (const std::exception& error) {  // the run does not depend on it
    problem = error.what();
  }
  if (!problem.empty() && !fails_)
    warn_(fmt::format("{} (record.metrics_file) cannot be written: {}", path_, problem));
  fails_ = !problem.empty();
}

}  // namespace trireme::record
