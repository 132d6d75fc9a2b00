// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.hpp"

#include <utility>

#include "base/error.hpp"

#include "ops/cached_attention.hpp"

namespace trireme::model {
namespace {

/// The number of rows to which a call is padded: a power of four.
std::int64_t filled_up(std::int64_t rows) {
  std::int64_t size = 1;
  while (size < rows) size *= 4;
  return size;
}

/// How many of `left` tokens to read next: all, unless more than half of the call were padding.
std::int64_t next_piece(std::int64_t left) {
  if (left >= Decoder::piece_tokens)
    return Decoder::piece_tokens;
  const std::int64_t size = filled_up(left);
  return 2 * left >= size ? left : size / 4;
}

}  // namespace

Decoder::Decoder(device::Device& device,
                 const GptShape& shape,
                 DType dtype,
                 const nn::CacheSize& cache)
    : device_(device),
      scratch_(device, {}),
      dtype_(dtype),
      cache_(cache),
      starts_(shape.masks_documents() ? static_cast<std::size_t>(cache.sequences * cache.positions)
                                      : 0),
      layers_(shape),
      plan_(layers_.plan(dtype, most_rows, device.kind(), cache_)),
      kernels_(device, {}),
      bound_{dtype, {}, {}} {
  ops::require_cached_attention(device);
  TRIREME_EXPECT(cache.sequences >= 1 && cache.sequences <= most_rows && cache.positions >= 1 &&
                     cache.positions <= shape.context,
                 "{} sequences of {} tokens to decode at a time", cache.sequences, cache.positions);
  TRIREME_EXPECT(dtype == DType::f32 || dtype == DType::bf16, "a model in {}", name(dtype));
  static_assert(most_rows == 256, "a power of four, as filled_up() makes them");
  const auto stream = device.make_stream(device::StreamMode::inlined, "caches");
  buffer_ = device.allocate(plan_.bytes(), "activations of a decoder");
  device.fill_zero(buffer_.view(DType::u8), *stream);
  stream->synchronize();
  layers_.fill(buffer_, device);
  rows_ = device.allocate_shared_with_host(4 * most_rows * sizeof(std::int32_t), "rows to decode");
  logits_ = device.allocate(
      static_cast<std::size_t>(filled_up(cache.sequences) * shape.vocabulary) * sizeof(float),
      "logits of a decoder");
  layers_.head->prepare_row(kernels_, dtype);
}

void Decoder::bind(std::vector<ConstView> parameters) {
  layers_.expect_views(parameters, dtype_, "values");
  bound_.values = std::move(parameters);
}

nn::Call Decoder::call_of(std::int64_t rows, nn::Hooks& hooks, device::Stream& stream) {
  TRIREME_EXPECT(rows >= 1 && rows <= most_rows, "{} rows to decode at a time", rows);
  TRIREME_EXPECT(!bound_.values.empty(), "a model without parameters: bind() comes first");
  const std::int64_t size = filled_up(rows);
  return {.bound = bound_,
          .plan = plan_,
          .memory = buffer_,
          .pool = scratch_,
          .hooks = hooks,
          .stream = stream,
          .sequences = size,
          .context = 1,
          .size = layers_.size_of(kernels_, {size, 1, dtype_, cache_})};
}

std::int32_t Decoder::start_of(const Row& row) {
  const auto at = static_cast<std::size_t>(row.sequence * cache_.positions + row.position);
  starts_[at] = row.token == layers_.shape.document_token ? row.position
                : row.position == 0                       ? 0
                                                          : starts_[at - 1];
  return starts_[at];
}

View Decoder::forward(nn::Call& call, std::span<const Row> rows) {
  const View all = rows_.view(DType::i32);
  const View tokens = all.slice(0, call.sequences);
  const nn::CachePositions cached{all.slice(most_rows, call.sequences),
                                  all.slice(2 * most_rows, call.sequences)};
  const bool masks = layers_.shape.masks_documents();
  if (masks)
    call.document_starts = all.slice(3 * most_rows, call.sequences);
  call.stream.synchronize();  // no enqueued work reads the previous call's rows
  auto* to = all.as<std::int32_t>();
  for (std::int64_t r = 0; r < call.sequences; ++r) {
    constexpr Row spare{.sequence = -1};
    const bool given = r < static_cast<std::int64_t>(rows.size());
    const Row& row = given ? rows[static_cast<std::size_t>(r)] : spare;
    TRIREME_EXPECT(!given || (row.sequence >= 0 && row.sequence < cache_.sequences &&
                              row.position >= 0 && row.position < cache_.positions),
                   "position {} of sequence {}, of {} sequences of {}", row.position, row.sequence,
                   cache_.sequences, cache_.positions);
    TRIREME_EXPECT(row.token >= 0 && row.token < layers_.shape.vocabulary,
                   "token {} in a vocabulary of {}", row.token, layers_.shape.vocabulary);
    to[r] = row.token;
    to[most_rows + r] = row.sequence;
    to[2 * most_rows + r] = row.position;
    to[3 * most_rows + r] = given && masks ? start_of(row) : 0;
  }
  const device::Lease narrow = call.lease(plan_.scratch().narrow);
  const device::Lease wide = call.lease(plan_.scratch().wide);
  call.narrow = narrow.view();
  call.wide = wide.view();
  call.cached = &cached;
  layers_.forward(call, tokens);
  return layers_.final_norm->output(call);
}

void Decoder::read(std::int64_t sequence,
                   std::int64_t first,
                   std::span<const std::int32_t> tokens,
                   View logits,
                   nn::Hooks& hooks,
                   device::Stream& stream) {
  TRIREME_EXPECT(!tokens.empty(), "no token to read");
  TRIREME_EXPECT(logits.dtype == DType::f32 && logits.elements == layers_.shape.vocabulary,
                 "{} logits of {} for a vocabulary of {}", logits.elements, name(logits.dtype),
                 layers_.shape.vocabulary);
  const auto count = static_cast<std::int64_t>(tokens.size());
  std::vector<Row> rows;
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + next_piece(count - begin);
    rows.clear();
    for (std::int64_t i = begin; i < end; ++i)
      rows.push_back({.sequence = static_cast<std::int32_t>(sequence),
                      .position = static_cast<std::int32_t>(first + i),
                      .token = tokens[static_cast<std::size_t>(i)]});
    nn::Call call = call_of(std::ssize(rows), hooks, stream);
    const View read = forward(call, rows);
    if (end < count)
      continue;
    const std::int64_t C = layers_.shape.channels;
    layers_.head->next_logits(call, read.slice((std::ssize(rows) - 1) * C, C), logits);
  }
}

void Decoder::step(std::span<const Row> rows,
                   View logits,
                   nn::Hooks& hooks,
                   device::Stream& stream) {
  const std::int64_t V = layers_.shape.vocabulary;
  TRIREME_EXPECT(logits.dtype == DType::f32 && logits.elements == std::ssize(rows) * V,
                 "{} logits of {} for {} rows of a vocabulary of {}", logits.elements,
                 name(logits.dtype), rows.size(), V);
  TRIREME_EXPECT(std::ssize(rows) <= cache_.sequences, "{} rows of {} sequences", rows.size(),
                 cache_.sequences);
  nn::Call call = call_of(std::ssize(rows), hooks, stream);
  const View read = forward(call, rows);
  const View all = logits_.view(DType::f32, 0, call.sequences * V);
  layers_.head->logits(call, read, all);
  device_.copy(logits, all.slice(0, logits.elements), stream);
}

}  // namespace trireme::model
