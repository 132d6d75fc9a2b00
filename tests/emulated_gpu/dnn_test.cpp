// SPDX-License-Identifier: Apache-2.0
// The stand-in for cuDNN handles graphs as cuDNN does: strides, uids and the order of calls matter,
// and it refuses what the front end refuses.
#include <cmath>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>
#include <gtest/gtest.h>

#include "base/dtype.hpp"

#include "support/gpu.hpp"

namespace trireme::test {
namespace {

namespace fe = cudnn_frontend;

struct Shape {
  std::int64_t heads = 2, time = 3, channels = 8;
};

/// A forward graph whose q, k and v are parts of rows of `row` elements.
std::unique_ptr<fe::graph::Graph> describe(const Shape& s,
                                           std::int64_t row,
                                           std::int64_t k_uid = 2) {
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto tensor = [&](std::int64_t uid) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({1, s.heads, s.time, s.channels})
                             .set_stride({s.time * row, s.channels, row, 1}));
  };
  const auto made = graph->sdpa(
      tensor(1), tensor(k_uid), tensor(3),
      fe::graph::SDPA_attributes().set_generate_stats(true).set_causal_mask(true).set_attn_scale(
          1.0F));
  const std::int64_t dense = s.heads * s.channels;
  made[0]
      ->set_output(true)
      .set_uid(4)
      .set_dim({1, s.heads, s.time, s.channels})
      .set_stride({s.time * dense, s.channels, dense, 1});
  made[1]
      ->set_output(true)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_uid(5)
      .set_dim({1, s.heads, s.time, 1})
      .set_stride({s.heads * s.time, s.time, 1, 1});
  return graph;
}

class EmulatedDnn : public ::testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudnnSetStream(handle_, stream_), CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    for (void* at : memory_) cudaFree(at);
    if (stream_ != nullptr)
      cudaStreamDestroy(stream_);
    cudnnDestroy(handle_);
  }

  void* on_gpu(const std::vector<float>& values) {
    std::vector<Bf16> rounded;
    for (const float value : values) rounded.emplace_back(value);
    void* at = nullptr;
    EXPECT_EQ(cudaMalloc(&at, rounded.size() * sizeof(Bf16)), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(at, rounded.data(), rounded.size() * sizeof(Bf16), cudaMemcpyDefault,
                              stream_),
              cudaSuccess);
    memory_.push_back(at);
    return at;
  }
  void build(fe::graph::Graph& graph) {
    ASSERT_TRUE(graph.validate().is_good());
    ASSERT_TRUE(graph.build_operation_graph(handle_).is_good());
    ASSERT_TRUE(graph.create_execution_plans({fe::HeurMode_t::A}).is_good());
    ASSERT_TRUE(graph.check_support().is_good());
    ASSERT_TRUE(graph.build_plans().is_good());
  }
  /// The attention output for q, k and v that begin `distance` apart in rows of `row` elements.
  std::vector<float> attend(const std::vector<float>& qkv, std::int64_t row, std::size_t distance) {
    const Shape s;
    const auto graph = describe(s, row);
    build(*graph);
    auto* base = static_cast<Bf16*>(on_gpu(qkv));
    void* out = on_gpu(std::vector<float>(48, -1));
    void* stats = on_gpu(std::vector<float>(12, -1));
    std::unordered_map<std::int64_t, void*> at{
        {1, base}, {2, base + distance}, {3, base + 2 * distance}, {4, out}, {5, stats}};
    EXPECT_TRUE(graph->execute(handle_, at, nullptr).is_good());
    std::vector<Bf16> made(48);
    EXPECT_EQ(
        cudaMemcpyAsync(made.data(), out, made.size() * sizeof(Bf16), cudaMemcpyDefault, stream_),
        cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    std::vector<float> values;
    for (const Bf16 value : made) values.push_back(static_cast<float>(value));
    return values;
  }

  cudnnHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

TEST_F(EmulatedDnn, AttendsThroughStrides) {
  // Element (part, t, c) of q, k and v: packed in one row, and as three tensors.
  const auto value = [](std::int64_t part, std::int64_t t, std::int64_t c) {
    return static_cast<float>((5 * part + 3 * t + c) % 7 - 3) / 4;
  };
  std::vector<float> packed, apart;
  for (std::int64_t t = 0; t < 3; ++t)
    for (std::int64_t part = 0; part < 3; ++part)
      for (std::int64_t c = 0; c < 16; ++c) packed.push_back(value(part, t, c));
  for (std::int64_t part = 0; part < 3; ++part)
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t c = 0; c < 16; ++c) apart.push_back(value(part, t, c));
  const auto result = attend(packed, 48, 16);
  EXPECT_EQ(result, attend(apart, 16, 48));
  // The first row attends to itself only; the second weights two rows by their scores.
  for (std::int64_t c = 0; c < 16; ++c)
    EXPECT_EQ(result[static_cast<std::size_t>(c)], value(2, 0, c)) << c;
  double weights[2] = {0, 0};
  for (std::int64_t s = 0; s < 2; ++s) {
    double score = 0;
    for (std::int64_t c = 0; c < 8; ++c)
      score += static_cast<double>(value(0, 1, c)) * static_cast<double>(value(1, s, c));
    weights[s] = std::exp(score);
  }
  const double expected = (weights[0] * static_cast<double>(value(2, 0, 5)) +
                           weights[1] * static_cast<double>(value(2, 1, 5))) /
                          (weights[0] + weights[1]);
  EXPECT_NEAR(static_cast<double>(result[16 + 5]), expected, 5e-3);
}

TEST_F(EmulatedDnn, RefusesWhatTheFrontEndRefuses) {
  EXPECT_TRUE(describe({}, 48)->validate().is_good());
  EXPECT_NE(describe({}, 48, 1)->validate().get_message().find("has been used already"),
            std::string::npos);
  EXPECT_EQ(describe({2, 3, 12}, 72)->validate().get_message(),
            "hidden_dim should be multiple of 8");
  const auto large = describe({1, 3, 136}, 408);
  ASSERT_TRUE(large->validate().is_good());
  ASSERT_TRUE(large->build_operation_graph(handle_).is_good());
  EXPECT_TRUE(large->check_support().is_bad()) << "out of order";
  ASSERT_TRUE(large->create_execution_plans({fe::HeurMode_t::A}).is_good());
  EXPECT_TRUE(large->check_support().is_bad()) << "heads of 136 channels";
}

TEST_F(EmulatedDnn, RefusesAddressesThatAreMissingOrOdd) {
  const auto graph = describe({}, 16);
  build(*graph);
  auto* all = static_cast<Bf16*>(on_gpu(std::vector<float>(256, 0)));
  std::unordered_map<std::int64_t, void*> at{
      {1, all}, {2, all + 48}, {3, all + 96}, {4, all + 144}};
  EXPECT_EQ(graph->execute(handle_, at, nullptr).get_message(),
            "Variant pack expected uid 5 but not found.");
  at[5] = all + 193;
  EXPECT_TRUE(graph->execute(handle_, at, nullptr).is_bad());
  at[5] = all + 192;
  EXPECT_TRUE(graph->execute(handle_, at, nullptr).is_good());
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

}  // namespace
}  // namespace trireme::test
