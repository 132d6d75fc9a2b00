// SPDX-License-Identifier: Apache-2.0
// The optimizer on ranks that are threads: compared with a loop in double precision, sharded
// compared with whole, and misuse that it reports.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/budget.hpp"

#include "reduce/thread_ranks.hpp"

#include "optim/optimizer.hpp"
#include "optim/rule.hpp"
#include "optim/schedule.hpp"
#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TEST(AdamwNumbers, OneMinusBetaKeepsItsDigits) {
  OptimizerConfig config;
  for (const double beta : {0.95, 0.999, 0.9999, 0.999999}) {
    config.beta1 = config.beta2 = beta;
    const ops::AdamwStep step = step_of(config, 1, 10, 1);
    EXPECT_NEAR(static_cast<double>(step.gain1) / (1 - beta), 1, 1e-7) << beta;
    // In step 1 the corrected second moment is the square of the gradient.
    EXPECT_NEAR(static_cast<double>(step.gain2) / static_cast<double>(step.correction2), 1, 2e-7)
        << beta;
  }
}

TrainingResult train(int ranks, const TrainingSetting& setting) {
  std::vector<TrainingResult> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ThreadRank& rank) {
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    results[static_cast<std::size_t>(rank.world.rank())] = training.run();
  });
  for (const TrainingResult& other : results) {
    EXPECT_EQ(0, std::memcmp(other.parameters.data(), results[0].parameters.data(),
                             other.parameters.size() * sizeof(float)));
    EXPECT_EQ(other.grad_norms, results[0].grad_norms);
    EXPECT_EQ(other.layer_norms, results[0].layer_norms);
  }
  return results[0];
}

/// AdamW as in its paper, in double precision, element by element.
TrainingResult train_in_double(int ranks, const TrainingSetting& setting) {
  const auto& table = setting.table;
  const OptimizerConfig config = setting.optimizer();
  std::vector<std::vector<double>> value, m, v;
  for (std::size_t p = 0; p < table.size(); ++p) {
    const auto elements = static_cast<std::size_t>(table[p].elements());
    value.emplace_back(elements);
    for (std::size_t i = 0; i < elements; ++i)
      value[p][i] = static_cast<double>(initial_value(p, static_cast<std::int64_t>(i)));
    m.emplace_back(elements);
    v.emplace_back(elements);
  }
  TrainingResult result;
  for (int step = 1; step <= setting.steps; ++step) {
    auto gradient = value;
    double squares = 0;
    for (std::size_t p = 0; p < table.size(); ++p)
      for (std::size_t i = 0; i < value[p].size(); ++i) {
        double sum = 0;
        for (int rank = 0; rank < ranks; ++rank)
          sum += static_cast<double>(
              gradient_value(rank, step, p, static_cast<std::int64_t>(i), true));
        gradient[p][i] = sum / ranks;
        squares += gradient[p][i] * gradient[p][i];
      }
    const double norm = std::sqrt(squares);
    result.grad_norms.push_back(norm);
    const double clip = config.clip_norm > 0 ? std::min(1.0, config.clip_norm / (norm + 1e-6)) : 1;
    const double rate = learning_rate(config, step, setting.steps);
    std::vector<double> squared(3 * static_cast<std::size_t>(table.back().group + 1), 0.0);
    for (std::size_t p = 0; p < table.size(); ++p)
      for (std::size_t i = 0; i < value[p].size(); ++i) {
        const double before = value[p][i];
        const double g = gradient[p][i] * clip;
        m[p][i] = config.beta1 * m[p][i] + (1 - config.beta1) * g;
        v[p][i] = config.beta2 * v[p][i] + (1 - config.beta2) * g * g;
        const double first = m[p][i] / (1 - std::pow(config.beta1, step));
        const double second = v[p][i] / (1 - std::pow(config.beta2, step));
        const double decay = table[p].decay ? config.weight_decay * decay_share(setting, step) : 0;
        value[p][i] -= rate * (first / (std::sqrt(second) + config.epsilon) + decay * value[p][i]);
        double* of_layer = &squared[3 * static_cast<std::size_t>(table[p].group)];
        of_layer[0] += gradient[p][i] * gradient[p][i];
        of_layer[1] += value[p][i] * value[p][i];
        of_layer[2] += (value[p][i] - before) * (value[p][i] - before);
      }
    for (const double square : squared)
      if (step % 2 == 0)
        result.layer_norms.push_back(std::sqrt(square));
  }
  for (const auto& values : value)
    for (const double x : values) result.parameters.push_back(static_cast<float>(x));
  return result;
}

