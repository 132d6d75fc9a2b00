// SPDX-License-Identifier: Apache-2.0
#include "ops/cross_entropy.hpp"

#include <algorithm>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

struct EntropyReference {
  std::size_t V;
  Values targets;
  double softcap = 0, z_loss = 0;

  [[nodiscard]] Values capped(Values logits) const {
    for (double& logit : logits) logit = softcap > 0 ? softcap * std::tanh(logit / softcap) : logit;
    return logits;
  }

  [[nodiscard]] double log_sum(const Values& logits, std::size_t r) const {
    double largest = -1e300, sum = 0;
    for (std::size_t v = 0; v < V; ++v) largest = std::max(largest, logits[r * V + v]);
    for (std::size_t v = 0; v < V; ++v) sum += std::exp(logits[r * V + v] - largest);
    return largest + std::log(sum);
  }
  /// As reported: without the z-loss.
  [[nodiscard]] Values losses(const Values& given) const {
    const Values logits = capped(given);
    Values all(targets.size());
    for (std::size_t r = 0; r < targets.size(); ++r)
      if (targets[r] >= 0)
        all[r] = log_sum(logits, r) - logits[r * V + static_cast<std::size_t>(targets[r])];
    return all;
  }
  /// The sum of the training loss over rows.
  [[nodiscard]] double objective(const Values& given) const {
    const Values logits = capped(given), each = losses(given);
    double sum = 0;
    for (std::size_t r = 0; r < targets.size(); ++r)
      if (targets[r] >= 0)
        sum += each[r] + z_loss * log_sum(logits, r) * log_sum(logits, r);
    return sum;
  }
  [[nodiscard]] Values gradient(const Values& given, double scale) const {
    const Values logits = capped(given);
    Values all(logits.size());
    for (std::size_t r = 0; r < targets.size(); ++r) {
      if (targets[r] < 0)
        continue;
      const double denominator = log_sum(logits, r);
      for (std::size_t v = 0; v < V; ++v)
        all[r * V + v] =
            scale * slope(logits[r * V + v]) *
            (std::exp(logits[r * V + v] - denominator) * (1 + 2 * z_loss * denominator) -
             (v == static_cast<std::size_t>(targets[r]) ? 1.0 : 0.0));
    }
    return all;
  }
  /// The derivative of the cap at a logit whose capped value is `capped`.
  [[nodiscard]] double slope(double capped) const {
    return softcap > 0 ? 1 - capped / softcap * (capped / softcap) : 1;
  }
};

class CrossEntropyTest : public OpsTest {
 protected:
  void forward(const Tensor& losses,
               const Tensor& logits,
               const Tensor& targets,
               const ops::LossTerms& terms = {}) {
    ops::run(ops::CrossEntropy{.losses = losses.view(),
                               .logits = logits.view(),
                               .targets = targets.view(),
                               .terms = terms},
             stream());
  }
  void backward(const Tensor& losses,
                const Tensor& d_logits,
                const Tensor& logits,
                const Tensor& targets,
                float scale,
                const ops::LossTerms& terms = {}) {
    ops::run(ops::CrossEntropy{.losses = losses.view(),
                               .d_logits = d_logits.view(),
                               .logits = logits.view(),
                               .targets = targets.view(),
                               .terms = terms,
                               .scale = scale},
             stream());
  }
};

TEST_P(CrossEntropyTest, ByHand) {
  // Softmax of (0, 0, log 2): 1/4, 1/4, 1/2 in fp32. Equal logits are exact in bf16.
  const auto targets = tensor(DType::i32, Values{1, -1});
  auto logits = tensor(dtype(), Values{0, 0, 0, 0, 7, 7, 7, 7}),
       losses = tensor(DType::f32, Values{9, 9});
  forward(losses, logits, targets);
  expect_near(losses.values(), {std::log(4.0), 0}, 1e-6, "losses");
  backward(losses, logits, logits, targets, 2.0F);
  expect_near(losses.values(), {std::log(4.0), 0}, 1e-6, "losses");
  EXPECT_EQ(logits.values(), (Values{0.5, -1.5, 0.5, 0.5, 0, 0, 0, 0}));
}

