// SPDX-License-Identifier: Apache-2.0
// A Gpt with everything that it needs, small enough for finite differences over all parameters. The
// parameters are far from GPT-2's initial values, so that no part of the model is nearly linear or
// has almost no effect.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "device/device.hpp"

#include "model/gpt.hpp"

#include "support/backends.hpp"

namespace trireme::model::testing {

inline constexpr std::uint64_t model_seed = 7;

inline GptShape small_shape() {
  return {.layers = 2, .heads = 2, .channels = 8, .context = 5, .vocabulary = 11};
}

/// Llama's parts: two query heads that share one key head, an MLP of an odd width.
inline GptShape small_llama() {
  return {.layers = 2,
          .heads = 2,
          .channels = 8,
          .context = 5,
          .vocabulary = 11,
          .bias = false,
          .tied_head = false,
          .grouped_heads = 1,
          .hidden = 7,
          .norm = Norm::rms_norm,
          .activation = Activation::swiglu,
          .positions = Positions::rotary,
          .rotary_theta = 10};
}

/// Qwen3: Llama with heads wider than the stream, and normalized with gains.
inline GptShape small_qwen3() {
  GptShape shape = small_llama();
  shape.heads = 3;
  shape.head_width = 6;
  shape.qk_norm = QkNorm::with_gain;
  return shape;
}

/// nanochat: no gains, a norm after the embedding.
inline GptShape small_nanochat() {
  GptShape shape = small_llama();
  shape.grouped_heads = 0;
  shape.hidden = 12;
  shape.activation = Activation::squared_relu;
  shape.norm_gain = false;
  shape.embedding_norm = true;
  shape.qk_norm = QkNorm::without_gain;
  return shape;
}

/// Records the calls of the model, in order.
class RecordingHooks final : public Hooks {
 public:
  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*s*/) override {
    groups.emplace_back(parameters.begin(), parameters.end());
  }
  void before_write(ParameterIndex /*p*/, device::Stream& /*s*/) override {}
  void gradient_ready(ParameterIndex parameter, device::Stream& /*s*/) override {
    ready.push_back(parameter);
  }

  std::vector<std::vector<ParameterIndex>> groups;
  std::vector<ParameterIndex> ready;
};

inline std::vector<std::int32_t> random_tokens(std::int64_t count,
                                               std::int64_t vocabulary,
                                               std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto words = philox(RandomKey::of(seed, Draw::synthetic), static_cast<std::uint64_t>(i));
    tokens.push_back(static_cast<std::int32_t>(
        below(static_cast<std::uint64_t>(vocabulary), words.w[0], words.w[1])));
  }
  return tokens;
}

