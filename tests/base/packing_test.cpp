// SPDX-License-Identifier: Apache-2.0
#include "base/packing.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme {
namespace {

struct Inner {
  std::string name;
  bool operator==(const Inner&) const = default;
  auto fields() { return std::tie(name); }
};
struct Outer {
  std::int64_t number = 0;
  std::vector<Inner> inner;
  std::optional<double> there, missing;
  std::pair<std::string, std::vector<std::vector<int>>> nested;
  bool operator==(const Outer&) const = default;
  auto fields() { return std::tie(number, inner, there, missing, nested); }
};

TEST(Packing, GivesBackWhatWasPut) {
  const Outer outer{.number = -7,
                    .inner = {{std::string("a\0b", 3)}, {""}},
                    .there = -0.0,
                    .missing = {},
                    .nested = {"x", {{1, 2}, {}}}};
  EXPECT_EQ(unpack<Outer>(pack(outer)), outer);
  EXPECT_EQ(unpack<std::vector<double>>(pack(std::vector<double>{1.5, 2})),
            (std::vector<double>{1.5, 2}));
  std::string text;
  bool flag = false;
  unpack_to(std::tie(text, flag), pack(std::tuple(std::string("abc"), true)));
  EXPECT_EQ(text, "abc");
  EXPECT_TRUE(flag);
}

TEST(Packing, TakesNoMoreThanWasPut) {
  const std::string bytes = pack(std::string("abc"));
  EXPECT_THROW(static_cast<void>(unpack<std::string>(bytes.substr(0, 10))), ContractError);
  EXPECT_THROW(static_cast<void>(unpack<char>("")), ContractError);
}

}  // namespace
}  // namespace trireme
