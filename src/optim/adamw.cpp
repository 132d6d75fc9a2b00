// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"

#include "ops/adamw.hpp"
#include "ops/elementwise.hpp"
#include "ops/finite.hpp"

#include "optim/schedule.hpp"

namespace trireme::optim {
namespace {

/// Added to the norm before dividing. Source: torch.nn.utils.clip_grad_norm_, and Megatron-LM's
/// clip_grads.py.
constexpr double clip_guard = 1e-6;

double clip_factor(double clip_norm, double grad_norm) {
  if (clip_norm <= 0)
    return 1;
  const double factor = clip_norm / (grad_norm + clip_guard);
  return factor < 1 ? factor : 1;
}

}  // namespace

AdamW::AdamW(const OptimizerConfig& config,
             reduce::Engine& engine,
             comm::World& world,
             device::Device& device,
             device::Stream& compute)
    : config_(config), engine_(engine), world_(world), compute_(compute), squares_(device) {
  const layout::Plan& plan = engine_.plan();
  TRIREME_EXPECT(config_.sharded == engine_.sharded() && world_.size() == plan.ranks(),
                 "an optimizer ({} ranks, sharded {}) on an engine ({} ranks, sharded {})",
                 world_.size(), config_.sharded, plan.ranks(), engine_.sharded());
  const std::int64_t kept = plan.owned_elements() * (engine_.sharded() ? 1 : plan.ranks());
  const std::size_t bytes = static_cast<std::size_t>(kept) * size_bytes(DType::f32);
  if (engine_.parameter_dtype() != DType::f32)
    master_ = device.allocate(bytes, "master weights");
  m_ = device.allocate(bytes, "first moments");
  v_ = device.allocate(bytes, "second moments");

  buckets_.resize(plan.buckets().size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    find_updates(bucket);
    const auto pieces = engine_.sharded()
                            ? plan.find_pieces(bucket, engine_.rank())
                            : plan.find_pieces(bucket, 0, plan.bucket(bucket).elements);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Update& update = buckets_[b].updates[i];
      state_.push_back(
          {pieces[i].parameter, pieces[i].parameter_begin, update.master, update.m, update.v});
    }
  }
}

void AdamW::find_updates(BucketIndex bucket) {
  const layout::Plan& plan = engine_.plan();
  const layout::Bucket& place = plan.bucket(bucket);
  const bool sharded = engine_.sharded();
  const reduce::OwnedShard& owned = engine_.owned()[at(bucket)];
  const std::int64_t state_begin = plan.owned_begin(bucket) * (sharded ? 1 : plan.ranks());
  BucketUpdates& mine = buckets_[at(bucket)];

  mine.updates.clear();
  const std::int64_t begin = sharded ? engine_.rank() * place.shard_elements : 0;
  for (const layout::Piece& piece : plan.find_pieces(bucket, begin, owned.gradient.elements)) {
    const std::int64_t in_state = state_begin + piece.shard_begin;
    Update update;
    update.gradient = owned.gradient.slice(piece.shard_begin, piece.elements);
    update.parameter = owned.parameter.slice(piece.shard_begin, piece.elements);
    update.master = master_.bytes() == 0 ? update.parameter
                                         : master_.view(DType::f32).slice(in_state, piece.elements);
    update.m = m_.view(DType::f32).slice(in_state, piece.elements);
    update.v = v_.view(DType::f32).slice(in_state, piece.elements);
    update.decays = plan.parameter(piece.parameter).decay;
    mine.updates.push_back(update);
  }
  mine.squared.clear();
  const std::int64_t own_begin = sharded ? 0 : engine_.rank() * place.shard_elements;
  for (const layout::Piece& piece : plan.pieces(bucket, engine_.rank()))
    mine.squared.push_back(owned.gradient.slice(own_begin + piece.shard_begin, piece.elements));
}

double AdamW::gradient_norm(double gradient_scale) {
  squares_.clear(compute_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    engine_.wait_for_shard(bucket);
    if (!engine_.cached_shards())
      find_updates(bucket);
    for (const ConstView& gradient : buckets_[b].squared) squares_.add_squares(gradient, compute_);
  }
  squares_.fetch(compute_);
  compute_.synchronize();
  ops::OrderFreeSum& squares = squares_.fetched();
  squares.normalize();
  world_.sum(squares.words());
  return std::sqrt(squares.value()) * gradient_scale;
}

