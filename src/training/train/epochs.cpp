// SPDX-License-Identifier: Apache-2.0
#include "train/epochs.hpp"

#include <fmt/format.h>

namespace trireme::train {

Epochs::Epochs(const batches::Dataset& dataset, std::int64_t next_sample)
    : dataset_(dataset), ended_(ended(next_sample)) {}

std::vector<std::int64_t> Epochs::ended(std::int64_t samples) const {
  auto counts = dataset_.seen(samples);
  for (std::size_t part = 0; part < counts.size(); ++part)
    counts[part] /= dataset_.parts()[part].size();
  return counts;
}

std::string Epochs::forecast(std::int64_t samples) const {
  const auto seen = dataset_.seen(samples);
  std::string text;
  for (std::size_t part = 0; part < seen.size(); ++part) {
    const double epochs =
        static_cast<double>(seen[part]) / static_cast<double>(dataset_.parts()[part].size());
    text += fmt::format("{}{:.3g}", text.empty() ? "" : ", ", epochs);
  }
  return fmt::format("data: the run is {} epochs{}", text,
                     seen.size() == 1 ? "" : " of the parts of the mixture");
}

std::string Epochs::warning(std::int64_t samples) const {
  // Up to four epochs are about as good as new data (Muennighoff et al. 2023, arXiv 2305.16264).
  constexpr double most_epochs = 4;
  const auto seen = dataset_.seen(samples);
  for (std::size_t part = 0; part < seen.size(); ++part) {
    const double epochs =
        static_cast<double>(seen[part]) / static_cast<double>(dataset_.parts()[part].size());
    if (epochs > most_epochs)
      return fmt::format(
          "the run reads {} {:.3g} times. Beyond {:.0f} epochs, repeated data helps little and may "
          "be memorized. Add data, or lower run.steps",
          seen.size() == 1 ? "its training data" : fmt::format("data.train.mixture[{}]", part),
          epochs, most_epochs);
  }
  return "";
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
