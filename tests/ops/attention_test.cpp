// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.hpp"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "ops/attention_backend.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Attention;
using ops::AttentionShape;
using ops::Dropout;

std::size_t ix(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// One (sample, head) of the reference: rows of Q, K and V, all probabilities at once.
struct AttentionReference {
  AttentionShape s;
  Dropout dropout;
  Values starts = {};  // [B, T], with documents

  [[nodiscard]] std::int64_t packed(std::int64_t b,
                                    std::int64_t t,
                                    int part,
                                    std::int64_t h) const {
    const std::int64_t keys = s.key_value_heads();
    const std::int64_t head = part == 0 ? h : s.heads + (part - 1) * keys + h / s.group();
    return (b * s.time + t) * s.packed_width() + head * s.head_channels;
  }
  [[nodiscard]] std::int64_t plain(std::int64_t b, std::int64_t t, std::int64_t h) const {
    return ((b * s.time + t) * s.heads + h) * s.head_channels;
  }
  [[nodiscard]] double factor(std::int64_t b,
                              std::int64_t h,
                              std::int64_t t,
                              std::int64_t u) const {
    return dropout.active() ? static_cast<double>(ops::dropout_factor(
                                  dropout, static_cast<std::uint64_t>(b),
                                  static_cast<std::uint64_t>((h * s.time + t) * s.time + u)))
                            : 1.0;
  }
  static double dot(
      const Values& a, std::int64_t i, const Values& b, std::int64_t j, std::int64_t n) {
    double sum = 0;
    for (std::int64_t c = 0; c < n; ++c) sum += a[ix(i + c)] * b[ix(j + c)];
    return sum;
  }
  static void add(
      Values& to, std::int64_t i, double f, const Values& from, std::int64_t j, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) to[ix(i + c)] += f * from[ix(j + c)];
  }
  /// The probabilities of row t and the logarithm of their denominator.
  [[nodiscard]] std::pair<Values, double> row(const Values& qkv,
                                              std::int64_t b,
                                              std::int64_t h,
                                              std::int64_t t) const {
    const std::int64_t D = s.head_channels;
    Values p(ix(t + 1), -1e300);
    double largest = -1e300, sum = 0;
    const std::int64_t start =
        s.documents ? static_cast<std::int64_t>(starts[ix(b * s.time + t)]) : 0;
    for (std::int64_t u = s.window > 0 ? std::max(start, t - s.window + 1) : start; u <= t; ++u) {
      p[ix(u)] = dot(qkv, packed(b, t, 0, h), qkv, packed(b, u, 1, h), D) /
                 std::sqrt(static_cast<double>(D));
      largest = std::max(largest, p[ix(u)]);
    }
    for (auto& v : p) sum += v = std::exp(v - largest);
    for (auto& v : p) v /= sum;
    return {p, largest + std::log(sum)};
  }

  [[nodiscard]] std::pair<Values, Values> forward(const Values& qkv) const {
    Values out(ix(s.batch * s.time * s.heads * s.head_channels)), lse;
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t t = 0; t < s.time; ++t) {
          const auto [p, log_sum] = row(qkv, b, h, t);
          lse.push_back(log_sum);
          for (std::int64_t u = 0; u <= t; ++u)
            add(out, plain(b, t, h), p[ix(u)] * factor(b, h, t, u), qkv, packed(b, u, 2, h),
                s.head_channels);
        }
    return {out, lse};
  }

  [[nodiscard]] Values backward(const Values& qkv, const Values& dout) const {
    const std::int64_t D = s.head_channels;
    const double scale = 1 / std::sqrt(static_cast<double>(D));
    Values dqkv(qkv.size());
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t t = 0; t < s.time; ++t) {
          const auto p = row(qkv, b, h, t).first;
          const std::int64_t at = plain(b, t, h);
          Values dp(p.size());
          double delta = 0;
          for (std::int64_t u = 0; u <= t; ++u) {
            dp[ix(u)] = factor(b, h, t, u) * dot(dout, at, qkv, packed(b, u, 2, h), D);
            delta += p[ix(u)] * dp[ix(u)];
            add(dqkv, packed(b, u, 2, h), p[ix(u)] * factor(b, h, t, u), dout, at, D);
          }
          for (std::int64_t u = 0; u <= t; ++u) {
            const double ds = p[ix(u)] * (dp[ix(u)] - delta) * scale;
            add(dqkv, packed(b, t, 0, h), ds, qkv, packed(b, u, 1, h), D);
            add(dqkv, packed(b, u, 1, h), ds, qkv, packed(b, t, 0, h), D);
          }
        }
    return dqkv;
  }
};