ops::AdamwStep step_of(const OptimizerConfig& config,
                       std::int64_t step,
                       std::int64_t total_steps,
                       double gradient_scale,
                       double grad_norm) {
  const auto n = static_cast<double>(step);
  ops::AdamwStep numbers;
  numbers.learning_rate = static_cast<float>(learning_rate(config, step, total_steps));
  numbers.beta1 = static_cast<float>(config.beta1);
  numbers.beta2 = static_cast<float>(config.beta2);
  numbers.epsilon = static_cast<float>(config.epsilon);
  numbers.weight_decay = static_cast<float>(config.weight_decay);
  numbers.correction1 = static_cast<float>(1 - std::pow(config.beta1, n));
  numbers.correction2 = static_cast<float>(1 - std::pow(config.beta2, n));
  numbers.scale = static_cast<float>(gradient_scale * clip_factor(config.clip_norm, grad_norm));
  return numbers;
}

StepResult AdamW::step(std::int64_t step, std::int64_t total_steps, double gradient_scale) {
  engine_.finish_reduction();
  StepResult result;
  result.learning_rate = learning_rate(config_, step, total_steps);
  result.grad_norm = gradient_norm(gradient_scale);
  if (!std::isfinite(result.grad_norm))
    report_not_finite(step);

  const ops::AdamwStep decayed =
      step_of(config_, step, total_steps, gradient_scale, result.grad_norm);
  ops::AdamwStep undecayed = decayed;
  undecayed.weight_decay = 0;
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    for (const Update& piece : buckets_[b].updates)
      ops::adamw(piece.parameter, piece.master, piece.m, piece.v, piece.gradient,
                 piece.decays ? decayed : undecayed, compute_);
    engine_.mark_updated(static_cast<BucketIndex>(b));
  }
  return result;
}

// What a rank found before reducing says who made it; what an owner finds afterwards is all there
// is when finite gradients overflowed in their sum, or when nobody looked before.
void AdamW::report_not_finite(std::int64_t step) {
  const std::string before = found_before_reduction();
  std::string first;
  int others = -1;
  for (const std::string& found : world_.gather_all(before))
    if (!found.empty()) {
      first = first.empty() ? found : first;
      ++others;
    }
  if (others > 0)
    first += fmt::format(", and on {} more rank{}", others, others == 1 ? "" : "s");
  if (first.empty())
    for (const std::string& found : world_.gather_all(found_in_sum()))
      if (first.empty())
        first = found;
  // Squares of finite fp32 values cannot overflow an fp64 sum, so there is a culprit.
  TRIREME_EXPECT(!first.empty(), "the norm of step {} is not finite, but every element is", step);
  throw UserError(
      fmt::format("the gradient of step {} is not finite: {}; nothing was updated. Usual reasons "
                  "are too high a learning rate or too little warm-up",
                  step, first));
}

std::string AdamW::found_before_reduction() const {
  const auto found = engine_.first_not_finite();
  if (!found)
    return {};
  return fmt::format("{}[{}] in bucket {}, computed by rank {}",
                     engine_.plan().parameter(found->parameter).name, found->element,
                     at(found->bucket), engine_.rank());
}

std::string AdamW::found_in_sum() const {
  const layout::Plan& plan = engine_.plan();
  const device::Buffer found =
      compute_.device().allocate_shared_with_host(sizeof(std::int64_t), "the place of a NaN");
  auto& element = *reinterpret_cast<std::int64_t*>(found.data());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto& pieces = plan.pieces(static_cast<BucketIndex>(b), engine_.rank());
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      ops::find_not_finite(element, buckets_[b].squared[p], compute_);
      compute_.synchronize();
      if (element >= 0)
        return fmt::format("{}[{}] in bucket {}, in the sum over ranks",
                           plan.parameter(pieces[p].parameter).name,
                           pieces[p].parameter_begin + element, b);
    }
  }
  return {};
}

void AdamW::publish_parameters() {
  for (const BucketUpdates& bucket : buckets_)
    for (const Update& piece : bucket.updates)
      if (piece.master.data != piece.parameter.data)
        ops::cast(piece.parameter, piece.master, compute_);
  engine_.publish_parameters();
}

}  // namespace trireme::optim