/// Uses its backend's device; values, gradients, tokens and results are on the host.
class SmallModel {
 public:
  explicit SmallModel(const GptShape& given,
                      const test::Backend& backend = {},
                      std::int64_t micro_sequences = 3,
                      device::StreamMode mode = device::StreamMode::inlined,
                      device::Device* other = nullptr,
                      device::ScratchPool* scratch = nullptr,
                      const ops::Options& options = {})
      : shape(given),
        dtype(backend.dtype),
        own_device(other != nullptr ? nullptr : test::make_device(backend, 1)),
        device(other != nullptr ? *other : *own_device),
        stream(device.make_stream(mode, "compute")),
        table(parameter_table(given)),
        gpt(device, given, dtype, micro_sequences, model_seed, scratch, options) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::vector<float> v(static_cast<std::size_t>(table[i].elements()));
      const bool gain = table[i].shape.size() == 1 && table[i].name.ends_with(".weight");
      for (std::size_t e = 0; e < v.size(); ++e) {
        const auto words = philox(RandomKey::of(99, Draw::synthetic), e, i + 1);
        v[e] = static_cast<float>((gain ? 1.0 : 0.0) + 0.3 * normal(words.w[0], words.w[1]));
      }
      parameters_.push_back(device.allocate(v.size() * size_bytes(dtype), "parameter"));
      device_gradients_.push_back(device.allocate(v.size() * sizeof(float), "gradient"));
      values.push_back(std::move(v));
      rounded.emplace_back(values.back().size());
      gradients.emplace_back(values.back().size());
    }
    // Memory for more than fits, for tests of refused calls.
    const auto rows = static_cast<std::size_t>((micro_sequences + 1) * shape.context);
    tokens_ = device.allocate(rows * sizeof(std::int32_t), "tokens");
    targets_ = device.allocate(rows * sizeof(std::int32_t), "targets");
    first_sample_ = device.allocate(sizeof(std::uint64_t), "first sample");
    losses_ = device.allocate(rows * sizeof(float), "losses");
    logits_ = device.allocate(static_cast<std::size_t>(shape.vocabulary) * sizeof(float), "logits");
    zero_gradients();
    bind();
  }

  /// Passes the current values to the model (rounded if its dtype is bf16).
  void bind() {
    std::vector<ConstView> views;
    std::vector<View> gradient_views;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto n = static_cast<std::int64_t>(values[i].size());
      for (std::size_t e = 0; e < values[i].size(); ++e) rounded[i][e] = Bf16(values[i][e]);
      device.copy(parameters_[i].view(dtype),
                  dtype == DType::bf16 ? ConstView(view_of(rounded[i].data(), n))
                                       : ConstView(view_of(values[i].data(), n)),
                  *stream);
      views.emplace_back(parameters_[i].view(dtype));
      gradient_views.push_back(device_gradients_[i].view(DType::f32));
    }
    stream->synchronize();
    gpt.bind(views, gradient_views);
  }

  void zero_gradients() {
    for (const device::Buffer& gradient : device_gradients_)
      device.fill_zero(gradient.view(DType::f32), *stream);
    read_gradients();
  }

  /// Values as the model sees them.
  [[nodiscard]] std::vector<std::vector<double>> exact_values() const {
    std::vector<std::vector<double>> all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      all.emplace_back();
      for (std::size_t e = 0; e < values[i].size(); ++e)
        all.back().push_back(dtype == DType::bf16
                                 ? static_cast<double>(static_cast<float>(rounded[i][e]))
                                 : static_cast<double>(values[i][e]));
    }
    return all;
  }

  /// `listener` receives the calls in place of `hooks`.
  std::vector<float> train(const std::vector<std::int32_t>& tokens,
                           const std::vector<std::int32_t>& targets,
                           std::uint64_t first_sample = 0,
                           bool last_micro_step = true,
                           Hooks* listener = nullptr) {
    device.copy(first_sample_.view(DType::u8),
                View(reinterpret_cast<std::byte*>(&first_sample), sizeof first_sample, DType::u8),
                *stream);
    const Batch batch{upload(tokens_, tokens), upload(targets_, targets),
                      reinterpret_cast<const std::uint64_t*>(first_sample_.data())};
    const View losses = unwritten(losses_, batch.tokens.elements);
    gpt.train(batch, losses, last_micro_step, listener != nullptr ? *listener : hooks, *stream);
    read_gradients();
    return read(losses);
  }

  std::vector<float> evaluate(const std::vector<std::int32_t>& tokens,
                              const std::vector<std::int32_t>& targets) {
    const Batch batch{upload(tokens_, tokens), upload(targets_, targets)};
    const View losses = unwritten(losses_, batch.tokens.elements);
    gpt.evaluate(batch, losses, hooks, *stream);
    return read(losses);
  }

  std::vector<float> next_logits(const std::vector<std::int32_t>& tokens) {
    const View logits = unwritten(logits_, shape.vocabulary);
    gpt.next_logits(upload(tokens_, tokens), logits, hooks, *stream);
    return read(logits);
  }

  /// The current value of this gradient.
  [[nodiscard]] std::vector<float> gradient_now(std::size_t parameter) {
    return read(device_gradients_[parameter].view(DType::f32));
  }

  const GptShape shape;
  const DType dtype;
  std::unique_ptr<device::Device> own_device;
  device::Device& device;
  std::unique_ptr<device::Stream> stream;
  std::vector<layout::Parameter> table;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<Bf16>> rounded;
  std::vector<std::vector<float>> gradients;  ///< after the last train()
  Gpt gpt;
  RecordingHooks hooks;

 private:
  View upload(const device::Buffer& to, const std::vector<std::int32_t>& tokens) {
    const auto n = static_cast<std::int64_t>(tokens.size());
    device.copy(to.view(DType::i32, 0, n), view_of(tokens.data(), n), *stream);
    stream->synchronize();
    return to.view(DType::i32, 0, n);
  }
  /// Fills a buffer with values that no operation can have written.
  View unwritten(const device::Buffer& buffer, std::int64_t elements) {
    const std::vector<float> nothing(static_cast<std::size_t>(elements), -1.0F);
    const View to = buffer.view(DType::f32, 0, elements);
    device.copy(to, view_of(nothing.data(), elements), *stream);
    stream->synchronize();
    return to;
  }
  std::vector<float> read(ConstView from) {
    std::vector<float> values_read(static_cast<std::size_t>(from.elements));
    device.copy(view_of(values_read.data(), from.elements), from, *stream);
    stream->synchronize();
    return values_read;
  }
  void read_gradients() {
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradient_now(i);
  }

  std::vector<device::Buffer> parameters_, device_gradients_;
  device::Buffer tokens_, targets_, first_sample_, losses_, logits_;
};

}  // namespace trireme::model::testing