class AdamWAtRanks : public ::testing::TestWithParam<int> {};

TEST_P(AdamWAtRanks, FollowsTheDoublePrecisionLoop) {
  for (const double clip_norm : {0.0, 1.0, 1e6}) {
    TrainingSetting setting;
    setting.clip_norm = clip_norm;
    setting.table = table_of_layers();
    setting.exact_sums = true;
    setting.steps = 8;
    setting.parallel.bucket_elements.value = 350;
    const auto result = train(GetParam(), setting);
    const auto expected = train_in_double(GetParam(), setting);
    ASSERT_EQ(result.parameters.size(), expected.parameters.size());
    for (std::size_t i = 0; i < result.parameters.size(); ++i)
      ASSERT_NEAR(result.parameters[i], expected.parameters[i], 2e-6) << "element " << i;
    for (std::size_t s = 0; s < result.grad_norms.size(); ++s)
      ASSERT_NEAR(result.grad_norms[s], expected.grad_norms[s], 1e-12 * expected.grad_norms[s]);
    ASSERT_EQ(result.layer_norms.size(), expected.layer_norms.size());
    for (std::size_t i = 0; i < result.layer_norms.size(); ++i) {
      const double value = expected.layer_norms[i];
      // An update is a difference of rounded weights.
      const double roundings = i % 3 == 2 ? 0x1p-23 * expected.layer_norms[i - 1] : 0;
      ASSERT_NEAR(result.layer_norms[i], value, (i % 3 == 0 ? 1e-12 : 1e-5) * value + roundings)
          << i;
    }
  }
}

TEST_P(AdamWAtRanks, GivesTheSameBitsShardedOrWholeWithAnyBucketsAndSwitches) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // The thread communicator adds fp32 only, the type of gradients; bf16 parameters are only
    // gathered.
    TrainingSetting setting;
    setting.dtype = dtype;
    const auto reference = train(GetParam(), setting);
    for (int bits = 0; bits < 24; ++bits) {
      setting.parallel.shard = EnumNames<layout::Shard>::table[bits / 8].first;
      setting.parallel.overlap_gradients = (bits & 1) != 0;
      setting.parallel.overlap_parameters = (bits & 2) != 0;
      setting.parallel.cached_shards = (bits & 4) != 0;
      for (const layout::Padding padding : {layout::Padding::aligned, layout::Padding::none})
        for (const std::int64_t bucket_elements : {1, 350, 40'000}) {
          setting.parallel.padding = padding;
          setting.parallel.bucket_elements.value = bucket_elements;
          const auto result = train(GetParam(), setting);
          ASSERT_EQ(0, std::memcmp(result.parameters.data(), reference.parameters.data(),
                                   result.parameters.size() * sizeof(float)))
              << name(dtype) << ", switches " << bits << ", padding " << word(padding)
              << ", bucket_elements " << bucket_elements;
          ASSERT_EQ(result.grad_norms, reference.grad_norms);
          ASSERT_EQ(result.layer_norms, reference.layer_norms);
        }
    }
  }
}

