// SPDX-License-Identifier: Apache-2.0
#include "batches/batches.hpp"

#include <charconv>

#include <fmt/format.h>

namespace trireme::batches {

std::optional<Range> range_of(const std::string& word) {
  constexpr std::int64_t most = std::int64_t{1} << 60U;  // sums of it can be counted
  Range range;
  const char* const end = word.data() + word.size();
  auto read = std::from_chars(word.data(), end, range.first);
  range.last = range.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
    read = std::from_chars(read.ptr + 1, end, range.last);
  const bool whole = read.ec == std::errc() && read.ptr == end;
  return whole && 0 <= range.first && 0 <= range.last && std::max(range.first, range.last) < most
             ? std::optional(range)
             : std::nullopt;
}

Skips::Skips(const std::vector<std::string>& words) {
  std::vector<Range> given;
  for (const std::string& word : words) given.push_back(range_of(word).value());
  std::ranges::sort(given, {}, &Range::first);
  for (const Range& range : given)
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
}

std::int64_t Skips::count(std::int64_t end) const {
  std::int64_t sum = 0;
  for (const Range& range : ranges_)
    sum += std::max<std::int64_t>(std::min(range.last + 1, end) - range.first, 0);
  return sum;
}

bool Skips::same_before(std::int64_t end, const Skips& other) const {
  // Equal counts where one of them begins or ends a range are equal counts everywhere.
  for (const auto* one : {this, &other})
    for (const Range& range : one->ranges_)
      for (const std::int64_t at : {range.first, range.last + 1})
        if (at < end && count(at) != other.count(at))
          return false;
  return count(end) == other.count(end);
}

std::int64_t Skips::after(std::int64_t first, std::int64_t count) const {
  for (const Range& range : ranges_) {
    if (count == 0 || first + count <= range.first)
      break;
    if (range.last < first)
      continue;
    count -= std::max<std::int64_t>(range.first - first, 0);
    first = range.last + 1;
  }
  return first + count;
}

std::string uneven_text(const Batches& batches) {
  const std::int64_t most = batches.most_sequences();
  std::int64_t least = most;
  for (int rank = 0; rank < batches.ranks; ++rank)
    least = std::min(least, batches.share(rank).count);
  if (least == most)
    return "";
  const std::int64_t unit = batches.ranks * batches.updates,
                     below = batches.sequences / unit * unit;
  return fmt::format(
      "ranks have between {} and {} of the {} sequences{}, so some idle for {:.1f} % of the "
      "compute "
      "time of a step. {}",
      least, most, batches.sequences_of_update(), batches.updates > 1 ? " of a local step" : "",
      100 * (1 - static_cast<double>(least) / static_cast<double>(most)),
      batches.leaves > 0 ? "They have equally many if their number is a power of two"
      : below > 0        ? fmt::format("They have equally many of {} or {}", below, below + unit)
                         : fmt::format("They have equally many of {}", unit));
}

}  // namespace trireme::batches