TEST_P(CrossEntropyTest, AgreesWithReferenceAtAwkwardSizes) {
  const std::vector<std::array<std::int64_t, 2>> shapes{{1, 1},     {1, 2},    {7, 17},
                                                        {130, 256}, {65, 257}, {3, 50257}};
  for (const auto& [rows, V] : shapes) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, V));
    const auto values = rounded_to(dtype(), normals(1, rows * V, 4));
    EntropyReference reference{static_cast<std::size_t>(V), {}};
    for (std::int64_t r = 0; r < rows; ++r)
      reference.targets.push_back(r % 5 == 3 ? -1 - static_cast<double>(r)
                                             : static_cast<double>(r * 31 % V));
    const auto targets = tensor(DType::i32, reference.targets);
    auto logits = tensor(dtype(), values), losses = tensor(DType::f32, rows),
         again = tensor(DType::f32, rows);
    forward(losses, logits, targets);
    EXPECT_EQ(logits.values(), values) << "forward alone changed the logits";
    backward(again, logits, logits, targets, 0.125F);
    EXPECT_EQ(losses.bytes(), again.bytes());
    expect_near(losses.values(), reference.losses(values), 2e-6, "losses");
    expect_near(logits.values(), reference.gradient(values, 0.125), tolerance().cross_entropy,
                "gradient");
  }
}

TEST_P(CrossEntropyTest, CapsLogitsAndKeepsTheSumNearOne) {
  const std::vector<std::array<std::int64_t, 2>> shapes{{1, 1}, {7, 17}, {130, 256}, {3, 50257}};
  for (const ops::LossTerms terms :
       {ops::LossTerms{.softcap = 30}, ops::LossTerms{.softcap = 2},
        ops::LossTerms{.z_loss = 1e-2F}, ops::LossTerms{.softcap = 5, .z_loss = 1e-1F}})
    for (const auto& [rows, V] : shapes) {
      SCOPED_TRACE(fmt::format("{} x {}, cap {}, z {}", rows, V, terms.softcap, terms.z_loss));
      const auto values = rounded_to(dtype(), normals(1, rows * V, 4));
      EntropyReference reference{static_cast<std::size_t>(V), {}, terms.softcap, terms.z_loss};
      for (std::int64_t r = 0; r < rows; ++r)
        reference.targets.push_back(r % 5 == 3 ? -1.0 : static_cast<double>(r * 31 % V));
      const auto targets = tensor(DType::i32, reference.targets);
      const auto logits = tensor(dtype(), values), losses = tensor(DType::f32, rows),
                 again = tensor(DType::f32, rows);
      forward(losses, logits, targets, terms);
      EXPECT_EQ(logits.values(), values) << "forward alone changed the logits";
      backward(again, logits, logits, targets, 0.125F, terms);
      EXPECT_EQ(losses.bytes(), again.bytes());
      expect_near(losses.values(), reference.losses(values), 2e-6, "losses");
      expect_near(logits.values(), reference.gradient(values, 0.125), tolerance().cross_entropy,
                  "gradient", 0.125);
    }
}

TEST_P(CrossEntropyTest, WithoutTermsTheBitsAreThoseOfATinyTerm) {
  // Without a z-loss, and with one too small to have an effect, all bits are the same.
  const std::int64_t rows = 5, V = 131;
  const auto targets = tensor(DType::i32, Values{0, 7, 130, -1, 64});
  const auto values = rounded_to(dtype(), normals(1, rows * V, 4));
  const auto plain = tensor(dtype(), values), tiny = tensor(dtype(), values);
  const auto losses = tensor(DType::f32, rows), again = tensor(DType::f32, rows);
  backward(losses, plain, plain, targets, 0.5F);
  backward(again, tiny, tiny, targets, 0.5F, {.z_loss = 1e-12F});
  EXPECT_EQ(joined({&plain, &losses}), joined({&tiny, &again}));
}

TEST_P(CrossEntropyTest, GivesCappedLogitsAway) {
  const Values values{0, 1e-6, -0.25, 9, -18, 19, 300, -1e30, 6.2, -6.3};
  const ops::LossTerms terms{.softcap = 10};
  const auto logits = tensor(DType::f32, values);
  ops::run(ops::CapLogits{.logits = logits.view(), .terms = terms}, stream());
  const Values found = logits.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = 10 * std::tanh(static_cast<double>(static_cast<float>(values[i])) / 10);
    EXPECT_NEAR(found[i], expected, 5e-7 * std::abs(expected)) << values[i];
  }
  const auto left = tensor(DType::f32, values);
  ops::run(ops::CapLogits{.logits = left.view(), .terms = {}}, stream());
  EXPECT_EQ(left.values(), rounded_to(DType::f32, values));
}