/// The starts of documents with `lengths`, repeated, in each row; the first document of row b is b
/// positions shorter.
Values starts_of(std::int64_t batch, std::int64_t time, const std::vector<std::int64_t>& lengths) {
  Values starts;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::size_t document = 0;
    std::int64_t start = 0, end = std::max<std::int64_t>(1, lengths[0] - b);
    for (std::int64_t t = 0; t < time; ++t) {
      if (t == end) {
        start = t;
        end += lengths[++document % lengths.size()];
      }
      starts.push_back(static_cast<double>(start));
    }
  }
  return starts;
}

class AttentionTest : public OpsTest {
 protected:
  void both_ways(const Attention& attention,
                 View dqkv,
                 ConstView dout,
                 ConstView qkv,
                 View out,
                 View lse,
                 ConstView starts,
                 const ops::Dropout& dropout) {
    attention.forward({.out = out, .lse = lse, .qkv = qkv, .starts = starts, .dropout = dropout},
                      stream());
    attention.backward({.dqkv = dqkv,
                        .dout = dout,
                        .qkv = qkv,
                        .out = out,
                        .lse = lse,
                        .starts = starts,
                        .dropout = dropout},
                       stream());
  }

  /// Emulated GPUs are slow, so they run fewer cases.
  bool on_gpu() { return device().kind() != device::Kind::cpu; }
  Dropout dropped(float rate, std::uint64_t further = 0) {
    const std::uint64_t first_sample = 1234;
    return placed({rate, RandomKey::of(99, Draw::dropout), &first_sample, 5}, further);
  }

  void check(std::int64_t batch,
             std::int64_t time,
             std::int64_t heads,
             std::int64_t channels,
             float rate,
             std::int64_t grouped_heads = 0,
             std::int64_t window = 0,
             const std::vector<std::int64_t>& documents = {},
             const ops::AttentionOptions& options = {}) {
    SCOPED_TRACE(fmt::format("{} x {} x {} x {}, dropout {}, {} heads of keys", batch, time, heads,
                             channels, rate, grouped_heads));
    const AttentionShape s{batch,    time,          heads,  channels,          dtype(),
                           rate > 0, grouped_heads, window, !documents.empty()};
    const Values where = s.documents ? starts_of(batch, time, documents) : Values{};
    const AttentionReference reference{s, dropped(rate), where};
    const auto starts = tensor(DType::i32, where);
    const std::int64_t elements = batch * time * heads * channels;
    const std::int64_t packed = batch * time * s.packed_width();
    const auto qkv_values = rounded_to(dtype(), normals(1, packed));
    const auto dout_values = rounded_to(dtype(), normals(2, elements));
    const auto qkv = tensor(dtype(), qkv_values), dout = tensor(dtype(), dout_values);
    auto out = tensor(dtype(), elements), lse = tensor(DType::f32, batch * heads * time);
    auto dqkv = tensor(dtype(), normals(3, packed));
    const Attention attention(device(), s, options);
    both_ways(attention, dqkv.view(), dout.view(), qkv.view(), out.view(), lse.view(),
              starts.view(), dropped(rate));
    const auto [expected_out, expected_lse] = reference.forward(qkv_values);
    expect_near(out.values(), expected_out, tolerance().attention, "out");
    expect_near(lse.values(), expected_lse, 1e-6, "lse");
    expect_near(dqkv.values(), reference.backward(qkv_values, dout_values), tolerance().attention,
                "dqkv");
  }

  /// The output of forward and backward for random inputs. Without `starts` a row is one document.
  std::vector<std::byte> bits(const AttentionShape& s, Values starts = {}) {
    if (starts.empty() && s.documents)
      starts.resize(ix(s.batch * s.time));
    const auto where = tensor(DType::i32, starts);
    const auto qkv = tensor(dtype(), normals(1, s.batch * s.time * s.packed_width()));
    const auto dout = tensor(dtype(), normals(2, s.batch * s.time * s.heads * s.head_channels));
    const auto out = tensor(dtype(), dout.view().elements),
               dqkv = tensor(dtype(), qkv.view().elements);
    const auto lse = tensor(DType::f32, s.batch * s.heads * s.time);
    const Attention attention(device(), s);
    both_ways(attention, dqkv.view(), dout.view(), qkv.view(), out.view(), lse.view(), where.view(),
              {});
    return joined({&out, &lse, &dqkv});
  }

