// SPDX-License-Identifier: Apache-2.0
#include "model/gpt.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

#include "ops/elementwise.hpp"

#include "model/gpt_impl.hpp"

namespace trireme::model {
namespace {

const GptShape& checked(const GptShape& s) {
  TRIREME_EXPECT(s.layers > 0 && s.heads > 0 && s.channels > 0 && s.context > 0 && s.vocabulary > 0,
                 "layers {}, heads {}, channels {}, context {}, vocabulary {}", s.layers, s.heads,
                 s.channels, s.context, s.vocabulary);
  TRIREME_EXPECT(s.channels % s.heads == 0, "{} channels for {} heads", s.channels, s.heads);
  TRIREME_EXPECT(s.dropout >= 0 && s.dropout < 1, "dropout {}", s.dropout);
  // A dropout site has 2^42 elements per sample (ops/dropout.hpp).
  TRIREME_EXPECT(s.dropout == 0 || s.heads * s.context <= (std::int64_t{1} << 42U) / s.context,
                 "{} heads of context {} are too many for dropout in attention", s.heads,
                 s.context);
  return s;
}

}  // namespace

Gpt::Impl::Impl(device::Device& device,
                const GptShape& given,
                DType dtype,
                std::int64_t micro_sequences,
                std::uint64_t seed,
                device::ScratchPool* scratch)
    : shape(checked(given)),
      plan(given, dtype, micro_sequences, device.kind()),
      device_(device),
      scratch_(scratch != nullptr ? *scratch
                                  : own_scratch_.emplace(device, device::ScratchPool::Options{})),
      dtype_(dtype),
      micro_sequences_(micro_sequences),
      dropout_key_(RandomKey::of(seed, Draw::dropout)),
      set_(given),
      indices_(set_.table.size()) {
  TRIREME_EXPECT(micro_sequences > 0, "{} sequences in a micro-batch", micro_sequences);
  TRIREME_EXPECT(dtype == DType::f32 || dtype == DType::bf16, "a model in {}", name(dtype));
  for (std::size_t i = 0; i < indices_.size(); ++i) indices_[i] = static_cast<ParameterIndex>(i);
  buffer_ = device.allocate(plan.bytes(), "activations");
  batch_plan(micro_sequences);
}

device::Lease Gpt::Impl::lease(const ActivationPlan::Item& item, device::Stream& stream) const {
  return scratch_.lease(item.name, item.dtype, item.elements, stream);
}

BatchPlan& Gpt::Impl::batch_plan(std::int64_t batch) {
  if (const auto found = batches_.find(batch); found != batches_.end())
    return *found->second;
  const std::int64_t all_rows = batch * shape.context, C = shape.channels;
  const auto linear = [&](LinearShape s) {
    s.rows = all_rows;
    s.piece_rows = plan.piece_rows(all_rows);
    s.bias = shape.bias;
    s.dtype = s.y = dtype_;
    Linear made(device_, s);
    made.prepare_backward(device_);
    return made;
  };
  auto made = std::make_unique<BatchPlan>(BatchPlan{
      .batch = batch,
      .activations = view_activations(shape, dtype_, batch, plan, buffer_),
      .qkv = linear({.in = C, .out = 3 * C}),
      .attention_projection = linear({.in = C, .out = C}),
      // A GELU that backward repeats must be the one of forward to the bit, so it stands
      // by itself.
      .fc = linear({.in = C, .out = 4 * C, .gelu_behind = shape.recompute != Recompute::gelu}),
      .mlp_projection = linear({.in = 4 * C, .out = C, .gelu_before = true}),
      .attention = ops::Attention(device_, {.batch = batch,
                                            .time = shape.context,
                                            .heads = shape.heads,
                                            .head_channels = shape.head_channels(),
                                            .dtype = dtype_,
                                            .drops = shape.dropout > 0}),
      .head = {}});
  const Activations& a = made->activations;
  for (std::int64_t begin = 0, rows = 0; begin < all_rows; begin += rows) {
    rows = plan.head_rows(begin, all_rows);
    Linear& head = head_linear(rows);
    head.prepare_backward(device_);
    made->head.push_back({.begin = begin,
                          .rows = rows,
                          .linear = &head,
                          .norm = a.norm_f.slice(begin * C, rows * C)});
  }
  return *batches_.emplace(batch, std::move(made)).first->second;
}

Linear& Gpt::Impl::head_linear(std::int64_t rows) {
  if (const auto found = heads_.find(rows); found != heads_.end())
    return found->second;
  return heads_
      .emplace(rows, Linear(device_, {.rows = rows,
                                      .in = shape.channels,
                                      .out = shape.vocabulary,
                                      .piece_rows = plan.piece_rows(rows),
                                      .bias = false,
                                      .dtype = dtype_,
                                      .y = plan.scratch().logits.dtype}))
      .first->second;
}

void Gpt::Impl::bind(std::vector<ConstView> parameters, std::vector<View> gradients) {
  const std::size_t count = set_.table.size();
  TRIREME_EXPECT(parameters.size() == count, "{} parameters bound to a model with {}",
                 parameters.size(), count);
  TRIREME_EXPECT(gradients.empty() || gradients.size() == count,
                 "{} gradients bound to a model with {} parameters", gradients.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const layout::Parameter& p = set_.table[i];
    TRIREME_EXPECT(parameters[i].elements == p.elements() && parameters[i].dtype == dtype_,
                   "{} elements of {} bound to {}, which has {} of {}", parameters[i].elements,
                   name(parameters[i].dtype), p.name, p.elements(), name(dtype_));
    if (gradients.empty())
      continue;
    TRIREME_EXPECT(gradients[i].elements == p.elements() && gradients[i].dtype == DType::f32,
                   "{} elements of {} bound to the gradient of {}, which has {} of fp32",
                   gradients[i].elements, name(gradients[i].dtype), p.name, p.elements());
  }
  values_ = std::move(parameters);
  gradients_ = std::move(gradients);
}

std::int64_t Gpt::Impl::checked_batch(const Batch& batch, const View& losses) const {
  const std::int64_t rows = batch.tokens.elements;
  TRIREME_EXPECT(rows > 0 && rows % shape.context == 0 && rows / shape.context <= micro_sequences_,
                 "{} tokens for up to {} rows of {}", rows, micro_sequences_, shape.context);
  TRIREME_EXPECT(batch.targets.elements == rows && losses.elements == rows,
                 "{} tokens, {} targets, {} losses", rows, batch.targets.elements, losses.elements);
  TRIREME_EXPECT(batch.tokens.dtype == DType::i32 && batch.targets.dtype == DType::i32 &&
                     losses.dtype == DType::f32,
                 "tokens of {}, targets of {}, losses of {}", name(batch.tokens.dtype),
                 name(batch.targets.dtype), name(losses.dtype));
  TRIREME_EXPECT(!values_.empty(), "a model without parameters: bind() comes first");
  return rows / shape.context;
}

ConstView Gpt::Impl::value(ParameterIndex index) const {
  return index == absent ? ConstView(nullptr, 0, dtype_) : values_[at(index)];
}

View Gpt::Impl::gradient(ParameterIndex index) const {
  return index == absent ? View(nullptr, 0, DType::f32) : gradients_[at(index)];
}

void Gpt::Impl::announce(const Call& call, ParameterIndex first, std::size_t count) const {
  call.hooks.before_use(std::span(indices_).subspan(at(first), count), call.stream);
}

void Gpt::Impl::report(const Call& call, ParameterIndex index) {
  if (call.report && index != absent)
    call.hooks.gradient_ready(index, call.stream);
}

ops::Dropout Gpt::Impl::embedding_dropout(const Call& call) const {
  return {.rate = call.training ? static_cast<float>(shape.dropout) : 0.0F,
          .key = dropout_key_,
          .first_sample = call.first_sample,
          .site = 0};
}

ops::Dropout Gpt::Impl::block_dropout(const Call& call, std::size_t l, DropoutSite site) const {
  ops::Dropout dropout = embedding_dropout(call);
  dropout.site = static_cast<std::uint32_t>(3 * l) + static_cast<std::uint32_t>(site);
  return dropout;
}

void Gpt::Impl::train(
    const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream) {
  const std::int64_t B = checked_batch(batch, losses);
  TRIREME_EXPECT(!gradients_.empty(), "training a model that was bound without gradients");
  const device::Lease narrow = lease(plan.scratch().narrow, stream);
  const device::Lease wide = lease(plan.scratch().wide, stream);
  Call call{batch_plan(B), batch.first_sample, true, last_micro_step, hooks, stream};
  call.narrow = narrow.view().slice(0, losses.elements * shape.channels);
  call.wide = wide.view().slice(0, 4 * call.narrow.elements);
  forward(call, batch.tokens);
  train_head(call, batch.targets, losses);
  backward(call, batch.tokens);
}

void Gpt::Impl::evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream) {
  const std::int64_t B = checked_batch(batch, losses);
  const device::Lease narrow = lease(plan.scratch().narrow, stream);
  const device::Lease wide = lease(plan.scratch().wide, stream);
  Call call{batch_plan(B), batch.first_sample, false, false, hooks, stream};
  call.narrow = narrow.view().slice(0, losses.elements * shape.channels);
  call.wide = wide.view().slice(0, 4 * call.narrow.elements);
  forward(call, batch.tokens);
  evaluate_head(call, batch.targets, losses);
}

