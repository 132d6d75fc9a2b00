// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "ops/optimizer/reductions.hpp"
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
    ops::find_not_finite({&first, 1}, std::array<ConstView, 1>{there.view()}, stream());
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

/// More views than a GPU processes in one launch, one of them empty.
TEST_P(FindNotFiniteTest, LooksIntoEachOfManyViews) {
  const std::int64_t each = 701, views = 70;
  Values values(static_cast<std::size_t>(each * views), 1.0);
  std::vector<std::int64_t> expected(views, -1);
  for (const std::int64_t view : {0, 1, 17, 68, 69}) {
    const std::int64_t place = view * 41 % 700;
    expected[static_cast<std::size_t>(view)] = place;
    values[static_cast<std::size_t>(view * each + place)] = -INFINITY;
    values[static_cast<std::size_t>(view * each + 700)] = NAN;
  }
  const Tensor there = tensor(DType::f32, values);
  std::vector<ConstView> parts;
  for (std::int64_t i = 0; i < views; ++i) parts.push_back(there.view().slice(i * each, each));
  parts[3] = parts[3].slice(0, 0);
  const auto shared = device().allocate_shared_with_host(views * sizeof(std::int64_t), "test");
  const std::span places(reinterpret_cast<std::int64_t*>(shared.data()), std::size_t{views});
  for (int round = 0; round < 2; ++round) {  // the first leaves nothing for the second to find
    std::ranges::fill(places, -2);
    ops::find_not_finite(places, parts, stream());
    stream().synchronize();
    EXPECT_THAT(places, testing::ElementsAreArray(expected));
  }
  EXPECT_THROW(ops::find_not_finite(places.first(1), parts, stream()), ContractError);
}

TRIREME_ON_BACKENDS(FindNotFiniteTest);

}  // namespace
}  // namespace trireme::test