  void expect_same_rows_together_and_alone(const AttentionShape& s);
};

TEST_P(AttentionTest, AttendsByHand) {
  // One head of one channel. The queries are 0, so both past positions have the same weight; the
  // first row attends to itself only.
  const AttentionShape s{1, 2, 1, 1, dtype()};
  const auto qkv = tensor(dtype(), Values{0, 3, 4, 0, -1, 8});
  auto out = tensor(dtype(), 2), lse = tensor(DType::f32, 2);
  Attention(device(), s)
      .forward({.out = out.view(), .lse = lse.view(), .qkv = qkv.view()}, stream());
  EXPECT_EQ(out.values(), (Values{4, 6}));
  expect_near(lse.values(), {0, std::log(2.0)}, 1e-6, "lse");
}

TEST_P(AttentionTest, AgreesWithReferenceAtAwkwardSizes) {
  for (const float rate : {0.0F, 0.2F}) {
    check(1, 1, 1, 1, rate);
    check(2, 3, 2, 5, rate);
    check(1, 17, 3, 16, rate);
    check(2, 63, 1, 7, rate);
    check(1, 64, 2, 32, rate);
    check(2, 65, 2, 33, rate);
    check(1, 131, 1, 64, rate);
    check(1, 257, 2, 20, rate);
    check(2, 128, 2, 32, rate);
    check(1, 192, 1, 64, rate);
    check(1, 64, 1, 96, rate);
    check(1, 68, 1, 80, rate);
    check(1, 33, 1, 48, rate);
  }
}

TEST_P(AttentionTest, GroupsOfHeadsShareKeysAndValues) {
  for (const float rate : {0.0F, 0.2F}) {
    check(2, 3, 2, 5, rate, 1);
    check(1, 17, 6, 16, rate, 2);
    check(2, 65, 4, 33, rate, 2);
    check(1, 131, 3, 20, rate, 1);
    check(1, 128, 4, 32, rate, 2);
    check(1, 70, 4, 8, rate, 4);
    check(2, 192, 4, 64, rate, 2);
    check(1, 64, 3, 128, rate, 1);
  }
}

TEST_P(AttentionTest, SeesAWindow) {
  for (const std::int64_t time : {1, 63, 128, 150, 192})
    for (const std::int64_t window : {1, 2, 17, 63, 64, 65, 127, 128, 130, 500}) {
      if (on_gpu() && time != 150 && window != 65)
        continue;
      SCOPED_TRACE(fmt::format("{} of {}", window, time));
      check(2, time, 2, 16, 0, 0, window);
    }
  check(2, 150, 4, 12, 0.3F, 2, 70);
  for (const std::int64_t window : {1, 17, 63, 64, 65, 127, 128, 130, 192, 500})
    if (!on_gpu() || window == 17 || window == 130)
      check(2, 256, 4, 32, 0, 2, window);
  check(1, 192, 2, 64, 0, 0, 70);
  check(1, 192, 2, 128, 0.2F, 1, 64);
  check(1, 192, 2, 128, 0, 1, 64);
}

TEST_P(AttentionTest, StaysInsideOfDocuments) {
  for (const std::int64_t time : {1, 63, 128, 150, 200})
    for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{
             {1}, {2}, {17, 40}, {64}, {63, 65}, {128, 1}, {500}}) {
      if (on_gpu() && time != 150 && lengths[0] != 63)
        continue;
      SCOPED_TRACE(fmt::format("{} of {}", fmt::join(lengths, ", "), time));
      check(2, time, 2, 16, 0, 0, 0, lengths);
      check(2, time, 1, 16, 0, 0, 30, lengths);
    }
  check(2, 150, 4, 12, 0.3F, 2, 70, {90, 20});
  for (const std::vector<std::int64_t>& lengths : std::vector<std::vector<std::int64_t>>{
           {1}, {3}, {17, 40}, {64}, {65, 63}, {130, 1, 50}, {500}}) {
    if (on_gpu() && lengths[0] != 17 && lengths[0] != 130)
      continue;
    check(2, 256, 4, 32, 0, 2, 0, lengths);
    check(2, 256, 2, 32, 0, 0, 70, lengths);
  }
  check(1, 192, 2, 64, 0, 0, 0, {100, 20});
  check(1, 192, 2, 128, 0, 1, 64, {100, 20});
}

