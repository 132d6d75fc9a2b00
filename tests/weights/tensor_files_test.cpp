// SPDX-License-Identifier: Apache-2.0
#include "weights/tensor_files.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/packing.hpp"

#include "weights/folder.hpp"

namespace trireme::weights {
namespace {

TEST(StoredType, ConvertsEveryHalf) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10U & 31U);
    const double fraction = static_cast<double>(bits & 1023U);
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    const float found = half_to_float(static_cast<std::uint16_t>(bits));
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    const double expected = exponent == 31  ? std::numeric_limits<double>::infinity()
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(found, static_cast<float>(sign * expected)) << bits;
    ASSERT_EQ(std::signbit(found), sign < 0) << bits;
  }
}

/// One tensor in one file, whose stored element i is i.
struct OneTensor {
  OneTensor(StoredType type, std::vector<std::int64_t> shape, bool transposed) {
    StoredTensor tensor{.parameter = "w", .name = "w", .shape = std::move(shape), .type = type};
    tensor.transposed = transposed;
    std::string bytes = "junk";
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const auto value = static_cast<float>(i);
      const auto raw = std::bit_cast<std::uint32_t>(value);
      if (type == StoredType::f32) {
        bytes.append(reinterpret_cast<const char*>(&raw), 4);
      } else {
        const auto upper = static_cast<std::uint16_t>(raw >> 16U);
        bytes.append(reinterpret_cast<const char*>(&upper), 2);
      }
    }
    test::write_bytes(directory / "data", bytes);
    model.files = {directory / "data"};
    tensor.extents = {{0, 4, 0, tensor.elements()}};
    model.tensors = {tensor};
  }
  [[nodiscard]] const StoredTensor& tensor() const { return model.tensors[0]; }

  test::ScratchDirectory directory;
  StoredModel model;
};

std::vector<float> range_of(const StoredModel& model, std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count), -1);
  TensorReader(model).read(model.tensors[0], begin, view_of(values.data(), count));
  return values;
}

TEST(TensorReader, ReadsEveryRangeOfAMatrixThatIsStoredTurned) {
  for (const StoredType type : {StoredType::f32, StoredType::bf16}) {  // 0 … 34 are exact in bf16
    const OneTensor one(type, {5, 7}, true);
    for (std::int64_t begin = 0; begin <= 35; ++begin)
      for (std::int64_t count = 0; begin + count <= 35; ++count) {
        const auto values = range_of(one.model, begin, count);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t row = (begin + i) / 7, column = (begin + i) % 7;
          ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(column * 5 + row))
              << begin << " " << count;
        }
      }
  }
}

TEST(TensorReader, ReadsAMatrixThatIsLargerThanABlock) {
  const std::int64_t out = 1500, in = 1100;
  static_assert(1500 * 1100 > block_elements);
  const OneTensor one(StoredType::f32, {out, in}, true);
  for (const auto& [begin, count] : {std::pair<std::int64_t, std::int64_t>{0, out * in},
                                     {in * 3 + 5, in * 1200 + 17},
                                     {out * in - 1, 1}}) {
    const auto values = range_of(one.model, begin, count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = (begin + i) / in, column = (begin + i) % in;
      ASSERT_EQ(values[static_cast<std::size_t>(i)], static_cast<float>(column * out + row));
    }
  }
}

TEST(TensorReader, ReadsAcrossExtentsOfSeveralFiles) {
  OneTensor one(StoredType::f32, {12}, false);
  const test::ScratchDirectory other;
  test::write_bytes(other / "more", bytes_of({100, 101, 102, 103, 104}));
  one.model.files.push_back(other / "more");
  one.model.tensors[0].extents = {{0, 4, 0, 5}, {1, 4, 5, 4}, {0, 4 + 4 * 9, 9, 3}};
  const std::vector<float> whole{0, 1, 2, 3, 4, 101, 102, 103, 104, 9, 10, 11};
  for (std::size_t begin = 0; begin <= 12; ++begin)
    for (std::size_t end = begin; end <= 12; ++end)
      EXPECT_EQ(range_of(one.model, static_cast<std::int64_t>(begin),
                         static_cast<std::int64_t>(end - begin)),
                std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                   whole.begin() + static_cast<std::ptrdiff_t>(end)));
}

TEST(TensorReader, NamesTheFileThatWasCut) {
  const OneTensor one(StoredType::f32, {5, 7}, true);
  test::write_bytes(one.directory / "data", "short");
  try {
    range_of(one.model, 0, 35);
    ADD_FAILURE() << "read from a file that is too short";
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find(one.directory / "data"), std::string::npos);
  }
}

TEST(TensorReader, OwesNothingOutsideOfTheTensor) {
  const OneTensor one(StoredType::f32, {5, 7}, false);
  EXPECT_THROW(range_of(one.model, 30, 6), ContractError);
  EXPECT_THROW(range_of(one.model, -1, 2), ContractError);
}

TEST(StoredModel, TravelsAsBytes) {
  OneTensor one(StoredType::bf16, {3, 4}, true);
  one.model.path = "somewhere";
  one.model.shape = tiny_shape();
  one.model.tensors[0].content_hash = 42;
  const StoredModel there = unpack<StoredModel>(pack(one.model));
  EXPECT_EQ(there.path, "somewhere");
  EXPECT_EQ(there.shape, tiny_shape());
  EXPECT_EQ(there.files, one.model.files);
  EXPECT_EQ(there.tensors[0].content_hash, 42U);
  EXPECT_EQ(there.tensors[0].type, StoredType::bf16);
  EXPECT_TRUE(there.tensors[0].transposed);
  EXPECT_EQ(range_of(there, 0, 12), range_of(one.model, 0, 12));
}

}  // namespace
}  // namespace trireme::weights
