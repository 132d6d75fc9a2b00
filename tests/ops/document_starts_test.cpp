// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class DocumentStartsTest : public OpsTest {
 protected:
  Values starts(const Values& tokens, std::int64_t time) {
    const auto found = tensor(DType::i32, std::ssize(tokens));
    run(ops::DocumentStarts{.starts = found.view(),
                            .tokens = tensor(DType::i32, tokens).view(),
                            .time = time,
                            .token = 7},
        stream());
    return found.values();
  }
};

TEST_P(DocumentStartsTest, FollowsTheTokenThatBeginsADocument) {
  EXPECT_EQ(starts({7}, 1), (Values{0}));
  EXPECT_EQ(starts({1, 2, 3}, 3), (Values{0, 0, 0})) << "the rest of a document";
  EXPECT_EQ(starts({1, 7, 3, 7, 7, 2}, 6), (Values{0, 1, 1, 3, 4, 4}));
  EXPECT_EQ(starts({1, 7, 3, 4, 7, 2}, 3), (Values{0, 1, 1, 0, 1, 1})) << "each row for itself";
}

/// Longer than what a warp processes at once, and not a multiple of it.
TEST_P(DocumentStartsTest, LooksBackAlongTheWholeRow) {
  constexpr std::int64_t time = 150;
  Values tokens(5 * time, 1), expected(5 * time, 0);
  const auto begin = [&](std::int64_t row, std::int64_t t) {
    tokens[static_cast<std::size_t>(row * time + t)] = 7;
    for (std::int64_t u = t; u < time; ++u)
      expected[static_cast<std::size_t>(row * time + u)] = static_cast<double>(t);
  };
  begin(0, 1);
  for (const std::int64_t t : {0, 31, 32, 33, 127, 149}) begin(2, t);
  for (std::int64_t t = 0; t < time; t += 3) begin(3, t);
  begin(4, 149);
  EXPECT_EQ(starts(tokens, time), expected);
}

TEST_P(DocumentStartsTest, DoesNotDependOnThreads) {
  Values tokens;
  for (int i = 0; i < 5000; ++i) tokens.push_back(i * 31 % 97);
  expect_same_on_threads([&] {
    const auto found = tensor(DType::i32, 5000);
    run(ops::DocumentStarts{.starts = found.view(),
                            .tokens = tensor(DType::i32, tokens).view(),
                            .time = 50,
                            .token = 7},
        stream());
    return found.bytes();
  });
}

TEST_P(DocumentStartsTest, RejectsWrongViews) {
  const auto six = tensor(DType::i32, 6), five = tensor(DType::i32, 5),
             floats = tensor(DType::f32, 6);
  EXPECT_THROW(
      run(ops::DocumentStarts{.starts = five.view(), .tokens = six.view(), .time = 3, .token = 7},
          stream()),
      ContractError);
  EXPECT_THROW(
      run(ops::DocumentStarts{.starts = six.view(), .tokens = six.view(), .time = 4, .token = 7},
          stream()),
      ContractError);
  EXPECT_THROW(
      run(ops::DocumentStarts{.starts = six.view(), .tokens = floats.view(), .time = 3, .token = 7},
          stream()),
      ContractError);
}

TRIREME_ON_BACKENDS(DocumentStartsTest);

}  // namespace
}  // namespace trireme::test
