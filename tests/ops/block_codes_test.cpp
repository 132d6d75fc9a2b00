// SPDX-License-Identifier: Apache-2.0
#include "ops/block_codes.hpp"

#include <array>
#include <limits>

#include "ops/block_code_reference.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::coded_bytes;

class BlockCodesTest : public OpsTest {
 protected:
  Values encode_and_decode(BlockCode code, const Tensor& values, View error = {}) {
    const std::int64_t elements = values.view().elements;
    const auto codes = tensor(DType::u8, coded_bytes(code, elements));
    auto sum = tensor(DType::f32, Values(static_cast<std::size_t>(elements), 7.0));
    run(
        ops::EncodeBlocks{
            .codes = codes.view(), .values = values.view(), .error = error, .code = code},
        stream());
    run(ops::DecodeBlocks{.sum = sum.view(), .codes = codes.view(), .code = code}, stream());
    return sum.values();
  }
  static constexpr std::array both_codes{BlockCode::int8, BlockCode::fp8};
  static constexpr std::array all_codes{BlockCode::int8, BlockCode::fp8, BlockCode::top4,
                                        BlockCode::top1};
};

/// Blocks of very different magnitudes, with zeros and values half-way between two codes.
Values awkward_values(std::int64_t blocks) {
  Values values = normals(3, blocks * block_elements);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto block = static_cast<int>(i / block_elements);
    if (block % 5 == 1)
      values[i] = i % block_elements == 0 ? 127 : static_cast<double>(i % 64) + 0.5;
    values[i] = i % 11 == 3 ? 0 : std::ldexp(values[i], block % 13 * 20 - 140);
  }
  return rounded_to(DType::f32, values);
}

TEST_P(BlockCodesTest, ChoosesTheNearestCodes) {
  for (const BlockCode code : all_codes)
    for (const std::int64_t blocks : {1, 2, 13, 255, 257, 515}) {
      const Values values = awkward_values(blocks);
      EXPECT_EQ(encode_and_decode(code, tensor(DType::f32, values)), decoded(code, values));
    }
}

TEST_P(BlockCodesTest, KeepsInTheErrorWhatIsCutOff) {
  for (const BlockCode code : all_codes) {
    const Values first = rounded_to(DType::f32, normals(1, 640)),
                 second = rounded_to(DType::f32, normals(2, 640, 0.01));
    const auto values = tensor(DType::f32, first), error = tensor(DType::f32, second);
    Values both, left;
    for (std::size_t i = 0; i < first.size(); ++i)
      both.push_back(
          static_cast<double>(static_cast<float>(first[i]) + static_cast<float>(second[i])));
    const Values sent = encode_and_decode(code, values, error.view());
    EXPECT_EQ(sent, decoded(code, both));
    for (std::size_t i = 0; i < sent.size(); ++i) left.push_back(both[i] - sent[i]);
    EXPECT_EQ(error.values(), left);  // exact: no bit of a gradient is lost
  }
}

TEST_P(BlockCodesTest, AddsInFp32) {
  const Values values = rounded_to(DType::f32, normals(5, 192));
  const auto sent = tensor(DType::f32, values),
             codes = tensor(DType::u8, coded_bytes(BlockCode::fp8, 192));
  auto sum = tensor(DType::f32, Values(192, 0.1));
  run(ops::EncodeBlocks{.codes = codes.view(), .values = sent.view(), .code = BlockCode::fp8},
      stream());
  run(
      ops::DecodeBlocks{
          .sum = sum.view(), .codes = codes.view(), .code = BlockCode::fp8, .adds = true},
      stream());
  Values expected;
  for (const double value : decoded(BlockCode::fp8, values))
    expected.push_back(static_cast<double>(0.1F + static_cast<float>(value)));
  EXPECT_EQ(sum.values(), expected);
}

TEST_P(BlockCodesTest, DecodesABlockThatIsNotFiniteAsNanAndKeepsItsError) {
  for (const BlockCode code : both_codes)
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(),
                              -std::numeric_limits<float>::infinity(), 0x1p126F}) {
      Values values(192, 1.0);
      values[100] = static_cast<double>(wrong);
      const auto error = tensor(DType::f32, Values(192, 0.0078125));
      const auto on_device = tensor(DType::f32, values);
      const Values sent = encode_and_decode(code, on_device, error.view());
      for (std::size_t i = 0; i < sent.size(); ++i)
        EXPECT_EQ(std::isnan(sent[i]), i / block_elements == 1) << i;
      EXPECT_EQ(error.values()[64], 0.0078125);
      EXPECT_EQ(error.values()[127], 0.0078125);
    }
}

TEST_P(BlockCodesTest, SendsFirstWhatIsNotFiniteAndKeepsTheError) {
  for (const BlockCode code : {BlockCode::top4, BlockCode::top1}) {
    Values values(192, 1.0);
    values[100] = std::numeric_limits<double>::quiet_NaN();
    const auto error = tensor(DType::f32, Values(192, 0.0078125));
    const auto on_device = tensor(DType::f32, values);
    const Values sent = encode_and_decode(code, on_device, error.view());
    for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(std::isnan(sent[i]), i == 100) << i;
    for (std::size_t i = 64; i < 128; ++i) EXPECT_EQ(error.values()[i], 0.0078125);
    EXPECT_EQ(error.values()[63], 1.0078125);
  }
}

TRIREME_ON_BACKENDS(BlockCodesTest);

}  // namespace
}  // namespace trireme::test
