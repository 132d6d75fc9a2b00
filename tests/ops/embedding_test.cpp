// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Dropout;
using ops::EmbeddingShape;

class EmbeddingTest : public OpsTest {
 protected:
  Dropout dropped(float rate) {
    const std::uint64_t first_sample = 40;
    return placed({rate, RandomKey::of(5, Draw::dropout), &first_sample, 0});
  }
};

TEST_P(EmbeddingTest, LooksUpByHand) {
  const EmbeddingShape s{1, 2, 2, 3};
  const auto tokens = tensor(DType::i32, Values{2, 0});
  const auto wte = tensor(dtype(), Values{1, 2, 3, 4, 5, 6});
  const auto wpe = tensor(dtype(), Values{10, 20, 30, 40, 50, 60});
  auto out = tensor(dtype(), 4);
  run(ops::EmbeddingForward{.out = out.view(),
                            .tokens = tokens.view(),
                            .wte = wte.view(),
                            .wpe = wpe.view(),
                            .shape = s},
      stream());
  EXPECT_EQ(out.values(), (Values{15, 26, 31, 42}));
  auto dwte = tensor(DType::f32, Values{0, 0, 0.5, 0, 0, 0}),
       dwpe = tensor(DType::f32, Values{1, 0, 0, 0, 0, 0});
  run(ops::EmbeddingBackward{.dwte = dwte.view(),
                             .dwpe = dwpe.view(),
                             .dout = out.view(),
                             .tokens = tokens.view(),
                             .shape = s},
      stream());
  EXPECT_EQ(dwte.values(), (Values{31, 42, 0.5, 0, 15, 26}));
  EXPECT_EQ(dwpe.values(), (Values{16, 26, 31, 42, 0, 0}));
}

TEST_P(EmbeddingTest, AgreesWithReferenceAtAwkwardSizes) {
  const std::vector<std::array<std::int64_t, 4>> shapes{
      {1, 1, 1, 1}, {2, 3, 5, 7}, {3, 17, 65, 11}, {2, 9, 301, 4}};
  for (const auto& [batch, time, channels, vocabulary] : shapes)
    for (const float rate : {0.0F, 0.3F}) {
      SCOPED_TRACE(fmt::format("{} x {} x {}, dropout {}", batch, time, channels, rate));
      const EmbeddingShape s{batch, time, channels, vocabulary};
      const auto wtev = rounded_to(dtype(), normals(1, vocabulary * channels)),
                 wpev = rounded_to(dtype(), normals(2, (time + 2) * channels)),
                 doutv = rounded_to(dtype(), normals(3, batch * time * channels));
      const Dropout dropout = dropped(rate);
      Values ids;
      for (std::int64_t i = 0; i < batch * time; ++i)
        ids.push_back(static_cast<double>((i * i + 3) % vocabulary));
      Values expected(doutv.size()), dwtev(wtev.size(), 0.5), dwpev(wpev.size(), -0.5);
      for (std::size_t i = 0; i < doutv.size(); ++i) {
        const auto C = static_cast<std::size_t>(channels), r = i / C, c = i % C,
                   t = r % static_cast<std::size_t>(time), b = r / static_cast<std::size_t>(time);
        const auto token = static_cast<std::size_t>(ids[r]) * C + c, position = t * C + c;
        const double f =
            rate > 0 ? static_cast<double>(ops::dropout_factor(dropout, b, position)) : 1;
        expected[i] = f * (wtev[token] + wpev[position]);
        dwtev[token] += f * doutv[i];
        dwpev[position] += f * doutv[i];
      }
      const auto tokens = tensor(DType::i32, ids), wte = tensor(dtype(), wtev),
                 wpe = tensor(dtype(), wpev);
      const auto dout = tensor(dtype(), doutv);
      auto out = tensor(dtype(), batch * time * channels);
      auto dwte = tensor(DType::f32, Values(wtev.size(), 0.5)),
           dwpe = tensor(DType::f32, Values(wpev.size(), -0.5));
      run(ops::EmbeddingForward{.out = out.view(),
                                .tokens = tokens.view(),
                                .wte = wte.view(),
                                .wpe = wpe.view(),
                                .shape = s,
                                .dropout = dropout},
          stream());
      expect_near(out.values(), expected, tolerance().embedding, "out");
      run(ops::EmbeddingBackward{.dwte = dwte.view(),
                                 .dwpe = dwpe.view(),
                                 .dout = dout.view(),
                                 .tokens = tokens.view(),
                                 .shape = s,
                                 .dropout = dropout},
          stream());
      expect_near(dwte.values(), dwtev, 1e-6, "dwte");
      expect_near(dwpe.values(), dwpev, 1e-6, "dwpe");
    }
}

