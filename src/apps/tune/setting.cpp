// SPDX-License-Identifier: Apache-2.0
#include "tune/setting.hpp"

#include <algorithm>

#include "deck/value.hpp"

namespace trireme::tune {
namespace {

bool same_buckets(const Setting& a, const Setting& b) {
  return a.bucket_boundaries == b.bucket_boundaries &&
         a.bucket_elements.value == b.bucket_elements.value;
}

}  // namespace

Setting setting_of(const deck::JobConfig& config) {
  return {.micro_sequences = config.batch.micro_sequences,
          .recompute = config.model.recompute,
          .transport = config.parallel.transport,
          .bucket_elements = config.parallel.bucket_elements,
          .bucket_boundaries = config.parallel.bucket_boundaries};
}

void apply(const Setting& setting, deck::JobConfig& config) {
  config.batch.micro_sequences = setting.micro_sequences;
  config.model.recompute = setting.recompute;
  config.parallel.transport = setting.transport;
  config.parallel.bucket_elements = setting.bucket_elements;
  config.parallel.bucket_boundaries = setting.bucket_boundaries;
}

std::vector<deck::KeyValue> values_of(const Setting& setting) {
  return {{"batch.micro_sequences", deck::yaml_text(setting.micro_sequences)},
          {"model.recompute", deck::yaml_text(setting.recompute)},
          {"parallel.transport", deck::yaml_text(setting.transport)},
          {"parallel.bucket_elements", deck::yaml_text(setting.bucket_elements)},
          {"parallel.bucket_boundaries", deck::yaml_text(setting.bucket_boundaries)}};
}

std::vector<deck::KeyValue> differences(const Setting& base, const Setting& other) {
  const auto old = values_of(base);
  auto values = values_of(other);
  std::erase_if(values, [&](const deck::KeyValue& value) {
    return std::ranges::find(old, value) != old.end();
  });
  return values;
}

std::string words_of(const std::vector<deck::KeyValue>& values) {
  std::string words;
  for (const deck::KeyValue& value : values)
    words += (words.empty() ? "" : " ") + value.path + "=" + value.value;
  return words.empty() ? "the deck's values" : words;
}

bool changes_bits(const Additions& additions,
                  const Setting& own,
                  comm::Transport own_wire,
                  const Setting& other,
                  comm::Transport other_wire) {
  if (own.micro_sequences != other.micro_sequences)
    return true;
  if (additions.reduction != comm::Reduction::sum)
    return false;
  if (additions.replicas > 2 && !same_buckets(own, other))
    return true;
  if (additions.ranks <= 2)
    return false;
  return own_wire != other_wire || (own_wire == comm::Transport::mpi && !same_buckets(own, other));
}

}  // namespace trireme::tune
