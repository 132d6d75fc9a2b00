// SPDX-License-Identifier: Apache-2.0
// Training steps of the engine alone, on any device, and the same steps without engine and streams.
//
// Gradients depend on the values of parameters, so that a stale parameter changes the result. All
// values are integers that fp32 represents exactly, so sums are exact in every order and all
// transports must give the same bits. Writes to gradients and parameters are enqueued on compute
// without waiting, so that a missing wait in the engine changes the result as well.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/elementwise.hpp"

#include "comm/communicator.hpp"
#include "reduce/engine.hpp"

namespace trireme::testing {

/// Position in the table of the parameter that has its own bucket.
enum class Tied : std::uint8_t { first, last, alone };

inline std::vector<layout::Parameter> table(Tied tied = Tied::first) {
  const layout::Parameter own{"wte", {7, 30}, true, true};
  if (tied == Tied::alone)
    return {own};
  std::vector<layout::Parameter> all = {{"a", {300}, false, true},
                                        {"b", {65}},
                                        {"c", {40, 20}, false, true},
                                        {"d", {1}},
                                        {"e", {129}}};
  all.insert(tied == Tied::first ? all.begin() : all.end(), own);
  for (std::size_t p = 0; p < all.size(); ++p) all[p].group = static_cast<int>(p / 2);
  return all;
}

struct Setting {
  layout::Shard shard = layout::Shard::optimizer;
  bool overlap_gradients = true, overlap_parameters = true, cached_shards = true;
  std::int64_t bucket_elements = 350;
  layout::Padding padding = layout::Padding::aligned;
  reduce::GradientDType gradient_dtype = reduce::GradientDType::fp32;
  Tied tied = Tied::first;
  DType dtype = DType::f32;  ///< of the parameters
  int micro_steps = 1;
  reduce::ReduceEvery reduce_every = reduce::ReduceEvery::automatic;
  bool reshard_after_forward = true;
  std::optional<std::int64_t> gradient_rank = {};

  [[nodiscard]] reduce::ParallelConfig config() const {
    reduce::ParallelConfig c;
    c.shard = shard;
    c.overlap_gradients = overlap_gradients;
    c.overlap_parameters = overlap_parameters;
    c.cached_shards = cached_shards;
    c.gradient_dtype = gradient_dtype;
    c.gradient_rank.value = gradient_rank;
    c.reduce_every = reduce_every;
    c.reshard_after_forward = reshard_after_forward;
    return c;
  }
  [[nodiscard]] std::string text() const {
    std::string all =
        "bucket_elements " + std::to_string(bucket_elements) + ", shard " + word(shard);
    for (const auto& [name, on] : {std::pair{"overlap_gradients", overlap_gradients},
                                   {"overlap_parameters", overlap_parameters},
                                   {"cached_shards", cached_shards},
                                   {"reshard_after_forward", reshard_after_forward}})
      all += std::string(on ? ", " : ", not ") + name;
    return all;
  }
};

/// All values of shard, with three switches on and off, for three bucket sizes; parameters with and
/// without resharding after forward.
inline std::vector<Setting> settings_of_every_switch() {
  std::vector<Setting> all;
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table)
    for (int bits = 0; bits < 8; ++bits)
      for (const std::int64_t bucket_elements : {1, 350, 100'000}) {
        all.push_back({shard, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, bucket_elements});
        if (shard != layout::Shard::parameters)
          continue;
        all.push_back(all.back());
        all.back().reshard_after_forward = false;
      }
  return all;
}

inline float initial_value(std::size_t parameter, std::int64_t element) {
  return static_cast<float>(static_cast<int>(parameter) * 10 + element % 5);
}
/// The part of a micro-step's gradient that does not depend on the parameter. The other part is
/// (rank + 1) times its value; an update adds the sum over ranks.
inline float pattern(int step, std::int64_t element) {
  return static_cast<float>((element + step) * 7 % 13);
}

/// Runs training steps on one rank's engine.
class Steps {
 public:
  Steps(reduce::Engine& engine,
        device::Device& device,
        device::Stream& compute,
        const Setting& setting = {})
      : engine_(engine),
        device_(device),
        compute_(compute),
        micro_steps_(setting.micro_steps),
        reduces_each_(setting.config().reduces_micro_steps()) {
    const auto fp32 = [&](std::int64_t elements) {
      return device.allocate(static_cast<std::size_t>(elements) * sizeof(float), "test");
    };
    std::int64_t most = 0;
    for (const layout::Bucket& bucket : engine.plan().buckets())
      most = std::max(most, bucket.elements);
    values_ = fp32(most);
    patterns_ = fp32(most + period);
    std::vector<float> all;
    for (std::int64_t i = 0; i < most + period; ++i) all.push_back(pattern(0, i));
    copy(patterns_.view(DType::f32), view_of(all.data(), most + period));
  }

  void initialize() {
    for (const reduce::OwnedShard& owned : engine_.owned()) {
      const std::int64_t elements = owned.parameter.elements;
      const std::int64_t begin = engine_.sharded() ? engine_.rank() * elements : 0;
      for (const layout::Piece& piece : engine_.plan().find_pieces(owned.bucket, begin, elements)) {
        std::vector<float> all;
        for (std::int64_t i = 0; i < piece.elements; ++i)
          all.push_back(initial_value(at(piece.parameter), piece.parameter_begin + i));
        const View values = values_.view(DType::f32, 0, piece.elements);
        copy(values, view_of(all.data(), piece.elements));
        ops::run(ops::Cast{.to = owned.parameter.slice(piece.shard_begin, piece.elements),
                           .from = values},
                 compute_);
      }
    }
    engine_.publish_parameters();
  }