/// Tokens of many rows. A GPU splits the sorted rows at multiples of 64: runs begin and end at a
/// split, next to one, or span several. Small integers are exact in any order.
TEST_P(EmbeddingTest, AddsUpFrequentTokens) {
  const std::vector<int> counts{64, 64, 1, 200, 63, 0, 128, 5, 300, 1, 127};
  Values ids;
  for (std::size_t token = 0; token < counts.size(); ++token)
    ids.insert(ids.end(), static_cast<std::size_t>(counts[token]), static_cast<double>(token));
  const auto rows = static_cast<std::int64_t>(ids.size());
  Values shuffled(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) shuffled[i * 389 % ids.size()] = ids[i];
  const auto vocabulary = static_cast<std::int64_t>(counts.size());
  for (const std::int64_t channels : {5, 8, 520}) {
    SCOPED_TRACE(channels);
    const EmbeddingShape s{1, rows, channels, vocabulary};
    Values doutv, expected(static_cast<std::size_t>(vocabulary * channels), 0.5);
    for (std::int64_t i = 0; i < rows * channels; ++i)
      doutv.push_back(static_cast<double>(i * 31 % 17 - 8));
    for (std::size_t i = 0; i < doutv.size(); ++i) {
      const auto C = static_cast<std::size_t>(channels);
      expected[static_cast<std::size_t>(shuffled[i / C]) * C + i % C] += doutv[i];
    }
    const auto tokens = tensor(DType::i32, shuffled), dout = tensor(dtype(), doutv);
    auto dwte = tensor(DType::f32, Values(expected.size(), 0.5));
    run(
        ops::EmbeddingBackward{
            .dwte = dwte.view(), .dout = dout.view(), .tokens = tokens.view(), .shape = s},
        stream());
    EXPECT_EQ(dwte.values(), expected);
  }
}

TEST_P(EmbeddingTest, WithoutPositionsItIsThatOfTokensAlone) {
  const EmbeddingShape s{2, 9, 301, 4};
  const auto tokens = tensor(DType::i32, [] {
    Values ids;
    for (int i = 0; i < 18; ++i) ids.push_back(i * i % 4);
    return ids;
  }());
  const auto wte = tensor(dtype(), normals(1, 4 * 301)),
             dout = tensor(dtype(), normals(2, 18 * 301));
  const auto zero = tensor(dtype(), Values(9 * 301, 0.0));
  const View none(nullptr, 0, dtype());
  for (const float rate : {0.0F, 0.3F}) {
    const Dropout dropout = dropped(rate);
    auto out = tensor(dtype(), 18 * 301), expected = tensor(dtype(), 18 * 301);
    run(ops::EmbeddingForward{.out = out.view(),
                              .tokens = tokens.view(),
                              .wte = wte.view(),
                              .shape = s,
                              .dropout = dropout},
        stream());
    run(ops::EmbeddingForward{.out = expected.view(),
                              .tokens = tokens.view(),
                              .wte = wte.view(),
                              .wpe = zero.view(),
                              .shape = s,
                              .dropout = dropout},
        stream());
    EXPECT_EQ(out.values(), expected.values());
    auto dwte = tensor(DType::f32, Values(4 * 301, 0.5)),
         also = tensor(DType::f32, Values(4 * 301, 0.5));
    auto dwpe = tensor(DType::f32, Values(9 * 301, 0.0));
    run(ops::EmbeddingBackward{.dwte = dwte.view(),
                               .dout = dout.view(),
                               .tokens = tokens.view(),
                               .shape = s,
                               .dropout = dropout},
        stream());
    run(ops::EmbeddingBackward{.dwte = also.view(),
                               .dwpe = dwpe.view(),
                               .dout = dout.view(),
                               .tokens = tokens.view(),
                               .shape = s,
                               .dropout = dropout},
        stream());
    EXPECT_EQ(dwte.values(), also.values());
  }
}

