// SPDX-License-Identifier: Apache-2.0
// A Gpt with everything that it needs around it, small enough for finite differences over all
// parameters. The parameters are far from GPT-2's initial values, so that no part of the model is
// nearly linear or nearly silent.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"

#include "device/device.hpp"

#include "model/gpt.hpp"

namespace trireme::model::testing {

inline constexpr std::uint64_t model_seed = 7;

inline GptShape small_shape() {
  return {.layers = 2, .heads = 2, .channels = 8, .context = 5, .vocabulary = 11};
}

/// What the model said, in order.
class RecordingHooks final : public Hooks {
 public:
  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*s*/) override {
    groups.emplace_back(parameters.begin(), parameters.end());
    if (!ready.empty())
      used_after_ready = true;
  }
  void gradient_ready(ParameterIndex parameter, device::Stream& /*s*/) override {
    ready.push_back(parameter);
  }

  std::vector<std::vector<ParameterIndex>> groups;
  std::vector<ParameterIndex> ready;
  bool used_after_ready = false;
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

class SmallModel {
 public:
  explicit SmallModel(const GptShape& given,
                      DType type = DType::f32,
                      std::int64_t micro_sequences = 3,
                      device::StreamMode mode = device::StreamMode::inlined,
                      device::Device* other = nullptr,
                      device::ScratchPool* scratch = nullptr)
      : shape(given),
        dtype(type),
        own_device(device::make_cpu_device(1)),
        device(other != nullptr ? *other : *own_device),
        stream(device.make_stream(mode, "compute")),
        table(parameter_table(given)),
        gpt(device, given, type, micro_sequences, model_seed, scratch) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::vector<float> v(static_cast<std::size_t>(table[i].elements()));
      const bool gain = table[i].shape.size() == 1 && table[i].name.ends_with(".weight");
      for (std::size_t e = 0; e < v.size(); ++e) {
        const auto words = philox(RandomKey::of(99, Draw::synthetic), e, i + 1);
        v[e] = static_cast<float>((gain ? 1.0 : 0.0) + 0.3 * normal(words.w[0], words.w[1]));
      }
      values.push_back(std::move(v));
      rounded.emplace_back(values.back().size());
      gradients.emplace_back(values.back().size());
    }
    bind();
  }

  /// Hands the current values to the model (rounded to bf16 where that is its dtype).
  void bind() {
    std::vector<ConstView> views;
    std::vector<View> gradient_views;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto n = static_cast<std::int64_t>(values[i].size());
      for (std::size_t e = 0; e < values[i].size(); ++e) rounded[i][e] = Bf16(values[i][e]);
      views.push_back(dtype == DType::bf16 ? ConstView(view_of(rounded[i].data(), n))
                                           : ConstView(view_of(values[i].data(), n)));
      gradient_views.push_back(view_of(gradients[i].data(), n));
    }
    gpt.bind(views, gradient_views);
  }

  void zero_gradients() {
    for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0F);
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

  std::vector<float> train(const std::vector<std::int32_t>& tokens,
                           const std::vector<std::int32_t>& targets,
                           std::uint64_t first_sample = 0,
                           bool last_micro_step = true) {
    std::vector<float> losses(tokens.size(), -1.0F);
    const auto n = static_cast<std::int64_t>(tokens.size());
    gpt.train({view_of(tokens.data(), n),
               view_of(targets.data(), static_cast<std::int64_t>(targets.size())), first_sample},
              view_of(losses.data(), n), last_micro_step, hooks, *stream);
    stream->synchronize();
    return losses;
  }

  std::vector<float> evaluate(const std::vector<std::int32_t>& tokens,
                              const std::vector<std::int32_t>& targets) {
    std::vector<float> losses(tokens.size(), -1.0F);
    const auto n = static_cast<std::int64_t>(tokens.size());
    gpt.evaluate({view_of(tokens.data(), n),
                  view_of(targets.data(), static_cast<std::int64_t>(targets.size())), 0},
                 view_of(losses.data(), n), hooks, *stream);
    stream->synchronize();
    return losses;
  }

  std::vector<float> next_logits(const std::vector<std::int32_t>& tokens) {
    std::vector<float> logits(static_cast<std::size_t>(shape.vocabulary), -1.0F);
    gpt.next_logits(view_of(tokens.data(), static_cast<std::int64_t>(tokens.size())),
                    view_of(logits.data(), shape.vocabulary), hooks, *stream);
    stream->synchronize();
    return logits;
  }

  const GptShape shape;
  const DType dtype;
  std::unique_ptr<device::Device> own_device;
  device::Device& device;
  std::unique_ptr<device::Stream> stream;
  std::vector<layout::Parameter> table;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<Bf16>> rounded;
  std::vector<std::vector<float>> gradients;
  Gpt gpt;
  RecordingHooks hooks;
};

}  // namespace trireme::model::testing
