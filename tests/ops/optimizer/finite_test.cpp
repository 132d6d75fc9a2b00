// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/finite.hpp"

#include <limits>
#include <vector>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class FindNotFiniteTest : public OpsTest {
 protected:
  std::int64_t find(std::vector<float> values) {
    const auto elements = static_cast<std::int64_t>(values.size());
    const Tensor there = tensor(DType::f32, elements);
    device().copy(there.view(), view_of(values.data(), elements), stream());
    const auto shared = device().allocate_shared_with_host(sizeof(std::int64_t), "test");
    auto& first = *reinterpret_cast<std::int64_t*>(shared.data());
    first = -2;
    ops::find_not_finite(first, there.view(), stream());
    stream().synchronize();
    return first;
  }
};

TEST_P(FindNotFiniteTest, IsMinusOneWhereAllIsFinite) {
  EXPECT_EQ(find({}), -1);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(find({0.0F, -0.0F, largest, -largest, std::numeric_limits<float>::denorm_min()}), -1);
  EXPECT_EQ(find(std::vector<float>(70'001, -1.0F)), -1);
}

TEST_P(FindNotFiniteTest, GivesTheFirstElementAtEveryPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float poison : {nan, -nan, infinity, -infinity})
    for (const std::int64_t place : {0, 1, 15, 16, 16'383, 16'384, 50'000}) {
      std::vector<float> values(50'001, 3.0F);
      values[static_cast<std::size_t>(place)] = poison;
      values.back() = poison;
      EXPECT_EQ(find(values), place);
    }
}

TRIREME_ON_BACKENDS(FindNotFiniteTest);

}  // namespace
}  // namespace trireme::test
