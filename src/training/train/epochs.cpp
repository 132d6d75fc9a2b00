// SPDX-License-Identifier: Apache-2.0
#include "train/epochs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::train {

Epochs::Epochs(const batches::Dataset& dataset, std::int64_t next_sample)
    : dataset_(dataset), ended_(ended(next_sample)) {}

std::vector<std::int64_t> Epochs::ended(std::int64_t samples) const {
  auto counts = dataset_.seen(samples);
  for (std::size_t part = 0; part < counts.size(); ++part)
    counts[part] /= dataset_.parts()[part].size();
  return counts;
}

std::vector<double> Epochs::epochs(std::int64_t samples) const {
  std::vector<double> epochs;
  for (const std::int64_t seen : dataset_.seen(samples))
    epochs.push_back(static_cast<double>(seen) /
                     static_cast<double>(dataset_.parts()[epochs.size()].size()));
  return epochs;
}

std::string Epochs::forecast(std::int64_t samples) const {
  const auto parts = epochs(samples);
  return fmt::format("data: the run is {:.3g} epochs{}", fmt::join(parts, ", "),
                     parts.size() == 1 ? "" : " of the parts of the mixture");
}

std::string Epochs::warning(std::int64_t samples) const {
  // Up to four epochs are about as good as new data (Muennighoff et al. 2023, arXiv 2305.16264).
  constexpr double most_epochs = 4;
  const auto parts = epochs(samples);
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

std::vector<std::string> Epochs::passed(std::int64_t next_sample) {
  std::vector<std::string> lines;
  const auto now = ended(next_sample);
  for (std::size_t part = 0; part < now.size(); ++part)
    if (now[part] > ended_[part])
      lines.push_back(
          fmt::format("epoch {} begins{}", now[part] + 1,
                      now.size() == 1 ? "" : fmt::format(" of data.train.mixture[{}]", part)));
  ended_ = now;
  return lines;
}

}  // namespace trireme::train
