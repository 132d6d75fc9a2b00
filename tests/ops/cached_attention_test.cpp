// SPDX-License-Identifier: Apache-2.0
#include "ops/cached_attention.hpp"

#include "ops/attention_backend.hpp"
#include "ops/cpu/x86/bf16_attention.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::AttentionShape;

/// One row of a call.
struct CachedRow {
  std::int64_t sequence, position;
};

class CachedAttentionTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    if (!ops::has_cached_attention(device()))
      GTEST_SKIP() << "CPUs alone have it";
  }

  /// The result of whole-sequence attention on `qkv`, [B, T, H + 2 G, D], as values in T's dtype.
  Values whole(const AttentionShape& s, const Values& qkv, const Values& starts = {}) {
    const auto packed = tensor(dtype(), qkv);
    const std::int64_t rows = s.batch * s.time;
    auto out = tensor(dtype(), rows * s.heads * s.head_channels);
    auto lse = tensor(DType::f32, rows * s.heads);
    ops::Attention(device(), s)
        .forward({.out = out.view(),
                  .lse = lse.view(),
                  .qkv = packed.view(),
                  .starts = tensor(DType::i32, starts).view()},
                 stream());
    return out.values();
  }

  Tensor cache_of(const AttentionShape& s) {
    return tensor(DType::f32, Values(static_cast<std::size_t>(ops::cache_elements(s))));
  }

  /// One call with `rows` of `qkv`; returns the output of each row. `starts`: [B, T], or empty.
  Values call(const AttentionShape& s,
              const Tensor& cache,
              const Values& qkv,
              const std::vector<CachedRow>& rows,
              const Values& starts = {}) {
    const std::int64_t width = s.packed_width();
    Values packed, sequences, positions, where;
    for (const CachedRow& row : rows) {
      for (std::int64_t c = 0; c < width; ++c)
        packed.push_back(row.sequence < 0
                             ? 1.5
                             : qkv[static_cast<std::size_t>(
                                   (row.sequence * s.time + row.position) * width + c)]);
      sequences.push_back(static_cast<double>(row.sequence));
      positions.push_back(static_cast<double>(row.position));
      if (!starts.empty())
        where.push_back(
            row.sequence < 0
                ? 0
                : starts[static_cast<std::size_t>(row.sequence * s.time + row.position)]);
    }
    auto out = tensor(dtype(), normals(9, std::ssize(rows) * s.heads * s.head_channels));
    run(ops::CachedAttention{.out = out.view(),
                             .cache = cache.view(),
                             .qkv = tensor(dtype(), packed).view(),
                             .sequences = tensor(DType::i32, sequences).view(),
                             .positions = tensor(DType::i32, positions).view(),
                             .starts = tensor(DType::i32, where).view(),
                             .shape = s},
        stream());
    return out.values();
  }

  /// The rows of `all` = [B, T, H·D] that `rows` selects.
  static Values rows_of(const AttentionShape& s,
                        const Values& all,
                        const std::vector<CachedRow>& rows) {
    const std::int64_t width = s.heads * s.head_channels;
    Values picked;
    for (const CachedRow& row : rows)
      for (std::int64_t c = 0; c < width; ++c)
        picked.push_back(row.sequence < 0
                             ? 0
                             : all[static_cast<std::size_t>(
                                   (row.sequence * s.time + row.position) * width + c)]);
    return picked;
  }

  /// Equal to the bit if whole-sequence attention computes in fp32.
  void expect_equal(const AttentionShape& s, const Values& got, const Values& expected) {
    if (ops::cpu::bf16_attention::attends(s))
      expect_near(got, expected, tolerance().attention, "out");
    else {
      EXPECT_EQ(got, expected);
    }
  }
};

TEST_P(CachedAttentionTest, ReadPositionByPositionItIsAttentionOfTheWholeSequence) {
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 1, dtype()}, AttentionShape{2, 5, 2, 3, dtype()},
        AttentionShape{1, 131, 3, 20, dtype()}, AttentionShape{2, 128, 1, 64, dtype()},
        AttentionShape{1, 64, 2, 33, dtype()}, AttentionShape{2, 70, 4, 20, dtype(), false, 2},
        AttentionShape{1, 66, 6, 8, dtype(), false, 1}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {} x {}", s.batch, s.time, s.heads, s.head_channels));
    const auto qkv = rounded_to(dtype(), normals(1, s.batch * s.time * s.packed_width(), 2));
    const Values expected = whole(s, qkv);
    const auto cache = cache_of(s);
    for (std::int64_t t = 0; t < s.time; ++t) {
      std::vector<CachedRow> rows;
      for (std::int64_t b = s.batch; b-- > 0;) rows.push_back({b, t});
      expect_equal(s, call(s, cache, qkv, rows), rows_of(s, expected, rows));
    }
  }
}

