// SPDX-License-Identifier: Apache-2.0
// What the kernel says in the small files of /proc and /sys, and the limits of this process. A file
// that is not there reads as an empty text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

std::string text_of(const std::string& path);
/// Without blanks and ends of lines around it.
std::string trimmed(std::string_view text);
/// The value of the first line "KEY VALUE" or "KEY : VALUE"; empty if there is none.
std::string value_of(std::string_view text, std::string_view key);
/// In bytes, of a line "MemAvailable:  24000000 kB"; 0 if there is none.
std::int64_t bytes_of(std::string_view text, std::string_view key);
/// A soft limit of this process, such as RLIMIT_NOFILE; none if it is unlimited.
std::optional<std::int64_t> ulimit_of(int resource);
/// The decimal number at the beginning; none for "max".
std::optional<std::int64_t> number_at(std::string_view text);

}  // namespace trireme