TEST_P(AttentionTest, OtherDocumentsDoNotChangeABit) {
  // Forward and backward results for positions [begin, end); all other positions hold `elsewhere`
  // times their values.
  const auto run = [&](const AttentionShape& s, std::int64_t first, std::int64_t begin,
                       std::int64_t end, double elsewhere) {
    const std::int64_t width = s.packed_width(), out_width = s.heads * s.head_channels;
    const auto drawn = [&](std::uint64_t seed, std::int64_t columns) {
      Values values = normals(seed, s.time * columns);
      for (std::int64_t t = 0; t < s.time; ++t)
        for (std::int64_t c = 0; c < columns && (t < begin || t >= end); ++c)
          values[ix(t * columns + c)] *= elsewhere;
      return tensor(dtype(), values);
    };
    const auto qkv = drawn(1, width), dout = drawn(2, out_width);
    const auto out = tensor(dtype(), dout.view().elements),
               dqkv = tensor(dtype(), qkv.view().elements);
    const auto lse = tensor(DType::f32, s.heads * s.time);
    const auto starts = tensor(DType::i32, starts_of(1, s.time, {first, s.time}));
    const Attention attention(device(), s);
    both_ways(attention, dqkv.view(), dout.view(), qkv.view(), out.view(), lse.view(),
              starts.view(), {});
    const Values all_out = out.values(), all_dqkv = dqkv.values();
    Values found(all_out.begin() + begin * out_width, all_out.begin() + end * out_width);
    found.insert(found.end(), all_dqkv.begin() + begin * width, all_dqkv.begin() + end * width);
    return found;
  };
  for (const AttentionShape& s : {AttentionShape{1, 200, 4, 16, dtype(), false, 2, 0, true},
                                  AttentionShape{1, 192, 4, 32, dtype(), false, 2, 0, true}}) {
    for (const std::int64_t first : {100, 128}) {
      EXPECT_EQ(run(s, first, first, s.time, 1), run(s, first, first, s.time, -9));
      EXPECT_EQ(run(s, first, 0, first, 1), run(s, first, 0, first, -9));
      EXPECT_NE(run(s, first, first - 1, s.time, 1), run(s, first, first - 1, s.time, -9));
    }
    // Whole tiles of another document are not even read.
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(run(s, 128, 128, s.time, 1), run(s, 128, 128, s.time, nan));
    EXPECT_EQ(run(s, 128, 0, 128, 1), run(s, 128, 0, 128, nan));
  }
}

TEST_P(AttentionTest, OneDocumentIsNoMask) {
  for (AttentionShape s :
       {AttentionShape{2, 150, 2, 12, dtype()}, AttentionShape{2, 192, 4, 32, dtype(), false, 2}}) {
    const auto without = bits(s);
    s.documents = true;
    EXPECT_EQ(bits(s), without);
    EXPECT_NE(bits(s, starts_of(s.batch, s.time, {149})), without);
  }
}

TEST_P(AttentionTest, DocumentsDependOnNeitherThreadsNorTheMicroBatch) {
  for (const AttentionShape& s : {AttentionShape{3, 130, 2, 24, dtype(), false, 0, 0, true},
                                  AttentionShape{3, 128, 6, 32, dtype(), false, 2, 80, true}})
    expect_same_rows_together_and_alone(s);
}

