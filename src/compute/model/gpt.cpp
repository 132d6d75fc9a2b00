// SPDX-License-Identifier: Apache-2.0
#include "model/gpt.hpp"

#include <utility>

#include "base/error.hpp"

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
  // A dropout site has 2^42 elements per sample (ops/dropout.hpp).
  TRIREME_EXPECT(s.dropout == 0 || s.heads * s.context <= (std::int64_t{1} << 42U) / s.context,
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
  size_of(micro_sequences);
}

std::size_t Gpt::size_of(std::int64_t sequences) {
  const auto [found, is_new] = sizes_.try_emplace(sequences, sizes_.size());
  if (is_new)
    layers_.prepare(kernels_, {sequences, layers_.shape.context, dtype_});
  return found->second;
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
          .size = size_of(sequences)};
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

}  // namespace trireme::model