  /// One step with the trainer's order of calls: before_use() in forward order; before_use() and
  /// mark_ready() in backward order; update.
  void run(int step) {
    engine_.begin_step();
    for (int micro = 0; micro < micro_steps_; ++micro) {
      if (micro > 0 && reduces_each_)
        engine_.next_micro_step();
      for (std::size_t p = 0; p < count(); ++p) use(static_cast<ParameterIndex>(p));
      for (std::size_t p = count(); p-- > 0;) {
        write_gradient(static_cast<ParameterIndex>(p), step * micro_steps_ + micro);
        if (reduces_each_ || micro + 1 == micro_steps_)
          engine_.mark_ready(static_cast<ParameterIndex>(p));
      }
    }
    engine_.finish_reduction();
    for (std::size_t b = engine_.owned().size(); b-- > 0;) {
      const auto bucket = static_cast<BucketIndex>(b);
      engine_.wait_for_shard(bucket);
      const reduce::OwnedShard& shard = engine_.owned()[b];
      const View values = values_of(shard.parameter);
      ops::run(ops::Add{.sum = values, .term = shard.gradient}, compute_);
      ops::run(ops::Cast{.to = shard.parameter, .from = values}, compute_);
      engine_.mark_updated(bucket);
    }
  }

  /// All parameters, concatenated in registration order.
  [[nodiscard]] std::vector<float> parameters() {
    engine_.wait_for_parameters();
    std::vector<float> all;
    for (std::size_t p = 0; p < count(); ++p) {
      use(static_cast<ParameterIndex>(p));
      const View values = values_of(engine_.parameter(static_cast<ParameterIndex>(p)));
      std::vector<float> read(static_cast<std::size_t>(values.elements));
      copy(view_of(read.data(), values.elements), values);
      all.insert(all.end(), read.begin(), read.end());
    }
    return all;
  }

 private:
  static constexpr std::int64_t period = 13;

  [[nodiscard]] std::size_t count() const { return engine_.plan().parameters().size(); }
  void use(ParameterIndex parameter) { engine_.before_use({&parameter, 1}); }
  /// The parameter in fp32; valid until the next call.
  [[nodiscard]] View values_of(ConstView parameter) {
    const View values = values_.view(DType::f32, 0, parameter.elements);
    ops::run(ops::Cast{.to = values, .from = parameter}, compute_);
    return values;
  }
  void write_gradient(ParameterIndex parameter, int micro_step) {
    use(parameter);
    engine_.before_write(parameter);
    const View gradient = engine_.gradient(parameter);
    const View values = values_of(engine_.parameter(parameter));
    for (int times = 0; times <= engine_.rank(); ++times)
      ops::run(ops::Add{.sum = gradient, .term = values}, compute_);
    const View patterns = patterns_.view(DType::f32);
    ops::run(
        ops::Add{.sum = gradient, .term = patterns.slice(micro_step % period, gradient.elements)},
        compute_);
  }
  /// Copies between host and device.
  void copy(View to, ConstView from) {
    device_.copy(to, from, compute_);
    compute_.synchronize();
  }

  reduce::Engine& engine_;
  device::Device& device_;
  device::Stream& compute_;
  const int micro_steps_;
  const bool reduces_each_;
  device::Buffer values_, patterns_;
};

/// One rank's parameters after `steps` steps.
inline std::vector<float> train(const Setting& setting,
                                int steps,
                                comm::Communicator& communicator,
                                device::Device& device,
                                device::Stream& compute,
                                comm::World* world = nullptr) {
  const layout::Plan plan(table(setting.tied),
                          {communicator.size(), setting.bucket_elements, setting.padding});
  reduce::Engine engine(plan, setting.dtype, setting.config(), communicator, device, compute,
                        world);
  Steps training(engine, device, compute, setting);
  training.initialize();
  for (int step = 0; step < steps; ++step) training.run(step);
  return training.parameters();
}

/// The same, computed element by element; each micro-step is summed over the ranks separately.
inline std::vector<float> train_plainly(const Setting& setting, int steps, int ranks) {
  const auto rounded = [](float value, bool rounds) {
    return rounds ? static_cast<float>(Bf16(value)) : value;
  };
  const bool travels_rounded = setting.gradient_dtype == reduce::GradientDType::bf16 && ranks > 1;
  std::vector<float> all;
  const auto parameters = table(setting.tied);
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (std::int64_t i = 0; i < parameters[p].elements(); ++i) {
      float value = initial_value(p, i);
      for (int step = 0; step < steps; ++step) {
        float gradient = 0;
        for (int micro = 0; micro < setting.micro_steps; ++micro) {
          float sum = 0;
          for (int rank = 0; rank < ranks; ++rank)
            sum += rounded(static_cast<float>(rank + 1) * value +
                               pattern(step * setting.micro_steps + micro, i),
                           travels_rounded);
          gradient += rounded(sum, travels_rounded);
        }
        value = rounded(value + gradient, setting.dtype == DType::bf16);
      }
      all.push_back(value);
    }
  return all;
}

}  // namespace trireme::testing
