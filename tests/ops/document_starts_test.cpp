// SPDX-License-Identifier: Apache-2.0
#include "ops/document_starts.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class DocumentStartsTest : public OpsTest {
 protected:
  Values starts(const Values& tokens, std::int64_t time) {
    const auto found = tensor(DType::i32, std::ssize(tokens));
    ops::document_starts(found.view(), tensor(DType::i32, tokens).view(), time, 7, stream());
    return found.values();
  }
};

TEST_P(DocumentStartsTest, FollowsTheTokenThatBeginsADocument) {
  if (device().kind() != device::Kind::cpu) {
    EXPECT_THROW(starts({1}, 1), DeviceError);
    return;
  }
  EXPECT_EQ(starts({7}, 1), (Values{0}));
  EXPECT_EQ(starts({1, 2, 3}, 3), (Values{0, 0, 0})) << "the rest of a document";
  EXPECT_EQ(starts({1, 7, 3, 7, 7, 2}, 6), (Values{0, 1, 1, 3, 4, 4}));
  EXPECT_EQ(starts({1, 7, 3, 4, 7, 2}, 3), (Values{0, 1, 1, 0, 1, 1})) << "each row for itself";
}

TEST_P(DocumentStartsTest, DoesNotDependOnThreads) {
  if (device().kind() != device::Kind::cpu)
    return;
  Values tokens;
  for (int i = 0; i < 5000; ++i) tokens.push_back(i * 31 % 97);
  expect_same_on_threads([&] {
    const auto found = tensor(DType::i32, 5000);
    ops::document_starts(found.view(), tensor(DType::i32, tokens).view(), 50, 7, stream());
    return found.bytes();
  });
}

TEST_P(DocumentStartsTest, RejectsWrongViews) {
  const auto six = tensor(DType::i32, 6), five = tensor(DType::i32, 5),
             floats = tensor(DType::f32, 6);
  EXPECT_THROW(ops::document_starts(five.view(), six.view(), 3, 7, stream()), ContractError);
  EXPECT_THROW(ops::document_starts(six.view(), six.view(), 4, 7, stream()), ContractError);
  if (device().kind() != device::Kind::cpu)
    return;
  EXPECT_THROW(ops::document_starts(six.view(), floats.view(), 3, 7, stream()), ContractError);
}

TRIREME_ON_BACKENDS(DocumentStartsTest);

}  // namespace
}  // namespace trireme::test