TEST_P(EmbeddingTest, SinglePositionsHaveTheBitsOfWholeSequences) {
  const ops::EmbeddingShape s{1, 7, 33, 11};
  const auto wte = tensor(dtype(), normals(1, 11 * 33)), wpe = tensor(dtype(), normals(2, 9 * 33));
  const auto tokens = tensor(DType::i32, Values{3, 1, 10, 0, 3, 7, 2});
  auto whole = tensor(dtype(), 7LL * 33), single = tensor(dtype(), 2LL * 33);
  run(ops::EmbeddingForward{.out = whole.view(),
                            .tokens = tokens.view(),
                            .wte = wte.view(),
                            .wpe = wpe.view(),
                            .shape = s},
      stream());
  const auto picked = tensor(DType::i32, Values{7, 1}), at = tensor(DType::i32, Values{5, 1});
  run(ops::EmbeddingForward{.out = single.view(),
                            .tokens = picked.view(),
                            .positions = at.view(),
                            .wte = wte.view(),
                            .wpe = wpe.view(),
                            .shape = {2, 1, 33, 11}},
      stream());
  const Values all = whole.values(), got = single.values();
  for (std::size_t c = 0; c < 33; ++c) {
    EXPECT_EQ(got[c], all[5 * 33 + c]);
    EXPECT_EQ(got[33 + c], all[33 + c]);
  }
  EXPECT_THROW(run(ops::EmbeddingForward{.out = single.view(),
                                         .tokens = picked.view(),
                                         .positions = tokens.view(),
                                         .wte = wte.view(),
                                         .wpe = wpe.view(),
                                         .shape = {2, 1, 33, 11}},
                   stream()),
               ContractError);
}

TEST_P(EmbeddingTest, DoesNotDependOnThreads) {
  const EmbeddingShape s{40, 13, 200, 5};
  Values ids;
  for (int i = 0; i < 40 * 13; ++i) ids.push_back(i * 7 % 5);
  const auto tokens = tensor(DType::i32, ids), wte = tensor(dtype(), normals(1, 1000)),
             wpe = tensor(dtype(), normals(2, 2600));
  expect_same_on_threads([&] {
    auto out = tensor(dtype(), 40 * 13 * 200), dwte = tensor(DType::f32, 1000),
         dwpe = tensor(DType::f32, 2600);
    run(ops::EmbeddingForward{.out = out.view(),
                              .tokens = tokens.view(),
                              .wte = wte.view(),
                              .wpe = wpe.view(),
                              .shape = s,
                              .dropout = dropped(0.1F)},
        stream());
    run(ops::EmbeddingBackward{.dwte = dwte.view(),
                               .dwpe = dwpe.view(),
                               .dout = out.view(),
                               .tokens = tokens.view(),
                               .shape = s,
                               .dropout = dropped(0.1F)},
        stream());
    return joined({&out, &dwte, &dwpe});
  });
}

TEST_P(EmbeddingTest, RejectsWrongViews) {
  const EmbeddingShape s{1, 2, 2, 3};
  const auto tokens = tensor(DType::i32, 2), wte = tensor(dtype(), 6), wpe = tensor(dtype(), 4),
             out = tensor(dtype(), 4);
  const auto forward = [&](const Tensor& o, const Tensor& ids, const Tensor& token,
                           const Tensor& position) {
    run(ops::EmbeddingForward{.out = o.view(),
                              .tokens = ids.view(),
                              .wte = token.view(),
                              .wpe = position.view(),
                              .shape = s},
        stream());
  };
  EXPECT_THROW(forward(wte, tokens, wte, wpe), ContractError);
  EXPECT_THROW(forward(out, out, wte, wpe), ContractError);
  EXPECT_THROW(forward(out, tokens, wpe, wpe), ContractError);
  EXPECT_THROW(forward(out, tokens, wte, tokens), ContractError);
}

TRIREME_ON_BACKENDS(EmbeddingTest);

}  // namespace
}  // namespace trireme::test
