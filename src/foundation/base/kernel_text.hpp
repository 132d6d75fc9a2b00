// SPDX-License-Identifier: Apache-2.0
// Reading the small files of /proc and /sys. A file that is not there reads as an empty text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

std::string text_of(const std::string& path);
/// Without blanks and ends of lines around it.
std::string trimmed(std::string_view text);
/// The decimal number at the beginning; none for "max".
std::optional<std::int64_t> number_at(std::string_view text);

}  // namespace trireme
