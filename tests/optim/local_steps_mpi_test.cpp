// SPDX-License-Identifier: Apache-2.0
// Local steps against replicas that are trained alone and averaged here, in double precision.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/world.hpp"

#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

constexpr int local_steps = 3;

/// The training of one rank: with `replicas` over all ranks, or with `alone` inside its replica
/// only, without the others.
class Trained {
 public:
  explicit Trained(const TrainingSetting& setting, bool alone = false)
      : replicas_(all_.size(), setting.replicas),
        world_(alone ? comm::MpiWorld(all_, replicas_.of(all_.rank())) : comm::MpiWorld()),
        device_(device::make_cpu_device(1)),
        compute_(device_->make_stream(device::StreamMode::inlined, "compute")),
        communicator_(
            comm::make_communicator(comm::Transport::automatic,
                                    setting.parallel.reduction,
                                    world_,
                                    *device_,
                                    {.replicas = alone ? layout::ReplicaRanks() : replicas_,
                                     .sums_inside = setting.outer.on()})),
        training_(setting_in(setting, alone), world_, *communicator_, *device_, *compute_) {
    training_.be_like_rank(all_.rank());
  }

  void local_updates(int step) {
    for (int i = 1; i <= local_steps; ++i) {
      training_.backward(local_steps * (step - 1) + i);
      norms.push_back(training_.update(local_steps * (step - 1) + i).grad_norm);
    }
  }
  Training& training() { return training_; }
  comm::World& all() { return all_; }
  [[nodiscard]] const layout::ReplicaRanks& replicas() const { return replicas_; }

  /// The values of one slot of all pieces, in order.
  std::vector<double> state(std::size_t slot) {
    std::vector<double> values;
    for (const StatePiece& piece : training_.optimizer().state())
      for (std::int64_t i = 0; i < piece.slots[slot].elements; ++i)
        values.push_back(
            piece.slots[slot].dtype == DType::f32
                ? piece.slots[slot].as<float>()[i]
                : static_cast<double>(static_cast<float>(piece.slots[slot].as<Bf16>()[i])));
    return values;
  }
  std::vector<double> parameters() {
    const std::vector<float> values = training_.parameters();
    return {values.begin(), values.end()};
  }
  /// Sets all parameters, in the order of parameters().
  void set_parameters(const std::vector<double>& values) {
    for (const StatePiece& piece : training_.optimizer().state()) {
      auto next = values.begin() + piece.parameter_begin;
      for (std::size_t p = 0; p < at(piece.parameter); ++p)
        next += training_.plan().parameters()[p].elements();
      for (std::int64_t i = 0; i < piece.elements(); ++i)
        piece.master().as<float>()[i] = static_cast<float>(*next++);
    }
    training_.optimizer().publish_parameters();
  }

  std::vector<double> norms;

 private:
  static TrainingSetting setting_in(TrainingSetting setting, bool alone) {
    if (alone)
      setting.replicas = 1;
    return setting;
  }

  comm::MpiWorld all_;
  layout::ReplicaRanks replicas_;
  comm::MpiWorld world_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<comm::Communicator> communicator_;
  Training training_;
};

TrainingSetting setting_of(const OuterConfig& outer) {
  TrainingSetting setting;
  setting.steps = 9;
  setting.clip_norm = 0.5;
  setting.outer = outer;
  setting.parallel.bucket_elements.value = 350;
  return setting;
}

/// Unequal weights, as if replica r had r + 1 times the sequences of replica 0.
double weight_of(int replicas, int replica) {
  return 2.0 * (replica + 1) / (replicas * (replicas + 1));
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << i;
}

/// The weighted mean over the replicas; every rank gets the same values.
std::vector<double> mean_over(Trained& alone) {
  const layout::ReplicaRanks& replicas = alone.replicas();
  const std::vector<double> mine = alone.parameters(), all = alone.all().gather_all(mine);
  std::vector<double> mean(mine.size());
  for (int replica = 0; replica < replicas.count(); ++replica)
    for (std::size_t i = 0; i < mine.size(); ++i)
      mean[i] += all[static_cast<std::size_t>(replicas.first(replica)) * mine.size() + i] *
                 weight_of(replicas.count(), replica);
  return mean;
}

