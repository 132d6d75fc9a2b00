// SPDX-License-Identifier: Apache-2.0
#include "inference/token_loss.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "ops/optimizer/order_free_sum.hpp"

#include "batches/read_ahead.hpp"

#include "session/session.hpp"

namespace trireme::inference {

double TokenLoss::perplexity() const {
  return std::exp(loss());
}

double TokenLoss::bits_per_byte() const {
  return session::bits_per_byte(nats, bytes);
}

TokenLoss token_loss(Scorer& scorer,
                     const tokens::TokenStream& stream,
                     std::span<const std::int32_t> bytes_of,
                     comm::World& world,
                     const comm::Wanted& interrupts) {
  TRIREME_EXPECT(stream.size() >= 2, "the loss on {} tokens", stream.size());
  const std::int64_t T = scorer.shape().context;
  TokenLoss result{.tokens = stream.size() - 1};
  const std::int64_t windows = divided_up(result.tokens, T);
  ops::OrderFreeSum sum;
  std::vector<std::int32_t> both;
  const auto pass = [&](std::int64_t window, bool counts) {
    const std::int64_t targets = std::min(T, result.tokens - window * T);
    both.resize(static_cast<std::size_t>(targets) + 1);
    stream.read(window * T, both);
    const Row row{{both.begin(), both.end() - 1}, {both.begin() + 1, both.end()}};
    const auto losses = scorer.losses({&row, 1});
    if (!counts)
      return;
    result.bytes += batches::bytes_of_tokens(row.targets, bytes_of);
    for (const float loss : losses.at(0)) sum.add(static_cast<double>(loss));
  };
  share_out(scorer.passes(), windows, world, pass, interrupts);
  sum.normalize();
  world.sum(sum.words());
  world.sum({&result.bytes, 1});
  result.nats = sum.value();
  return result;
}

}  // namespace trireme::inference