TEST_P(AdamWAtRanks, GivesTheSameBitsWithBf16MomentsShardedOrWholeWithAnyBuckets) {
  TrainingSetting setting;
  setting.moment_dtype = FloatDType::bf16;
  const auto reference = train(GetParam(), setting);
  for (const auto& [shard, text] : EnumNames<layout::Shard>::table)
    for (const layout::Padding padding : {layout::Padding::aligned, layout::Padding::none})
      for (const std::int64_t bucket_elements : {1, 350, 40'000}) {
        setting.parallel.shard = shard;
        setting.parallel.padding = padding;
        setting.parallel.bucket_elements.value = bucket_elements;
        const auto result = train(GetParam(), setting);
        ASSERT_EQ(result.parameters, reference.parameters)
            << text << ", padding " << word(padding) << ", bucket_elements " << bucket_elements;
      }
  setting.seed = 7;
  EXPECT_NE(train(GetParam(), setting).parameters, reference.parameters);
}

TEST_P(AdamWAtRanks, FollowsTheDoublePrecisionLoopWithBf16Moments) {
  TrainingSetting setting;
  setting.moment_dtype = FloatDType::bf16;
  setting.exact_sums = true;
  setting.steps = 8;
  const auto result = train(GetParam(), setting);
  const auto expected = train_in_double(GetParam(), setting);
  ASSERT_EQ(result.grad_norms.size(), expected.grad_norms.size());
  // An update is the rate times a quotient of moments, each of which has an error of a few
  // hundredths.
  const double moved = setting.steps * setting.optimizer().learning_rate;
  double mean = 0;
  for (std::size_t i = 0; i < result.parameters.size(); ++i) {
    const double error = result.parameters[i] - static_cast<double>(expected.parameters[i]);
    ASSERT_NEAR(error, 0, 0.05 * moved) << "element " << i;
    mean += error / static_cast<double>(result.parameters.size());
  }
  EXPECT_NEAR(mean, 0, 0.001 * moved);
}

TEST_P(AdamWAtRanks, KeepsEveryElementOnExactlyOneRank) {
  const int ranks = GetParam();
  std::vector<std::vector<int>> owners;
  for (const layout::Parameter& parameter : training_table())
    owners.emplace_back(static_cast<std::size_t>(parameter.elements()), 0);
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadRank& rank) {
    TrainingSetting setting;
    setting.parallel.bucket_elements.value = 350;
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    const std::lock_guard lock(mutex);
    for (const StatePiece& piece : training.optimizer().state())
      for (std::int64_t i = 0; i < piece.elements(); ++i)
        ++owners[at(piece.parameter)][static_cast<std::size_t>(piece.parameter_begin + i)];
  });
  for (const auto& parameter : owners) EXPECT_THAT(parameter, ::testing::Each(1));
}

TEST_P(AdamWAtRanks, AllocatesExactlyTheBytesOfTheBudget) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](ThreadRank& rank) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [shard, text] : EnumNames<layout::Shard>::table) {
        TrainingSetting setting;
        setting.parallel.shard = shard;
        setting.dtype = dtype;
        if (shard == layout::Shard::gradients || dtype == DType::bf16)
          setting.moment_dtype = FloatDType::bf16;
        Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
        const layout::Budget budget = layout::budget_of(
            training.plan(), state_slots(setting.optimizer()),
            {.parameter_dtype = dtype, .shard = shard, .micro_step_reductions = 1});
        ASSERT_EQ(training.optimizer().state_bytes(), budget.state_bytes);
        rank.world.barrier();
      }
  });
}

/// The error message of each rank's optimizer after rank r wrote values[r] to gradient c[17].
std::vector<std::string> messages_after(const std::vector<float>& values, bool check_gradients) {
  std::vector<std::string> messages(values.size());
  run_ranks(static_cast<int>(values.size()), [&](ThreadRank& rank) {
    TrainingSetting setting;
    setting.parallel.bucket_elements.value = 350;
    setting.parallel.check_gradients = check_gradients;
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    const auto mine = static_cast<std::size_t>(rank.world.rank());
    const ParameterIndex c{3};
    training.engine().begin_step();
    training.engine().wait_for_parameters();
    training.engine().gradient(c).as<float>()[17] = values[mine];
    for (int p = 6; p >= 0; --p) training.engine().mark_ready(static_cast<ParameterIndex>(p));
    const float before = training.engine().parameter(c).as<float>()[0];
    try {
      training.update(1);
    } catch (const UserError& error) {
      messages[mine] = error.what();
    }
    ASSERT_EQ(training.engine().parameter(c).as<float>()[0], before) << "something was updated";
  });
  return messages;
}

