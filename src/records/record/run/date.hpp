// SPDX-License-Identifier: Apache-2.0
// Formats a date for files: "2026-08-01 17:04:05 +0000", in UTC. Source: openPMD 1.1, attribute
// `date`.
#pragma once

#include <ctime>
#include <string>

namespace trireme::record {

inline std::string date_and_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S +0000", &utc);
  return text;
}

}  // namespace trireme::record
