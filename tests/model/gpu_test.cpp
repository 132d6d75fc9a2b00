// SPDX-License-Identifier: Apache-2.0
// Compares the model on a GPU with the CPU: same parameters, tokens and dropout.
#include "support/gpu.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/small_model.hpp"

namespace trireme::model::testing {
namespace {

/// 64 channels in heads of 16: cuDNN's attention takes bf16 of this shape when there is no dropout.
GptShape shape_with(double dropout) {
  return {.layers = 2,
          .heads = 4,
          .channels = 64,
          .context = 48,
          .vocabulary = 131,
          .dropout = dropout};
}

/// The largest difference over the largest expected value.
double worst(const std::vector<float>& got, const std::vector<float>& expected) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto g = static_cast<double>(got[i]), e = static_cast<double>(expected[i]);
    if (!std::isfinite(g))
      return INFINITY;
    difference = std::max(difference, std::abs(g - e));
    largest = std::max(largest, std::abs(e));
  }
  return largest > 0 ? difference / largest : difference;
}

GptShape llama_shape() {
  GptShape shape = shape_with(0);
  shape.grouped_heads = 2;
  shape.hidden = 88;
  shape.norm = Norm::rms_norm;
  shape.activation = Activation::swiglu;
  shape.positions = Positions::rotary;
  shape.rotary_theta = 100;
  shape.bias = shape.tied_head = false;
  return shape;
}

GptShape qwen3_shape() {
  GptShape shape = llama_shape();
  shape.head_width = 24;
  shape.qk_norm = QkNorm::with_gain;
  return shape;
}

GptShape nanochat_shape() {
  GptShape shape = llama_shape();
  shape.activation = Activation::squared_relu;
  shape.norm_gain = false;
  shape.embedding_norm = true;
  shape.qk_norm = QkNorm::without_gain;
  return shape;
}

GptShape capped_shape() {
  GptShape shape = shape_with(0);
  shape.logit_softcap = 0.5;
  shape.z_loss = 0.01;
  return shape;
}

struct GpuCase {
  const char* name;
  DType dtype;
  GptShape shape;
  double loss_tolerance, gradient_tolerance;
};

void PrintTo(const GpuCase& c, std::ostream* os) {
  *os << c.name;
}

class ModelOnGpu : public ::testing::TestWithParam<GpuCase> {
 protected:
  void SetUp() override { TRIREME_NEEDS_GPU(); }

  std::unique_ptr<SmallModel> on_gpu() {
    return initialized({.kind = device::Kind::cuda, .dtype = GetParam().dtype});
  }
  /// The reference: the CPU in fp32, because not every CPU multiplies bf16.
  std::unique_ptr<SmallModel> on_cpu() { return initialized({}); }

  const GptShape shape_ = GetParam().shape;
  const std::vector<std::int32_t> tokens_ = random_tokens(3 * shape_.context, shape_.vocabulary, 1);
  const std::vector<std::int32_t> targets_ =
      random_tokens(3 * shape_.context, shape_.vocabulary, 2);

 private:
  /// With GPT-2's initial values.
  std::unique_ptr<SmallModel> initialized(const test::Backend& backend) {
    auto model = std::make_unique<SmallModel>(shape_, backend);
    for (std::size_t p = 0; p < model->values.size(); ++p)
      Layers(shape_).registry.initialize(
          static_cast<ParameterIndex>(p), 3,
          view_of(model->values[p].data(), model->table[p].elements()));
    model->bind();
    return model;
  }
};

TEST_P(ModelOnGpu, LossesAndGradientsAreThoseOfTheCpu) {
  const auto gpu = on_gpu(), cpu = on_cpu();
  EXPECT_LE(worst(gpu->train(tokens_, targets_, 5), cpu->train(tokens_, targets_, 5)),
            GetParam().loss_tolerance);
  for (std::size_t p = 0; p < cpu->gradients.size(); ++p)
    EXPECT_LE(worst(gpu->gradients[p], cpu->gradients[p]), GetParam().gradient_tolerance)
        << gpu->table[p].name;
}

TEST_P(ModelOnGpu, EvaluatesAndSamplesLikeTheCpu) {
  const auto gpu = on_gpu(), cpu = on_cpu();
  EXPECT_LE(worst(gpu->evaluate(tokens_, targets_), cpu->evaluate(tokens_, targets_)),
            GetParam().loss_tolerance);
  const std::vector<std::int32_t> prompt(tokens_.begin(), tokens_.begin() + 7);
  EXPECT_LE(worst(gpu->next_logits(prompt), cpu->next_logits(prompt)),
            GetParam().gradient_tolerance);
}

TEST_P(ModelOnGpu, RepeatsToTheBit) {
  const auto gpu = on_gpu();
  const auto losses = gpu->train(tokens_, targets_, 5);
  const auto gradients = gpu->gradients;
  for (int again = 0; again < 3; ++again) {
    gpu->zero_gradients();
    EXPECT_EQ(gpu->train(tokens_, targets_, 5), losses);
    EXPECT_EQ(gpu->gradients, gradients);
  }
}

/// Two models on one GPU, created alternately: each uses its own options.
TEST(OptionsOnGpu, AreThoseOfTheModelAndNotOfTheDevice) {
  TRIREME_NEEDS_GPU();
  const auto device = test::make_device({.kind = device::Kind::cuda}, 1);
  const GptShape shape = shape_with(0);
  const auto tokens = random_tokens(3 * shape.context, shape.vocabulary, 1);
  const auto gradients = [&](const ops::Options& options) {
    SmallModel model(shape, {.kind = device::Kind::cuda, .dtype = DType::bf16}, 3,
                     device::StreamMode::inlined, device.get(), nullptr, options);
    model.train(tokens, tokens);
    return model.gradients;
  };
  const auto usual = gradients({});
  EXPECT_NE(gradients({.products = {.fused_gelu = false}}), usual);  // one more rounding
  EXPECT_EQ(gradients({}), usual);
}

// fp32: roundings of sums of some hundred terms. bf16: the CPU's own bf16 deviates from the
// double-precision reference by 0.009 and 0.025 (gradient_test.cpp), with larger parameters.
INSTANTIATE_TEST_SUITE_P(
    Cases,
    ModelOnGpu,
    ::testing::Values(GpuCase{"fp32", DType::f32, shape_with(0), 1e-5, 1e-4},
                      GpuCase{"fp32_dropout", DType::f32, shape_with(0.1), 1e-5, 1e-4},
                      GpuCase{"fp32_llama", DType::f32, llama_shape(), 1e-5, 1e-4},
                      GpuCase{"fp32_qwen3", DType::f32, qwen3_shape(), 1e-5, 1e-4},
                      GpuCase{"fp32_nanochat", DType::f32, nanochat_shape(), 1e-5, 1e-4},
                      GpuCase{"fp32_softcap", DType::f32, capped_shape(), 1e-5, 1e-4},
                      GpuCase{"bf16_softcap", DType::bf16, capped_shape(), 0.01, 0.05},
                      GpuCase{"bf16", DType::bf16, shape_with(0), 0.01, 0.05},
                      GpuCase{"bf16_dropout", DType::bf16, shape_with(0.1), 0.01, 0.05},
                      GpuCase{"bf16_llama", DType::bf16, llama_shape(), 0.01, 0.05},
                      GpuCase{"bf16_qwen3", DType::bf16, qwen3_shape(), 0.01, 0.05},
                      GpuCase{"bf16_nanochat", DType::bf16, nanochat_shape(), 0.01, 0.05}),
    [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace trireme::model::testing