TEST_P(AdamWAtRanks, NamesTheRankThatComputedAGradientThatIsNotFinite) {
  const auto ranks = static_cast<std::size_t>(GetParam());
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(ranks, 1.0F);
    values[ranks - 1] = poison;
    const std::string expected =
        "gradient of step 1 is not finite: c[17] in bucket 0, computed by "
        "rank " +
        std::to_string(ranks - 1) + ";";
    EXPECT_THAT(messages_after(values, true), ::testing::Each(::testing::HasSubstr(expected)));
    EXPECT_THAT(messages_after(values, false),
                ::testing::Each(::testing::HasSubstr("c[17] in bucket 0, in the sum over ranks")));
  }
}

INSTANTIATE_TEST_SUITE_P(, AdamWAtRanks, ::testing::Values(1, 2, 3, 4));

TEST(AdamW, KeepsPaddingZeroAndWorksWhereARankOwnsPaddingOnly) {
  run_ranks(4, [](ThreadRank& rank) {
    TrainingSetting setting;
    setting.parallel.bucket_elements.value =
        1;  // "d" has one element: three ranks own padding of it
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    const layout::Plan& plan = training.plan();
    const BucketIndex d = plan.placement(ParameterIndex{4}).bucket;
    ASSERT_EQ(plan.find_pieces(d, rank.world.rank()).empty(), rank.world.rank() != 0);
    training.run();
    for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
      const layout::Bucket& bucket = plan.buckets()[b];
      // The first parameter of a bucket begins where the bucket does.
      const float* values = training.engine().parameter(bucket.parameters[0]).as<float>();
      for (std::int64_t i = bucket.unpadded; i < bucket.elements; ++i) ASSERT_EQ(values[i], 0.0F);
    }
  });
}

TEST(AdamW, CountsTheRanksWithGradientsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(messages_after({0, nan, 0, nan}, true),
              ::testing::Each(::testing::HasSubstr("computed by rank 1, and on 1 more rank;")));
}

TEST(AdamW, FindsGradientsThatOverflowOnlyInTheirSum) {
  const float large = std::numeric_limits<float>::max();
  EXPECT_THAT(messages_after({large, large}, true),
              ::testing::Each(::testing::HasSubstr("c[17] in bucket 0, in the sum over ranks")));
}

TEST(AdamW, GivesTheSameBitsWithBf16MomentsOnOneTwoAndFourRanks) {
  TrainingSetting setting;
  setting.moment_dtype = FloatDType::bf16;
  setting.exact_sums = true;
  setting.parallel.bucket_elements.value = 350;
  const auto train_alike = [&](int ranks) {
    TrainingResult first;
    run_ranks(ranks, [&](ThreadRank& rank) {
      Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
      training.be_like_rank(0);  // so the mean over ranks is the same, and exact
      TrainingResult result = training.run();
      if (rank.world.rank() == 0)
        first = std::move(result);
      rank.world.barrier();
    });
    return first;
  };
  const TrainingResult alone = train_alike(1);
  for (const int ranks : {2, 4})
    for (const auto& [shard, text] : EnumNames<layout::Shard>::table) {
      setting.parallel.shard = shard;
      const TrainingResult together = train_alike(ranks);
      EXPECT_EQ(together.parameters, alone.parameters) << ranks << " ranks, " << text;
      EXPECT_EQ(together.grad_norms, alone.grad_norms);
    }
}

/// Masters, moments and gathered parameters.
std::vector<float> all_state(Training& training) {
  training.engine().wait_for_parameters();
  std::vector<float> all;
  const auto add = [&](ConstView view) {
    all.insert(all.end(), view.as<float>(), view.as<float>() + view.elements);
  };
  for (const StatePiece& piece : training.optimizer().state()) {
    for (const View& slot : piece.slots) add(slot);
  }
  for (std::size_t b = 0; b < training.plan().buckets().size(); ++b)
    add(training.engine().bucket_parameters(static_cast<BucketIndex>(b)));
  return all;
}