/// Replicas with equal and with different numbers of ranks. AdamW's moments, slots 1 and 2, stay
/// local to a replica; larger replicas shard them differently.
TEST(LocalSteps, AverageReplicasThatAreTrainedAlone) {
  const int ranks = comm::make_mpi_world()->size();
  for (int replicas = 1; replicas <= ranks; ++replicas)
    for (const auto& [rate, momentum] : {std::pair{1.0, 0.0}, {0.7, 0.9}}) {
      SCOPED_TRACE(fmt::format("{} replicas, rate {}", replicas, rate));
      TrainingSetting setting = setting_of({local_steps, rate, momentum});
      setting.replicas = replicas;
      Trained local(setting), alone(setting, true);  // which is never averaged
      const int replica = local.replicas().of(local.all().rank());
      std::vector<double> before = alone.parameters(), outer(before.size());
      for (int step = 1; step <= 3; ++step) {
        local.local_updates(step);
        local.training().optimizer().end_local_steps(weight_of(replicas, replica));
        alone.local_updates(step);
        EXPECT_EQ(local.norms, alone.norms) << "between averages a replica knows no other";
        const std::vector<double> mean = mean_over(alone);
        for (std::size_t i = 0; i < mean.size(); ++i) {
          const double change = before[i] - mean[i];
          outer[i] = momentum * outer[i] + change;
          before[i] -= rate * (change + momentum * outer[i]);
        }
        expect_near(local.parameters(), before);
        if (local.replicas().size(replica) == 1) {
          expect_near(local.state(1), alone.state(1));
          expect_near(local.state(2), alone.state(2));
        }
        before = local.parameters();  // rounding errors must not accumulate
        alone.set_parameters(before);
      }
    }
}

/// All parameters after three steps; they must be the same on every rank.
std::vector<float> result_of(const TrainingSetting& setting) {
  Trained local(setting);
  for (int step = 1; step <= 3; ++step) {
    local.local_updates(step);
    local.training().optimizer().end_local_steps(1.0 / setting.replicas);
  }
  auto parameters = local.training().parameters();
  const std::string mine(reinterpret_cast<const char*>(parameters.data()),
                         parameters.size() * sizeof(float));
  for (const std::string& other : local.all().gather_all(mine)) EXPECT_EQ(other, mine);
  return parameters;
}

TEST(LocalSteps, GiveTheSameBitsWithEverySwitch) {
  using reduce::GradientDType;
  const int ranks = comm::make_mpi_world()->size();
  for (const int replicas : {2, 3, 4})
    if (replicas <= ranks)
      for (const auto& [kind, dtype, sent] :
           {std::tuple{Kind::adamw, DType::f32, GradientDType::fp32},
            {Kind::muon, DType::bf16, GradientDType::fp32},
            {Kind::adamw, DType::f32, GradientDType::bf16},
            {Kind::adamw, DType::bf16, GradientDType::int8}}) {
        TrainingSetting setting = setting_of({local_steps, 0.7, 0.9, sent});
        setting.replicas = replicas;
        setting.dtype = dtype;
        setting.kind = kind;
        setting.table = kind == Kind::muon ? matrix_table() : training_table();
        setting.moment_dtype = dtype == DType::bf16 ? FloatDType::bf16 : FloatDType::fp32;
        const auto reference = result_of(setting);
        for (const int bits : {3, 4, 9, 15, 16, 23}) {
          setting.parallel.shard = EnumNames<layout::Shard>::table[1 + bits / 8].first;
          setting.parallel.overlap_gradients = (bits & 1) != 0;
          setting.parallel.overlap_parameters = (bits & 2) != 0;
          setting.parallel.cached_shards = (bits & 4) != 0;
          setting.parallel.bucket_elements.value = bits % 3 == 0 ? 1 : bits % 3 == 1 ? 350 : 40'000;
          SCOPED_TRACE(
              fmt::format("{} replicas, {}, {}, {}", replicas, name(dtype), word(sent), bits));
          EXPECT_EQ(result_of(setting), reference);
        }
      }
}