void AttentionTest::expect_same_rows_together_and_alone(const AttentionShape& s) {
  const std::int64_t row = s.time * s.heads * s.head_channels, B = s.batch;
  const std::int64_t packed_row = s.time * s.packed_width();
  const auto qkv = tensor(dtype(), normals(1, B * packed_row)),
             dout = tensor(dtype(), normals(2, B * row));
  const auto starts = tensor(DType::i32, starts_of(B, s.time, {50, 31}));
  auto out = tensor(dtype(), B * row), lse = tensor(DType::f32, B * s.heads * s.time);
  auto dqkv = tensor(dtype(), B * packed_row);
  // Rows [b, b + n) of all rows.
  const auto run = [&](const Attention& attention, std::int64_t b, std::int64_t n) {
    const View o = out.view().slice(b * row, n * row), d = dout.view().slice(b * row, n * row);
    const View packed = qkv.view().slice(b * packed_row, n * packed_row);
    const View sums = lse.view().slice(b * s.heads * s.time, n * s.heads * s.time);
    const View where = starts.view().slice(b * s.time, n * s.time);
    both_ways(attention, dqkv.view().slice(b * packed_row, n * packed_row), d, packed, o, sums,
              where, {});
  };
  const Attention together(device(), s);
  expect_same_on_threads([&] {
    run(together, 0, B);
    return joined({&out, &lse, &dqkv});
  });
  const auto all = joined({&out, &lse, &dqkv});
  AttentionShape one = s;
  one.batch = 1;
  const Attention alone(device(), one);
  for (std::int64_t b = 0; b < B; ++b) run(alone, b, 1);
  EXPECT_EQ(joined({&out, &lse, &dqkv}), all);
}

TEST_P(AttentionTest, AWindowOfAllIsNone) {
  for (AttentionShape s :
       {AttentionShape{2, 150, 2, 16, dtype()}, AttentionShape{2, 192, 4, 32, dtype(), false, 2}}) {
    const auto without = bits(s);
    for (const std::int64_t window : {s.time, s.time + 40}) {
      s.window = window;
      EXPECT_EQ(bits(s), without);
    }
    s.window = s.time - 1;
    EXPECT_NE(bits(s), without);
  }
}

/// Sharing a key equals duplicating it.
TEST_P(AttentionTest, SharedKeysAreKeysThatAreThereTwice) {
  const AttentionShape grouped{1, 67, 4, 8, dtype(), false, 2}, plain{1, 67, 4, 8, dtype()};
  const auto all = rounded_to(dtype(), normals(1, 67 * grouped.packed_width()));
  Values twice;
  for (std::int64_t t = 0; t < 67; ++t) {
    const auto row = all.begin() + t * grouped.packed_width();
    twice.insert(twice.end(), row, row + 32);
    for (std::int64_t h = 0; h < 8; ++h) {
      const auto key = row + 32 + h / 4 * 16 + h % 4 / 2 * 8;
      twice.insert(twice.end(), key, key + 8);
    }
  }
  const auto forward = [&](const AttentionShape& s, const Values& values) {
    auto out = tensor(dtype(), 67 * 32), lse = tensor(DType::f32, 4 * 67);
    Attention(device(), s)
        .forward({.out = out.view(), .lse = lse.view(), .qkv = tensor(dtype(), values).view()},
                 stream());
    return out.values();
  };
  expect_near(forward(grouped, all), forward(plain, twice), tolerance().attention, "out");
}

TEST_P(AttentionTest, SurvivesLargeScores) {
  const AttentionShape s{1, 70, 1, 4, dtype()};
  const auto values = rounded_to(dtype(), normals(1, 3 * 280, 30));
  const auto qkv = tensor(dtype(), values);
  auto out = tensor(dtype(), 280), lse = tensor(DType::f32, 70);
  Attention(device(), s)
      .forward({.out = out.view(), .lse = lse.view(), .qkv = qkv.view()}, stream());
  const auto [expected, expected_lse] = AttentionReference{s, {}}.forward(values);
  // Scores reach thousands, where fp32 resolves 1e-4: this bounds the error of probabilities.
  expect_near(out.values(), expected, std::max(1e-3, tolerance().attention), "out");
  expect_near(lse.values(), expected_lse, 1e-6, "lse");
}