TEST_P(CachedAttentionTest, StaysInsideOfDocumentsAndWindows) {
  const AttentionShape s{2, 200, 4, 24, dtype(), false, 2, 70, true};
  const auto qkv = rounded_to(dtype(), normals(1, s.batch * s.time * s.packed_width()));
  Values starts;  // documents of 50 positions in one sequence, of 90 in the other
  for (const int length : {50, 90})
    for (int t = 0; t < 200; ++t) starts.push_back(t / length * length);
  const Values expected = whole(s, qkv, starts);
  const auto cache = cache_of(s);
  std::int64_t begin = 0;
  for (const std::int64_t count : {1, 60, 1, 3, 70, 65}) {
    std::vector<CachedRow> rows;
    for (const std::int64_t sequence : {0, 1})
      for (std::int64_t i = 0; i < count; ++i) rows.push_back({sequence, begin + i});
    expect_equal(s, call(s, cache, qkv, rows, starts), rows_of(s, expected, rows));
    begin += count;
  }
}

TEST_P(CachedAttentionTest, InWhatPiecesASequenceIsReadDoesNotMatter) {
  const AttentionShape s{3, 200, 2, 24, dtype()};
  const auto qkv = rounded_to(dtype(), normals(1, 3LL * 3 * 200 * 2 * 24));
  const Values expected = whole(s, qkv);
  const auto cache = cache_of(s);
  // Parts inside a tile, across a tile border, and of several tiles; between them another sequence
  // and unused space.
  std::int64_t begin = 0;
  for (const std::int64_t count : {3, 60, 1, 1, 70, 65}) {
    std::vector<CachedRow> rows;
    for (std::int64_t i = 0; i < count; ++i) rows.push_back({1, begin + i});
    rows.push_back({-1, 0});
    for (std::int64_t i = 0; i < count; ++i) rows.push_back({2, begin + i});
    expect_equal(s, call(s, cache, qkv, rows), rows_of(s, expected, rows));
    begin += count;
  }
}

TEST_P(CachedAttentionTest, ASequenceThatBeginsAgainDropsItsEarlierKeys) {
  const AttentionShape s{1, 70, 1, 8, dtype()};
  const auto first = rounded_to(dtype(), normals(1, 3LL * 70 * 8));
  const auto second = rounded_to(dtype(), normals(2, 3LL * 70 * 8));
  const Values expected = whole(s, second);
  const auto cache = cache_of(s);
  std::vector<CachedRow> all, one;
  for (std::int64_t t = 0; t < 70; ++t) all.push_back({0, t});
  call(s, cache, first, all);
  for (std::int64_t t = 0; t < 10; ++t) {
    one = {{0, t}};
    expect_equal(s, call(s, cache, second, one), rows_of(s, expected, one));
  }
}

TEST_P(CachedAttentionTest, DoesNotDependOnThreads) {
  const AttentionShape s{2, 90, 3, 24, dtype()};
  const auto qkv = rounded_to(dtype(), normals(1, 3LL * 2 * 90 * 3 * 24));
  std::vector<CachedRow> rows;
  for (std::int64_t t = 0; t < 90; ++t) rows.push_back({1, t});
  rows.push_back({0, 0});
  expect_same_on_threads([&] {
    const auto cache = cache_of(s);
    const Values out = call(s, cache, qkv, rows);
    const auto* bytes = reinterpret_cast<const std::byte*>(out.data());
    return std::vector<std::byte>(bytes, bytes + out.size() * sizeof(double));
  });
}

TEST_P(CachedAttentionTest, RejectsWrongViewsAndPlaces) {
  const AttentionShape s{2, 4, 1, 3, dtype()};
  const Values qkv(72);
  const auto cache = cache_of(s);
  EXPECT_THROW(call(s, tensor(DType::f32, 1), qkv, {{0, 0}}), ContractError);
  EXPECT_THROW(ops::cache_elements({0, 4, 1, 3, dtype()}), ContractError);
  EXPECT_THROW(call(s, cache, qkv, {{0, 0}}, Values(8)), ContractError);
  const auto out = tensor(dtype(), 3), packed = tensor(dtype(), 9);
  for (const CachedRow& row : {CachedRow{2, 0}, CachedRow{0, 4}, CachedRow{0, -1}})
    EXPECT_THROW(
        run(
            ops::CachedAttention{
                .out = out.view(),
                .cache = cache.view(),
                .qkv = packed.view(),
                .sequences = tensor(DType::i32, Values{static_cast<double>(row.sequence)}).view(),
                .positions = tensor(DType::i32, Values{static_cast<double>(row.position)}).view(),
                .shape = s},
            stream()),
        ContractError)
        << row.sequence << ", " << row.position;
}

TRIREME_ON_BACKENDS(CachedAttentionTest);

}  // namespace
}  // namespace trireme::test