TEST(AdamW, GivesTheResultsOfAStepAfterTheNextOne) {
  for (const auto& [shard, text] : EnumNames<layout::Shard>::table) {
    TrainingSetting setting;
    setting.parallel.shard = shard;
    setting.parallel.bucket_elements.value = 350;
    const TrainingResult expected = train(3, setting);
    run_ranks(3, [&](ThreadRank& rank) {
      Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
      for (int step = 1; step <= setting.steps; ++step) {
        training.backward(step);
        training.enqueue_update(step);
        ASSERT_TRUE(training.optimizer().has_result(step));
        if (step > 1) {
          ASSERT_EQ(training.optimizer().result(step - 1).grad_norm,
                    expected.grad_norms[static_cast<std::size_t>(step - 2)]);
        }
      }
      ASSERT_EQ(training.optimizer().result(setting.steps).grad_norm, expected.grad_norms.back());
      ASSERT_FALSE(training.optimizer().has_result(setting.steps + 1));
      training.engine().wait_for_parameters();
      rank.world.barrier();
    });
  }
}

TEST(AdamW, WritesNothingInAStepThatIsNotFiniteAndNamesItAfterTheNextOne) {
  for (const bool checks : {true, false})
    for (const auto& choice : EnumNames<layout::Shard>::table)
      run_ranks(3, [&](ThreadRank& rank) {
        TrainingSetting setting;
        setting.parallel.shard = choice.first;
        setting.parallel.bucket_elements.value = 350;
        setting.parallel.check_gradients = checks;
        Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
        training.backward(1);
        training.update(1);
        const auto before = all_state(training);
        if (rank.world.rank() == 1)
          training.poison(3, 17, std::numeric_limits<float>::quiet_NaN());
        training.backward(2);
        training.enqueue_update(2);
        ASSERT_EQ(all_state(training), before);
        if (rank.world.rank() == 1)
          training.poison(3, 17, 0.0F);
        training.backward(3);
        training.enqueue_update(3);
        ASSERT_NE(all_state(training), before);
        try {
          training.optimizer().result(2);
          FAIL() << "the NaN was not reported";
        } catch (const UserError& mistake) {
          ASSERT_THAT(mistake.what(),
                      ::testing::HasSubstr(std::string("gradient of step 2 is not finite: ") +
                                           (checks ? "c[17] in bucket 0, computed by rank 1;"
                                                   : "c[17] in bucket 0, in the sum over ranks;")));
        }
        ASSERT_GT(training.optimizer().result(3).grad_norm, 0);
        rank.world.barrier();
      });
}

/// The error names the right rank for every micro-step with a gradient that is not finite.
TEST(AdamW, NamesTheRankOfAMicroStepThatIsNotFinite) {
  for (const auto& choice : EnumNames<layout::Shard>::table)
    run_ranks(3, [&](ThreadRank& rank) {
      TrainingSetting setting;
      setting.parallel.shard = choice.first;
      setting.parallel.reduce_every = reduce::ReduceEvery::micro_step;
      setting.parallel.bucket_elements.value = 350;
      setting.on_non_finite = OnNonFinite::skip;
      setting.micro_steps = 3;
      setting.steps = 20;
      Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
      int step = 0;
      for (const int micro_step : {0, 1, 2}) {
        const bool mine = rank.world.rank() == micro_step;
        training.poison(3, 17, mine ? std::numeric_limits<float>::quiet_NaN() : 1.0F, micro_step);
        training.backward(++step);
        ASSERT_EQ(training.update(step).not_finite,
                  fmt::format("c[17] in bucket 0, computed by rank {}", micro_step))
            << choice.second;
        training.poison(3, 17, 1.0F);
        training.backward(++step);
        ASSERT_EQ(training.update(step).not_finite, "") << choice.second;
      }
      rank.world.barrier();
    });
}

