// SPDX-License-Identifier: Apache-2.0
#include "train/exchange.hpp"

#include <algorithm>

namespace trireme::train {

Exchange::Exchange(comm::World& world) : world_(world), words_(ops::OrderFreeSum::num_words + 3) {}

Agreed Exchange::agree(ops::OrderFreeSum& losses, std::int64_t terms, const Requests& mine) {
  losses.normalize();
  const auto sums = losses.words();
  const auto flags = std::ranges::copy(sums, words_.begin()).out;
  flags[0] = mine.checkpoint;
  flags[1] = mine.stop;
  flags[2] = mine.writing;
  world_.sum(words_);
  std::copy(words_.begin(), flags, sums.begin());
  return {losses.value() / static_cast<double>(terms), flags[0] > 0, flags[1] > 0, flags[2] > 0};
}

}  // namespace trireme::train