TEST_P(AttentionTest, DoesNotDependOnThreads) {
  // For grouped heads, a thread computes those that share keys together, three one by one.
  for (AttentionShape s :
       {AttentionShape{3, 130, 3, 24, dtype()}, AttentionShape{3, 128, 3, 32, dtype()},
        AttentionShape{2, 128, 8, 32, dtype(), false, 4}})
    for (const float rate : {0.0F, 0.1F}) {
      s.drops = rate > 0;
      const std::int64_t elements = s.batch * s.time * s.heads * s.head_channels;
      const std::int64_t packed = s.batch * s.time * s.packed_width();
      const auto qkv = tensor(dtype(), normals(1, packed)),
                 dout = tensor(dtype(), normals(2, elements));
      const Attention attention(device(), s);
      expect_same_on_threads([&] {
        auto out = tensor(dtype(), elements), lse = tensor(DType::f32, s.batch * s.heads * s.time);
        auto dqkv = tensor(dtype(), packed);
        both_ways(attention, dqkv.view(), dout.view(), qkv.view(), out.view(), lse.view(), {},
                  dropped(rate));
        return joined({&out, &lse, &dqkv});
      });
    }
}

TEST_P(AttentionTest, DoesNotDependOnTheMicroBatch) {
  // Two samples at once or separately: same bits, with dropout.
  for (const std::int64_t time : {66, 68}) {
    const std::int64_t heads = 2, channels = 8, elements = time * heads * channels;
    const auto qkv = tensor(dtype(), normals(1, 6 * elements)),
               dout = tensor(dtype(), normals(2, 2 * elements));
    const auto out = tensor(dtype(), 2 * elements), dqkv = tensor(dtype(), 6 * elements);
    const auto lse = tensor(DType::f32, 2 * heads * time);
    // Samples [b, b + n).
    const auto run = [&](std::int64_t b, std::int64_t n) {
      const Attention attention(device(), {n, time, heads, channels, dtype(), true});
      const auto dropout = dropped(0.3F, static_cast<std::uint64_t>(b));
      const View o = out.view().slice(b * elements, n * elements);
      const View sums = lse.view().slice(b * heads * time, n * heads * time);
      const View packed = qkv.view().slice(3 * b * elements, 3 * n * elements);
      both_ways(attention, dqkv.view().slice(3 * b * elements, 3 * n * elements),
                dout.view().slice(b * elements, n * elements), packed, o, sums, {}, dropout);
    };
    run(0, 2);
    const auto together = joined({&out, &lse, &dqkv});
    run(0, 1);
    run(1, 1);
    EXPECT_EQ(joined({&out, &lse, &dqkv}), together);
  }
}

TEST_P(AttentionTest, RejectsWrongViews) {
  const AttentionShape s{1, 2, 1, 3, dtype()};
  const auto qkv = tensor(dtype(), 18), out = tensor(dtype(), 6), lse = tensor(DType::f32, 2);
  const Attention attention(device(), s);
  EXPECT_THROW(
      attention.forward({.out = qkv.view(), .lse = lse.view(), .qkv = qkv.view()}, stream()),
      ContractError);
  EXPECT_THROW(
      attention.forward({.out = out.view(), .lse = lse.view(), .qkv = out.view()}, stream()),
      ContractError);
  EXPECT_THROW(
      attention.forward({.out = out.view(), .lse = out.view(), .qkv = qkv.view()}, stream()),
      ContractError);
  EXPECT_THROW(Attention(device(), {1, 0, 1, 1, dtype()}), ContractError);
  EXPECT_THROW(
      attention.forward(
          {.out = out.view(), .lse = lse.view(), .qkv = qkv.view(), .dropout = dropped(0.1F)},
          stream()),
      ContractError);
  const auto starts = tensor(DType::i32, 2);
  EXPECT_THROW(
      attention.forward(
          {.out = out.view(), .lse = lse.view(), .qkv = qkv.view(), .starts = starts.view()},
          stream()),
      ContractError);
  AttentionShape masked = s;
  masked.documents = true;
  EXPECT_THROW(Attention(device(), masked)
                   .forward({.out = out.view(), .lse = lse.view(), .qkv = qkv.view()}, stream()),
               ContractError);
}

TEST_P(AttentionTest, TakesScratchForWhatItIsAskedToDo) {
  if (device().kind() == device::Kind::cpu)
    return;
  for (const std::int64_t time : {66, 128}) {
    AttentionShape s{2, time, 2, 32, dtype()};
    const std::size_t without = Attention(device(), s).scratch_bytes();
    s.drops = true;
    EXPECT_GT(without, 0U);  // where our own backward trains, cuDNN's takes nothing
    EXPECT_LE(Attention(device(), s).scratch_bytes(), without);
  }
}

