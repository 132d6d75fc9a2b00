// SPDX-License-Identifier: Apache-2.0
// Reads small files of /proc and /sys, and the resource limits of this process. A missing file
// reads as an empty text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

std::string text_of(const std::string& path);
/// `text` without leading and trailing white space.
std::string trimmed(std::string_view text);
/// The value of the first line "KEY VALUE" or "KEY : VALUE"; empty if there is none.
std::string value_of(std::string_view text, std::string_view key);
/// Bytes in a line such as "MemAvailable:  24000000 kB"; 0 if there is none.
std::int64_t bytes_of(std::string_view text, std::string_view key);
/// A soft limit of this process, such as RLIMIT_NOFILE; nullopt if it is unlimited.
std::optional<std::int64_t> ulimit_of(int resource);
/// The decimal number at the beginning; nullopt if there is none, as in "max".
std::optional<std::int64_t> number_at(std::string_view text);

}  // namespace trireme