TEST_P(CrossEntropyTest, RowsAndThreadsLeaveTheBitsOfTerms) {
  const ops::LossTerms terms{.softcap = 15, .z_loss = 1e-4F};
  const std::int64_t rows = 301, V = 259;
  Values ids;
  for (std::int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<double>(r % V));
  const auto targets = tensor(DType::i32, ids);
  const auto run = [&](std::int64_t first, std::int64_t count) {
    const auto logits = tensor(dtype(), normals(1, rows * V)), losses = tensor(DType::f32, rows);
    const View part = logits.view().slice(first * V, count * V);
    ops::run(ops::CrossEntropy{.losses = losses.view().slice(first, count),
                               .d_logits = part,
                               .logits = part,
                               .targets = targets.view().slice(first, count),
                               .terms = terms,
                               .scale = 1.0F},
             stream());
    return std::pair(logits.values(), losses.values());
  };
  const auto [gradient, losses] = run(0, rows);
  const auto [alone, loss] = run(200, 1);
  EXPECT_EQ(loss[200], losses[200]);
  for (std::int64_t v = 0; v < V; ++v)
    EXPECT_EQ(alone[static_cast<std::size_t>(200 * V + v)],
              gradient[static_cast<std::size_t>(200 * V + v)]);
  expect_same_on_threads([&] {
    const auto logits = tensor(dtype(), normals(1, rows * V)), again = tensor(DType::f32, rows);
    backward(again, logits, logits, targets, 1.0F, terms);
    return joined({&logits, &again});
  });
}

TEST_P(CrossEntropyTest, RoundsGradientsIntoAnotherTensor) {
  for (const std::int64_t V : {64, 131}) {
    const std::int64_t rows = 9;
    Values ids;
    for (std::int64_t r = 0; r < rows; ++r)
      ids.push_back(r == 4 ? -1.0 : static_cast<double>(r * 5 % V));
    const auto targets = tensor(DType::i32, ids);
    const auto values = rounded_to(dtype(), normals(1, rows * V, 4));
    const auto logits = tensor(dtype(), values), in_place = tensor(dtype(), values);
    const auto losses = tensor(DType::f32, rows), again = tensor(DType::f32, rows);
    const auto rounded = tensor(DType::bf16, rows * V);
    backward(losses, in_place, in_place, targets, 0.5F);
    backward(again, rounded, logits, targets, 0.5F);
    EXPECT_EQ(logits.values(), values);
    EXPECT_EQ(again.bytes(), losses.bytes());
    EXPECT_EQ(rounded.values(), rounded_to(DType::bf16, in_place.values()));
  }
}

TEST_P(CrossEntropyTest, SurvivesLargeLogits) {
  const EntropyReference reference{3, {0, 2}};
  const Values values{30000, -30000, 0, -1e30, 1e30, 0};
  const auto rounded = rounded_to(dtype(), values);
  const auto targets = tensor(DType::i32, reference.targets);
  auto logits = tensor(dtype(), values), losses = tensor(DType::f32, 2);
  backward(losses, logits, logits, targets, 1.0F);
  expect_near(losses.values(), reference.losses(rounded), 1e-6, "losses");
  EXPECT_EQ(logits.values(), (Values{0, 0, 0, 0, 1, -1}));
}

TEST_P(CrossEntropyTest, ShowsNan) {
  const auto targets = tensor(DType::i32, Values{0});
  const auto logits = tensor(dtype(), Values{1, std::nan(""), 2});
  auto losses = tensor(DType::f32, 1);
  forward(losses, logits, targets);
  EXPECT_TRUE(std::isnan(losses.values()[0]));
}

TEST_P(CrossEntropyTest, DoesNotDependOnThreads) {
  const std::int64_t rows = 301, V = 259;
  Values ids;
  for (std::int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<double>(r % V));
  const auto targets = tensor(DType::i32, ids);
  expect_same_on_threads([&] {
    auto logits = tensor(dtype(), normals(1, rows * V)), losses = tensor(DType::f32, rows);
    backward(losses, logits, logits, targets, 1.0F);
    return joined({&logits, &losses});
  });
}

TEST_P(CrossEntropyTest, RejectsWrongViews) {
  const auto targets = tensor(DType::i32, 2), logits = tensor(dtype(), 5), six = tensor(dtype(), 6);
  const auto losses = tensor(DType::f32, 2), three = tensor(DType::f32, 3);
  EXPECT_THROW(forward(losses, logits, targets), ContractError);
  EXPECT_THROW(forward(three, six, targets), ContractError);
  EXPECT_THROW(forward(losses, six, losses), ContractError);
  EXPECT_THROW(backward(losses, logits, six, targets, 1.0F), ContractError);
  const auto rounded = tensor(DType::bf16, 6), exact = tensor(DType::f32, 6);
  EXPECT_THROW(backward(losses, exact, rounded, targets, 1.0F), ContractError);
}

TRIREME_ON_BACKENDS(CrossEntropyTest);

TEST(CrossEntropyReference, GradientIsTheGradientOfTheLoss) {
  const auto logits = normals(1, 15);
  for (const double softcap : {0.0, 1.5})
    for (const double z_loss : {0.0, 0.3}) {
      const EntropyReference reference{5, {1, 4, -1}, softcap, z_loss};
      expect_gradient([&](const Values& at) { return reference.objective(at); }, logits,
                      reference.gradient(logits, 1), "gradient");
    }
}

}  // namespace
}  // namespace trireme::test
