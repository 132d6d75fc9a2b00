// SPDX-License-Identifier: Apache-2.0
#include "base/view.hpp"

#include <array>
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme {
namespace {

TEST(ViewTest, SlicesCountInElements) {
  std::array<float, 6> numbers{0, 1, 2, 3, 4, 5};
  const View all = view_of(numbers.data(), 6);
  EXPECT_EQ(all.bytes(), 24U);
  const View middle = all.slice(2, 3);
  EXPECT_EQ(middle.elements, 3);
  EXPECT_EQ(middle.as<float>(), numbers.data() + 2);
  EXPECT_TRUE(all.slice(6, 0).empty());
  middle.as<float>()[0] = 9;
  EXPECT_EQ(numbers[2], 9);
}

TEST(ViewTest, RefusesWhatIsOutside) {
  std::array<float, 6> numbers{};
  const View all = view_of(numbers.data(), 6);
  EXPECT_THROW((void)all.slice(2, 5), ContractError);
  EXPECT_THROW((void)all.slice(-1, 2), ContractError);
  EXPECT_THROW((void)all.slice(0, -1), ContractError);
  EXPECT_THROW((void)all.slice(7, 0), ContractError);
}

TEST(ViewTest, RefusesAnotherDtype) {
  std::array<float, 2> numbers{};
  EXPECT_THROW((void)view_of(numbers.data(), 2).as<Bf16>(), ContractError);
}

TEST(ViewTest, MutableBecomesConstantAndNeverBack) {
  EXPECT_TRUE((std::is_convertible_v<View, ConstView>));
  EXPECT_FALSE((std::is_convertible_v<ConstView, View>));
  EXPECT_FALSE((std::is_constructible_v<View, ConstView>));
}

TEST(ViewTest, NothingIsFalse) {
  EXPECT_FALSE(static_cast<bool>(View{}));
  EXPECT_TRUE(View{}.empty());
  std::byte one{};
  EXPECT_TRUE(static_cast<bool>(View(&one, 1, DType::u8)));
}

}  // namespace
}  // namespace trireme