void Gpt::Impl::next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream) {
  TRIREME_EXPECT(tokens.elements >= 1 && tokens.elements <= shape.context,
                 "{} tokens for a context of {}", tokens.elements, shape.context);
  TRIREME_EXPECT(tokens.dtype == DType::i32 && logits.dtype == DType::f32 &&
                     logits.elements == shape.vocabulary,
                 "tokens of {}, {} logits of {} for a vocabulary of {}", name(tokens.dtype),
                 logits.elements, name(logits.dtype), shape.vocabulary);
  TRIREME_EXPECT(!values_.empty(), "a model without parameters: bind() comes first");
  const device::Lease narrow = lease(plan.scratch().narrow, stream);
  const device::Lease wide = lease(plan.scratch().wide, stream);
  Call call{batch_plan(1), nullptr, false, false, hooks, stream};
  call.narrow = narrow.view().slice(0, shape.context * shape.channels);
  call.wide = wide.view().slice(0, 4 * call.narrow.elements);
  const Activations& a = call.batch.activations;
  device_.fill_zero(a.tokens, stream);
  device_.copy(a.tokens.slice(0, tokens.elements), tokens, stream);
  forward(call, a.tokens);
  const View last = a.norm_f.slice((tokens.elements - 1) * shape.channels, shape.channels);
  if (plan.scratch().logits.dtype == DType::f32) {
    head_linear(1).forward(logits, last, value(set_.head), {}, stream);
    return;
  }
  const device::Lease rounded = lease(plan.scratch().logits, stream);
  const View row = rounded.view().slice(0, shape.vocabulary);
  head_linear(1).forward(row, last, value(set_.head), {}, stream);
  ops::cast(logits, row, stream);
}

Gpt::Gpt(device::Device& device,
         const GptShape& shape,
         DType dtype,
         std::int64_t micro_sequences,
         std::uint64_t seed,
         device::ScratchPool* scratch)
    : impl_(std::make_unique<Impl>(device, shape, dtype, micro_sequences, seed, scratch)) {}

Gpt::~Gpt() = default;

void Gpt::bind(std::vector<ConstView> parameters, std::vector<View> gradients) {
  impl_->bind(std::move(parameters), std::move(gradients));
}

void Gpt::train(
    const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream) {
  impl_->train(batch, losses, last_micro_step, hooks, stream);
}

void Gpt::evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream) {
  impl_->evaluate(batch, losses, hooks, stream);
}

void Gpt::next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream) {
  impl_->next_logits(tokens, logits, hooks, stream);
}

const GptShape& Gpt::shape() const {
  return impl_->shape;
}

std::size_t Gpt::activation_bytes() const {
  return impl_->plan.bytes();
}

const ActivationPlan& Gpt::activation_plan() const {
  return impl_->plan;
}

}  // namespace trireme::model
