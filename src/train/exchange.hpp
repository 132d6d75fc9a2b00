// SPDX-License-Identifier: Apache-2.0
// The one control exchange at the end of a step: the global mean loss, whether anybody was asked to
// save or to stop, and whether anybody is still writing a checkpoint.
//
// The loss is an order-free sum of fp32 token losses, so its bits do not depend on how tokens were
// dealt out to ranks. Requests ride along in the same integer sum, so that all ranks act on them at
// the same step.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/world.hpp"
#include "ops/order_free_sum.hpp"

#include "train/stop.hpp"

namespace trireme::train {

struct Agreed {
  double mean_loss = 0;
  bool checkpoint = false;
  bool stop = false;
  bool writing = false;
};

class Exchange {
 public:
  explicit Exchange(comm::World& world);

  /// `losses` holds this rank's terms of `terms` in all, over all ranks.
  Agreed agree(ops::OrderFreeSum& losses, std::int64_t terms, const Requests& mine);

 private:
  comm::World& world_;
  std::vector<std::int64_t> words_;
};

}  // namespace trireme::train