TEST(AdamW, SkipsStepsThatAreNotFiniteUpToTheLimitInARow) {
  run_ranks(3, [&](ThreadRank& rank) {
    TrainingSetting setting;
    setting.parallel.bucket_elements.value = 350;
    setting.on_non_finite = OnNonFinite::skip;
    setting.steps = 20;
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    int step = 0;
    const auto run = [&](bool poisoned) {
      if (rank.world.rank() == 1)
        training.poison(3, 17, poisoned ? std::numeric_limits<float>::infinity() : 0.0F);
      training.backward(++step);
      return training.update(step);
    };
    ASSERT_EQ(run(false).not_finite, "");
    const auto before = all_state(training);
    for (int time = 0; time < 2; ++time) {
      ASSERT_EQ(run(true).not_finite, "c[17] in bucket 0, computed by rank 1");
      ASSERT_EQ(all_state(training), before);
    }
    ASSERT_EQ(run(false).not_finite, "");  // resets the count
    const auto after = all_state(training);
    ASSERT_NE(after, before);
    run(true);
    run(true);
    try {
      run(true);
      FAIL() << "three skipped steps in a row were accepted";
    } catch (const UserError& mistake) {
      ASSERT_THAT(mistake.what(), ::testing::HasSubstr("in this step and in the 2 before it"));
    }
    ASSERT_EQ(all_state(training), after);
    rank.world.barrier();
  });
}

TEST(AdamW, RefusesToRunTwoStepsAhead) {
  run_ranks(1, [](ThreadRank& rank) {
    Training training({}, rank.world, rank.communicator, *rank.device, *rank.compute);
    for (int step = 1; step <= 3; ++step) {
      training.backward(step);
      if (step < 3)
        training.enqueue_update(step);
    }
    ASSERT_THROW(training.enqueue_update(3), ContractError);
    ASSERT_THROW(training.optimizer().result(3), ContractError);
  });
}

TEST(AdamW, AddsTheLossesOfAllRanks) {
  run_ranks(3, [](ThreadRank& rank) {
    Training training({}, rank.world, rank.communicator, *rank.device, *rank.compute);
    ops::StreamSum losses(*rank.device);
    const float mine[] = {0x1p-30F, 3.0F + static_cast<float>(rank.world.rank())};
    losses.add_values(view_of(mine, 2), *rank.compute);
    training.backward(1);
    training.optimizer().step(1, 5, 1.0, &losses);
    ASSERT_EQ(training.optimizer().result(1).loss_sum, 12 + 0x3p-30);
    training.backward(2);
    ASSERT_EQ(training.update(2).loss_sum, 0.0) << "none were given";
    training.engine().wait_for_parameters();
    rank.world.barrier();
  });
}

TEST(AdamW, ClipsToTheNorm) {
  // With beta1 = beta2 = 0 the first moment is the clipped gradient itself.
  run_ranks(2, [](ThreadRank& rank) {
    TrainingSetting setting;
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    OptimizerConfig config = setting.optimizer();
    config.beta1 = config.beta2 = 0;
    config.clip_norm = 0.5;
    Optimizer optimizer(config, training.engine(), rank.communicator, rank.world, *rank.device,
                        *rank.compute, setting.seed);
    training.backward(1);
    optimizer.step(1, 5, 0.5);
    const StepResult result = optimizer.result(1);
    ASSERT_GT(result.grad_norm, 0.5);
    double squares = 0;
    for (const StatePiece& piece : optimizer.state())
      for (std::int64_t i = 0; i < piece.elements(); ++i)
        squares += std::pow(static_cast<double>(piece.slots[1].as<float>()[i]), 2);
    const auto all = rank.world.gather_all(std::span<const double>(&squares, 1));
    ASSERT_NEAR(std::sqrt(all[0] + all[1]), 0.5, 1e-6);
  });
}

}  // namespace
}  // namespace trireme::optim