TEST_P(AttentionTest, AgreesWithReferenceWhenItNeedNotRepeat) {
  const ops::AttentionOptions options{.deterministic = false};
  for (const std::int64_t time : {65, 128}) check(2, time, 3, 32, 0, 0, 0, {}, options);
}

TEST_P(AttentionTest, OwnKernelsAgreeWithReference) {
  const ops::AttentionOptions options{.kernels = ops::AttentionKernels::own};
  for (const std::int64_t time : {64, 128}) check(2, time, 2, 32, 0, 0, 0, {}, options);
}

/// These tensors, 67 MB, are larger than the allowance for cuDNN's plans. A failure means that
/// `trireme plan` counts too little memory; results may be right.
TEST_P(AttentionTest, TakesNoMoreOnGpuThanIsPlanned) {
  if (device().kind() != device::Kind::cuda)
    return;
  for (const bool deterministic : {true, false}) {
    const ops::AttentionOptions options{.deterministic = deterministic};
    const AttentionShape s = deterministic ? AttentionShape{4, 1024, 8, 64, dtype()}
                                           : AttentionShape{32, 512, 16, 64, dtype()};
    const std::size_t taken = Attention(device(), s, options).scratch_bytes();
    const std::size_t planned = Attention::gpu_scratch_bytes(s, options);
    EXPECT_LE(taken, planned) << "deterministic " << deterministic;
    EXPECT_TRUE(dtype() == DType::bf16 || taken == planned) << "all of it is ours";
  }
}

TEST_P(AttentionTest, CountsTheCausalHalf) {
  EXPECT_EQ(Attention(device(), {2, 3, 4, 5, dtype()}).forward_flops(), 4.0 * 2 * 4 * 5 * 6);
  // With a window of 2: 1 + 2 + 2 pairs.
  EXPECT_EQ(Attention(device(), {2, 3, 4, 5, dtype(), false, 0, 2}).forward_flops(),
            4.0 * 2 * 4 * 5 * 5);
}

TRIREME_ON_BACKENDS(AttentionTest);

TEST(AttentionReference, BackwardIsTheGradientOfForward) {
  for (const float rate : {0.0F, 0.4F}) {
    const std::uint64_t first_sample = 8;
    const AttentionReference reference{{2, 4, 2, 3, DType::f32},
                                       {rate, RandomKey::of(3, Draw::dropout), &first_sample, 1}};
    const auto qkv = normals(1, 3 * 2 * 4 * 2 * 3), weights = normals(2, 2 * 4 * 2 * 3);
    const auto loss = [&](const Values& x) {
      const auto out = reference.forward(x).first;
      return AttentionReference::dot(out, 0, weights, 0, static_cast<std::int64_t>(out.size()));
    };
    expect_gradient(loss, qkv, reference.backward(qkv, weights), "dqkv");
    const AttentionReference grouped{{1, 4, 4, 3, DType::f32, false, 2}, reference.dropout};
    const auto shared = normals(1, 4 * 8 * 3), sums = normals(2, 4 * 4 * 3);
    const auto grouped_loss = [&](const Values& x) {
      const auto out = grouped.forward(x).first;
      return AttentionReference::dot(out, 0, sums, 0, static_cast<std::int64_t>(out.size()));
    };
    const AttentionReference windowed{{1, 4, 4, 3, DType::f32, false, 2, 2}, reference.dropout};
    const auto windowed_loss = [&](const Values& x) {
      const auto out = windowed.forward(x).first;
      return AttentionReference::dot(out, 0, sums, 0, static_cast<std::int64_t>(out.size()));
    };
    const AttentionReference apart{
        {1, 4, 4, 3, DType::f32, false, 2, 0, true}, reference.dropout, {0, 0, 2, 2}};
    const auto apart_loss = [&](const Values& x) {
      const auto out = apart.forward(x).first;
      return AttentionReference::dot(out, 0, sums, 0, static_cast<std::int64_t>(out.size()));
    };
    expect_gradient(apart_loss, shared, apart.backward(shared, sums), "dqkv of documents");
    expect_gradient(windowed_loss, shared, windowed.backward(shared, sums), "dqkv of a window");
    expect_gradient(grouped_loss, shared, grouped.backward(shared, sums), "dqkv of groups");
  }
}

}  // namespace
}  // namespace trireme::test