std::vector<std::int64_t> elements_of(const layout::Plan& plan) {
  std::vector<std::int64_t> elements(plan.parameters().size());
  for (std::size_t p = 0; p < elements.size(); ++p) elements[p] = plan.parameters()[p].elements();
  return elements;
}

/// The weights of runs that differ only in outer.dtype, with gradients independent of weights: they
/// differ only by the part not sent yet. Without error feedback that would grow.
TEST(LocalSteps, SendInLaterStepsWhatWasCutOff) {
  const int ranks = comm::make_mpi_world()->size();
  constexpr int steps = 40;
  const auto train = [&](reduce::GradientDType sent) {
    TrainingSetting setting = setting_of({local_steps, 1, 0, sent});
    setting.replicas = ranks;
    setting.steps = steps * local_steps;
    Trained local(setting);
    std::vector<std::vector<float>> weights{local.training().parameters()};
    for (int step = 1; step <= steps; ++step) {
      local.local_updates(step);
      local.training().optimizer().end_local_steps(1.0 / ranks);
      weights.push_back(local.training().parameters());
    }
    return weights;
  };
  const auto exact = train(reduce::GradientDType::fp32);
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return most;
  };
  double largest_change = 0;
  for (int step = 1; step <= steps; ++step)
    largest_change = std::max(largest_change, distance(exact[step], exact[step - 1]));
  // int8 codes lose at most 1/128 of the largest value of their block, fp8 codes 1/16: once for the
  // terms, which together are as large as the sum, and once for the sum.
  for (const auto& [sent, of_a_code] : {std::pair{reduce::GradientDType::int8, 1.0 / 128},
                                        {reduce::GradientDType::fp8, 1.0 / 16}}) {
    const auto coded = train(sent);
    for (int step = 1; step <= steps; ++step)
      EXPECT_LE(distance(coded[step], exact[step]), 2 * of_a_code * largest_change)
          << word(sent) << ", step " << step;
    EXPECT_EQ(distance(coded[steps], exact[steps]) > 0, ranks > 1) << "one rank sends nothing";
  }
}

/// The plan's memory and messages equal what the optimizer carries between steps.
TEST(LocalSteps, CarryWhatThePlanSays) {
  const int ranks = comm::make_mpi_world()->size();
  for (int replicas = 2; replicas <= ranks; ++replicas) {
    TrainingSetting setting = setting_of({local_steps, 1, 0, reduce::GradientDType::int8});
    setting.replicas = replicas;
    Trained local(setting);
    const layout::Plan& plan = local.training().plan();
    std::int64_t bytes = 0;
    std::vector<std::int64_t> errors(plan.parameters().size()), sum_errors = errors;
    for (const reduce::Carried& one : local.training().optimizer().carried()) {
      bytes += static_cast<std::int64_t>(one.values.bytes());
      const bool of_sum = one.name == "outer_sum_error";
      EXPECT_EQ(one.ranks, of_sum ? 1 : replicas) << one.name;
      for (const layout::Piece& piece :
           plan.find_pieces(one.bucket, one.begin, one.values.elements))
        (of_sum ? sum_errors : errors)[at(piece.parameter)] += piece.elements;
    }
    EXPECT_EQ(bytes, outer_memory(setting.outer, plan).carried);
    local.all().sum(errors);
    local.all().sum(sum_errors);
    EXPECT_EQ(sum_errors, elements_of(plan)) << "each element of a sum has one owner";
    for (std::int64_t& count : errors) count /= replicas;
    EXPECT_EQ(errors, elements_of(plan)) << "and one error in each replica";
  }
}

}  // namespace
}  // namespace trireme::optim
