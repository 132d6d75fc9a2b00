// SPDX-License-Identifier: Apache-2.0
#include "model/gpt.hpp"

#include <utility>

#include "base/error.hpp"

#include "ops/dropout.hpp"
#include "ops/elementwise.hpp"

namespace trireme::model {
namespace {

const GptShape& checked(const GptShape& s) {
  TRIREME_EXPECT(s.layers > 0 && s.heads > 0 && s.channels > 0 && s.context > 0 && s.vocabulary > 0,
                 "layers {}, heads {}, channels {}, context {}, vocabulary {}", s.layers, s.heads,
                 s.channels, s.context, s.vocabulary);
  TRIREME_EXPECT(s.head_width > 0 || (s.head_width == 0 && s.channels % s.heads == 0),
                 "{} channels for {} heads of {}", s.channels, s.heads, s.head_width);
  TRIREME_EXPECT(s.key_value_heads() > 0 && s.heads % s.key_value_heads() == 0,
                 "{} heads over {} of keys and values", s.heads, s.key_value_heads());
  TRIREME_EXPECT(s.positions == Positions::learned || s.head_channels() % 2 == 0,
                 "rotary positions of heads of {} channels", s.head_channels());
  TRIREME_EXPECT(s.attention_window >= 0, "an attention window of {}", s.attention_window);
  TRIREME_EXPECT(s.layers <= most_layers, "{} layers", s.layers);
  TRIREME_EXPECT((s.long_layers >> static_cast<std::size_t>(s.layers)).none(),
                 "{} layers without a window of {} layers", s.long_layers.count(), s.layers);
  TRIREME_EXPECT(s.dropout >= 0 && s.dropout < 1, "dropout {}", s.dropout);
  TRIREME_EXPECT(s.dropout == 0 || s.heads * s.context <= ops::most_dropped / s.context,
                 "{} heads of context {} are too many for dropout in attention", s.heads,
                 s.context);
  return s;
}

}  // namespace

Gpt::Gpt(device::Device& device,
         const GptShape& given,
         DType dtype,
         std::int64_t micro_sequences,
         std::uint64_t seed,
         device::ScratchPool* scratch,
         const ops::Options& options)
    : device_(device),
      scratch_(scratch != nullptr ? *scratch
                                  : own_scratch_.emplace(device, device::ScratchPool::Options{})),
      dtype_(dtype),
      micro_sequences_(micro_sequences),
      dropout_key_(RandomKey::of(seed, Draw::dropout)),
      layers_(checked(given)),
      plan_(layers_.plan(dtype, micro_sequences, device.kind())),
      kernels_(device, options),
      bound_{dtype, {}, {}} {
  TRIREME_EXPECT(micro_sequences > 0, "{} sequences in a micro-batch", micro_sequences);
  TRIREME_EXPECT(dtype == DType::f32 || dtype == DType::bf16, "a model in {}", name(dtype));
  buffer_ = device.allocate(plan_.bytes(), "activations");
  layers_.fill(buffer_, device);
  layers_.size_of(kernels_, {micro_sequences, layers_.shape.context, dtype});
}

nn::Call Gpt::call_of(std::int64_t sequences, Hooks& hooks, device::Stream& stream) {
  return {.bound = bound_,
          .plan = plan_,
          .memory = buffer_,
          .pool = scratch_,
          .hooks = hooks,
          .stream = stream,
          .sequences = sequences,
          .context = layers_.shape.context,
          .size = layers_.size_of(kernels_, {sequences, layers_.shape.context, dtype_})};
}

void Gpt::bind(std::vector<ConstView> parameters, std::vector<View> gradients) {
  layers_.expect_views(parameters, dtype_, "values");
  if (!gradients.empty())
    layers_.expect_views(gradients, DType::f32, "gradients");
  bound_.values = std::move(parameters);
  bound_.gradients = std::move(gradients);
}

std::int64_t Gpt::checked_batch(const Batch& batch, const View& losses) const {
  const std::int64_t rows = batch.tokens.elements;
  TRIREME_EXPECT(
      rows > 0 && rows % shape().context == 0 && rows / shape().context <= micro_sequences_,
      "{} tokens for up to {} rows of {}", rows, micro_sequences_, shape().context);
  TRIREME_EXPECT(batch.targets.elements == rows && losses.elements == rows,
                 "{} tokens, {} targets, {} losses", rows, batch.targets.elements, losses.elements);
  TRIREME_EXPECT(batch.tokens.dtype == DType::i32 && batch.targets.dtype == DType::i32 &&
                     losses.dtype == DType::f32,
                 "tokens of {}, targets of {}, losses of {}", name(batch.tokens.dtype),
                 name(batch.targets.dtype), name(losses.dtype));
  TRIREME_EXPECT(!bound_.values.empty(), "a model without parameters: bind() comes first");
  return rows / shape().context;
}

template <class Finish>
void Gpt::forward(nn::Call& call, ConstView tokens, const Finish& finish) const {
  const device::Lease narrow = call.lease(plan_.scratch().narrow);
  const device::Lease wide = call.lease(plan_.scratch().wide);
  call.narrow = narrow.view();
  call.wide = wide.view();
  call.document_starts = layers_.document_starts(call, tokens);
  layers_.forward(call, tokens);
  finish(layers_.final_norm->output(call));
}

void Gpt::train(
    const Batch& batch, View losses, bool last_micro_step, Hooks& hooks, device::Stream& stream) {
  const std::int64_t B = checked_batch(batch, losses);
  TRIREME_EXPECT(!bound_.gradients.empty(), "training a model that was bound without gradients");
  nn::Call call = call_of(B, hooks, stream);
  call.training = true;
  call.report = last_micro_step;
  call.dropout = {.rate = static_cast<float>(shape().dropout),
                  .key = dropout_key_,
                  .first_sample = batch.first_sample};
  forward(call, batch.tokens, [&](View output) {
    layers_.head->train(call, output, batch.targets, losses,
                        batch.loss_scale.value_or(1.0F / static_cast<float>(losses.elements)));
    backward(call, batch.tokens);
  });
}

void Gpt::evaluate(const Batch& batch, View losses, Hooks& hooks, device::Stream& stream) {
  nn::Call call = call_of(checked_batch(batch, losses), hooks, stream);
  forward(call, batch.tokens,
          [&](View output) { layers_.head->evaluate(call, output, batch.targets, losses); });
}

void Gpt::next_logits(ConstView tokens, View logits, Hooks& hooks, device::Stream& stream) {
  const GptShape& s = shape();
  TRIREME_EXPECT(tokens.elements >= 1 && tokens.elements <= s.context,
                 "{} tokens for a context of {}", tokens.elements, s.context);
  TRIREME_EXPECT(
      tokens.dtype == DType::i32 && logits.dtype == DType::f32 && logits.elements == s.vocabulary,
      "tokens of {}, {} logits of {} for a vocabulary of {}", name(tokens.dtype), logits.elements,
      name(logits.dtype), s.vocabulary);
  TRIREME_EXPECT(!bound_.values.empty(), "a model without parameters: bind() comes first");
  nn::Call call = call_of(1, hooks, stream);
  layers_.head->prepare_row(kernels_, dtype_);
  const View window = call.view(layers_.window);
  device_.fill_zero(window, stream);
  device_.copy(window.slice(0, tokens.elements), tokens, stream);
  forward(call, window, [&](View output) {
    layers_.head->next_logits(call, output.slice((tokens.elements - 1) * s.channels, s.channels),
                              logits);
  });
}

// Backward visits the parameters in reverse registration order: a bias before its weight, a layer's
// own gradients before its input's, so that a gradient is reported as early as possible.
// Activations that forward did not retain are recomputed just before they are needed, with the same
// ops as in forward.
void Gpt::backward(const nn::Call& call, ConstView tokens) const {
  const std::int64_t elements = call.rows() * layers_.shape.channels;
  const device::Lease all_dx = call.lease(plan_.scratch().dx);
  const device::Lease all_d_branch = call.lease(plan_.scratch().d_branch);
  const View dx = all_dx.view().slice(0, elements);
  const View d_branch = all_d_branch.view().slice(0, call.dropout.active() ? elements : 0);
  layers_.final_norm->backward(call, dx, call.narrow_of(layers_.shape.channels),
                               layers_.stream(call, layers_.residuals.size()), false);
  bool in_place = true;  // activations of the last block that shares memory are still valid
  constexpr std::size_t per_block = Layers::per_block;
  for (auto l = static_cast<std::size_t>(layers_.shape.layers); l-- > 0;) {
    layers_.announce(call, l + 1);
    if (layers_.shape.recompute.of(l) == Recompute::block) {
      if (!in_place)
        forward_again(call, l * per_block);
      in_place = false;
    }
    for (std::size_t i = (l + 1) * per_block; i-- > l * per_block;)
      backward_residual(call, i, dx, d_branch);
  }
  if (!layers_.embedding_norm) {
    layers_.embedding->backward(call, dx, tokens);
    return;
  }
  layers_.announce_embedding_norm(call);
  const View d_embedded = call.narrow_of(layers_.shape.channels);
  layers_.embedding_norm->backward(call, d_embedded, dx, layers_.embedded(call), false);
  layers_.embedding->backward(call, d_embedded, tokens);
}

void Gpt::forward_again(const nn::Call& call, std::size_t first) const {
  layers_.norm(first).forward(call, layers_.stream(call, first));
  for (std::size_t i = first;; ++i) {
    const nn::Branch& branch = *layers_.residuals[i].branch;
    branch.forward_inside(call, layers_.norm(i).output(call));
    if (i + 1 == first + Layers::per_block)
      return;
    branch.forward_output(call);
    layers_.add_and_normalize(call, i);
  }
}

void Gpt::backward_residual(const nn::Call& call, std::size_t i, View dx, View d_branch) const {
  const Residual& residual = layers_.residuals[i];
  const std::int64_t C = layers_.shape.channels;
  if (call.dropout.active())
    run(ops::DropoutBackward{.dbranch = d_branch,
                             .dy = dx,
                             .elements_per_sample = layers_.shape.context * C,
                             .dropout = call.dropout_at(residual.dropout_site)},
        call.stream);
  residual.branch->backward(call, call.dropout.active() ? d_branch : dx,
                            residual.norm->output(call));
  residual.norm->backward(call, dx, call.narrow_of(C), layers_.stream(call, i), true);
}

}  // namespace trireme::model
