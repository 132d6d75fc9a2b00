// SPDX-License-Identifier: Apache-2.0
#include "inference/scorer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "model/layers.hpp"
#include "ops/optimizer/order_free_sum.hpp"

#include "batches/read_ahead.hpp"

#include "session/session.hpp"

namespace trireme::inference {
namespace {

constexpr std::int64_t narrowest = 64;

/// The same model for a narrower window. Nothing is kept for a backward pass.
model::GptShape narrowed(const model::GptShape& shape, std::int64_t width) {
  model::GptShape narrow = shape;
  narrow.context = width;
  narrow.recompute = model::Recompute::block;
  return narrow;
}

/// Of each parameter, the elements that a narrower window reads: the first.
std::vector<ConstView> narrowed(const model::GptShape& shape,
                                const std::vector<ConstView>& parameters) {
  const auto table = model::parameter_table(shape);
  TRIREME_EXPECT(table.size() == parameters.size(), "{} parameters of a model with {}",
                 parameters.size(), table.size());
  std::vector<ConstView> views;
  for (std::size_t i = 0; i < table.size(); ++i)
    views.push_back(parameters[i].slice(0, table[i].elements()));
  return views;
}

}  // namespace

std::int64_t width_of(std::int64_t tokens, std::int64_t context) {
  TRIREME_EXPECT(tokens >= 1 && tokens <= context, "a row of {} tokens for a context of {}", tokens,
                 context);
  std::int64_t width = narrowest;
  while (width < tokens) width *= 2;
  return std::min(width, context);
}

struct Scorer::Window {
  Window(device::Device& device,
         const model::GptShape& shape,
         DType dtype,
         const std::vector<ConstView>& parameters,
         std::int64_t rows,
         device::ScratchPool& scratch,
         const ops::Options& options)
      : gpt(device, shape, dtype, rows, 0, &scratch, options),
        tokens(static_cast<std::size_t>(rows * shape.context)),
        targets(tokens.size()),
        losses(tokens.size()),
        memory(device.allocate(3 * tokens.size() * sizeof(std::int32_t), "rows and losses")) {
    gpt.bind(narrowed(shape, parameters), {});
  }

  model::Gpt gpt;
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> losses;
  device::Buffer memory;  // tokens, targets, losses
};

Scorer::Scorer(device::Device& device,
               const model::GptShape& shape,
               DType dtype,
               std::vector<ConstView> parameters,
               nn::Hooks& hooks,
               device::Stream& stream,
               const ops::Options& options,
               Passes passes)
    : device_(device),
      shape_(shape),
      dtype_(dtype),
      parameters_(std::move(parameters)),
      hooks_(hooks),
      stream_(stream),
      options_(options),
      passes_(passes),
      scratch_(device, device::ScratchPool::Options{}) {}
Scorer::~Scorer() = default;

std::int64_t Scorer::rows_at_once(std::int64_t width) const {
  return std::max<std::int64_t>(1, shape_.context / width);
}

Scorer::Window& Scorer::window(std::int64_t width) {
  auto& found = windows_[width];
  if (!found)
    found = std::make_unique<Window>(device_, narrowed(shape_, width), dtype_, parameters_,
                                     rows_at_once(width), scratch_, options_);
  return *found;
}

std::vector<std::vector<float>> Scorer::losses(std::span<const Row> rows) {
  TRIREME_EXPECT(!rows.empty(), "losses of no row");
  const std::int64_t width = width_of(std::ssize(rows[0].tokens), shape_.context);
  TRIREME_EXPECT(std::ssize(rows) <= rows_at_once(width), "{} rows of width {} at once",
                 rows.size(), width);
  Window& w = window(width);
  const std::int64_t elements = std::ssize(rows) * width;
  std::fill_n(w.tokens.begin(), elements, 0);
  std::fill_n(w.targets.begin(), elements, -1);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    TRIREME_EXPECT(rows[r].targets.size() == rows[r].tokens.size() &&
                       width_of(std::ssize(rows[r].tokens), shape_.context) == width,
                   "row {} has {} tokens and {} targets, in windows of {}", r,
                   rows[r].tokens.size(), rows[r].targets.size(), width);
    const auto begin = static_cast<std::ptrdiff_t>(r) * width;
    std::ranges::copy(rows[r].tokens, w.tokens.begin() + begin);
    std::ranges::copy(rows[r].targets, w.targets.begin() + begin);
  }
  const std::int64_t room = std::ssize(w.tokens);
  const View both = w.memory.view(DType::i32);
  const View tokens = both.slice(0, elements), targets = both.slice(room, elements);
  const View losses = w.memory.view(DType::f32).slice(2 * room, elements);
  device_.copy(tokens, view_of(w.tokens.data(), elements), stream_);
  device_.copy(targets, view_of(w.targets.data(), elements), stream_);
  w.gpt.evaluate({tokens, targets}, losses, hooks_, stream_);
  device_.copy(view_of(w.losses.data(), elements), losses, stream_);
  stream_.synchronize();
  std::vector<std::vector<float>> all;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto begin = w.losses.begin() + static_cast<std::ptrdiff_t>(r) * width;
    all.emplace_back(begin, begin + std::ssize(rows[r].tokens));
  }
  return all;
}

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
    {
      const comm::World::AtWork reading(world);
      stream.read(window * T, both);
    }
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
