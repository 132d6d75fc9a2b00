// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <bit>
#include <limits>
#include <vector>

#include "ops/optimizer/reductions.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class HashTest : public OpsTest {
 protected:
  template <class T>
  std::uint64_t hash(const std::vector<T>& values) {
    const auto elements = static_cast<std::int64_t>(values.size());
    const Tensor there = tensor(DTypeOf<T>::value, elements);
    device().copy(there.view(), view_of(values.data(), elements), stream());
    const auto shared = device().allocate_shared_with_host(sizeof(std::uint64_t), "test");
    auto& hashed = *reinterpret_cast<std::uint64_t*>(shared.data());
    hashed = 1;
    ops::hash_elements(hashed, there.view(), stream());
    stream().synchronize();
    return hashed;
  }
};

TEST_P(HashTest, IsTheHostsHashAtEverySize) {
  for (const std::int64_t size : {0, 1, 255, 256, 257, 16'384, 70'001}) {
    std::vector<float> whole;
    std::vector<Bf16> half;
    for (std::int64_t i = 0; i < size; ++i) {
      whole.push_back(static_cast<float>(i) * 0.37F - 5.0F);
      half.emplace_back(whole.back());
    }
    EXPECT_EQ(hash(whole), trireme::hash_elements(view_of(whole.data(), size), 0)) << size;
    EXPECT_EQ(hash(half), trireme::hash_elements(view_of(half.data(), size), 0)) << size;
  }
}

TEST_P(HashTest, ChangesWithEveryBitAndWithTheOrder) {
  std::vector<float> values(20'000, 1.5F);
  values[7] = 2.5F;
  const std::uint64_t before = hash(values);
  for (const std::size_t place : {0U, 7U, 16'383U, 16'384U, 19'999U})
    for (const std::uint32_t bit : {0U, 31U}) {
      std::vector<float> flipped = values;
      flipped[place] =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(flipped[place]) ^ (1U << bit));
      EXPECT_NE(hash(flipped), before) << "bit " << bit << " of element " << place;
    }
  std::swap(values[7], values[8]);
  EXPECT_NE(hash(values), before);
}

TRIREME_ON_BACKENDS(HashTest);

}  // namespace
}  // namespace trireme::test
