// SPDX-License-Identifier: Apache-2.0
#include "base/packing.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme {
namespace {

TEST(Packing, GivesBackWhatWasPutInItsOrder) {
  Packer packer;
  packer.number(std::int64_t{-7});
  packer.text(std::string_view("a\0b", 3));
  packer.text("");
  packer.array(std::vector<double>{1.5, -0.0});
  packer.array(std::vector<std::int32_t>{});
  packer.number(true);
  const std::string bytes = packer.take();
  EXPECT_TRUE(packer.take().empty());

  Unpacker unpacker(bytes);
  EXPECT_FALSE(unpacker.empty());
  EXPECT_EQ(unpacker.number<std::int64_t>(), -7);
  EXPECT_EQ(unpacker.text(), std::string_view("a\0b", 3));
  EXPECT_EQ(unpacker.text(), "");
  EXPECT_EQ(unpacker.array<double>(), (std::vector<double>{1.5, -0.0}));
  EXPECT_TRUE(unpacker.array<std::int32_t>().empty());
  EXPECT_FALSE(unpacker.empty());
  EXPECT_TRUE(unpacker.number<bool>());
  EXPECT_TRUE(unpacker.empty());
}

TEST(Packing, TakesNoMoreThanWasPut) {
  Packer packer;
  packer.text("abc");
  const std::string bytes = packer.take();
  EXPECT_THROW(static_cast<void>(Unpacker(bytes.substr(0, 10)).text()), ContractError);
  EXPECT_THROW(static_cast<void>(Unpacker("").number<char>()), ContractError);
}

}  // namespace
}  // namespace trireme
