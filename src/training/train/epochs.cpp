// SPDX-License-Identifier: Apache-2.0
#include "train/epochs.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::train {
namespace {

/// Epochs of each part in the first `samples` of a run.
std::vector<double> epochs_of(const batches::Dataset& dataset, std::int64_t samples) {
  std::vector<double> epochs;
  for (const std::int64_t seen : dataset.seen(samples))
    epochs.push_back(static_cast<double>(seen) /
                     static_cast<double>(dataset.parts()[epochs.size()].size()));
  return epochs;
}

}  // namespace

std::string epochs_text(const batches::Dataset& dataset, std::int64_t samples) {
  const auto parts = epochs_of(dataset, samples);
  return fmt::format("data: the run is {:.3g} epochs{}", fmt::join(parts, ", "),
                     parts.size() == 1 ? "" : " of the parts of the mixture");
}

std::string epochs_warning(const batches::Dataset& dataset, std::int64_t samples) {
  // Up to four epochs are about as good as new data (Muennighoff et al. 2023, arXiv 2305.16264).
  constexpr double most_epochs = 4;
  const auto parts = epochs_of(dataset, samples);
  const auto many = std::ranges::find_if(parts, [](double one) { return one > most_epochs; });
  if (many == parts.end())
    return "";
  return fmt::format(
      "the run reads {} {:.3g} times. Beyond {:.0f} epochs, repeated data helps little and may "
      "be memorized. Add data, or lower run.steps",
      parts.size() == 1 ? "its training data"
                        : fmt::format("data.train.mixture[{}]", many - parts.begin()),
      *many, most_epochs);
}

std::vector<std::string> epochs_ended(const batches::Dataset& dataset,
                                      std::int64_t before,
                                      std::int64_t after) {
  std::vector<std::string> lines;
  const auto seen_before = dataset.seen(before), seen = dataset.seen(after);
  for (std::size_t part = 0; part < seen.size(); ++part) {
    const std::int64_t size = dataset.parts()[part].size();
    // An epoch begins with its first sample, not with the last one of the epoch before.
    const auto epoch_of = [size](std::int64_t samples) {
      return (std::max<std::int64_t>(samples, 1) - 1) / size;
    };
    if (const std::int64_t now = epoch_of(seen[part]); now > epoch_of(seen_before[part]))
      lines.push_back(
          fmt::format("epoch {} begins{}", now + 1,
                      seen.size() == 1 ? "" : fmt::format(" of data.train.mixture[{}]", part)));
  }
  return lines;
}

}  // namespace trireme::train
