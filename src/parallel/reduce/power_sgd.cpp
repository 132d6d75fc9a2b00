// SPDX-License-Identifier: Apache-2.0
#include "reduce/power_sgd.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/round_up.hpp"

#include "ops/elementwise.hpp"
#include "ops/low_rank.hpp"

#include "reduce/leaves.hpp"

namespace trireme::reduce {
namespace {

constexpr auto fp32_bytes = static_cast<std::int64_t>(sizeof(float));

/// Elements that the two all-reduces of a bucket, or of all buckets, add up.
struct Elements {
  std::int64_t first = 0, second = 0;
};

bool has_factors(const layout::Parameter& parameter, std::int64_t rank) {
  return parameter.shape.size() == 2 &&
         rank * (parameter.shape[0] + parameter.shape[1]) < parameter.elements();
}

/// Elements of one parameter: its factors, or all of it.
Elements elements_of(const layout::Parameter& parameter, std::int64_t rank) {
  if (!has_factors(parameter, rank))
    return {.first = parameter.elements()};
  const auto [shorter, longer] = std::minmax(parameter.shape[0], parameter.shape[1]);
  return {rank * shorter, rank * longer};
}

std::int64_t placed(std::int64_t elements) {
  return rounded_up(elements, layout::start_alignment);
}

Elements elements_of(const layout::Plan& plan, const layout::Bucket& bucket, std::int64_t rank) {
  Elements sum;
  for (const ParameterIndex parameter : bucket.parameters) {
    const Elements one = elements_of(plan.parameter(parameter), rank);
    sum.first += placed(one.first);
    sum.second += placed(one.second);
  }
  const std::int64_t granule = layout::granule(layout::Padding::aligned, plan.all_ranks());
  return {rounded_up(sum.first, granule), rounded_up(sum.second, granule)};
}

Elements elements_of(const layout::Plan& plan, std::int64_t rank) {
  Elements sum;
  for (const layout::Bucket& bucket : plan.buckets()) {
    const Elements one = elements_of(plan, bucket, rank);
    sum.first += one.first;
    sum.second += one.second;
  }
  return sum;
}

/// The largest term of a leaf: a factor, or a parameter that is sent whole.
std::int64_t largest_term(const layout::Plan& plan, std::int64_t rank) {
  std::int64_t largest = 0;
  for (const layout::Parameter& parameter : plan.parameters()) {
    const Elements one = elements_of(parameter, rank);
    largest = std::max({largest, placed(one.first), placed(one.second)});
  }
  return largest;
}

ops::MatmulShape factor_of(bool transposed, std::int64_t rank, std::int64_t n, std::int64_t k) {
  return {.m = rank, .n = n, .k = k, .b_transposed = transposed};
}

}  // namespace

PowerSgd::Products::Products(device::Device& device,
                             const std::vector<std::int64_t>& shape,
                             std::int64_t rank)
    : first(device,
            factor_of(shape[0] <= shape[1],
                      rank,
                      std::min(shape[0], shape[1]),
                      std::max(shape[0], shape[1]))),
      second(device,
             factor_of(shape[0] > shape[1],
                       rank,
                       std::max(shape[0], shape[1]),
                       std::min(shape[0], shape[1]))),
      approximation(device, {.m = shape[0], .n = shape[1], .k = rank, .a_transposed = true}),
      wide(shape[0] <= shape[1]) {}

void PowerSgd::Products::multiply(View first_factor,
                                  View second_factor,
                                  View matrix,
                                  device::Stream& stream) const {
  approximation({.a = wide ? first_factor : second_factor,
                 .b = wide ? second_factor : first_factor,
                 .c = matrix},
                stream);
}

PowerSgd::PowerSgd(const layout::Plan& plan,
                   const ParallelConfig& config,
                   comm::Communicator& communicator,
                   device::Device& device)
    : plan_(plan),
      rank_(config.gradient_rank.value.value()),
      all_leaves_(config.reduction == comm::Reduction::tree ? config.logical_shards.value.value()
                                                            : 0),
      own_leaves_(all_leaves_ == 0
                      ? LeafRange{0, 1}
                      : leaves_of_term(all_leaves_, communicator.rank(), communicator.size())),
      largest_term_(largest_term(plan, rank_)),
      leaves_(static_cast<std::size_t>(own_leaves_.count)),
      communicator_(communicator),
      device_(device) {
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::size_t>(elements * fp32_bytes);
  };
  const std::int64_t most_leaves = most_leaves_of_a_rank(config, plan_.all_ranks());
  factors_ = communicator.allocate(bytes(factor_elements(config, plan_)), "factors of gradients");
  if (config.error_feedback)
    errors_ = device.allocate(bytes(most_leaves * plan_.flat_elements()), "errors of gradients");
  if (most_leaves > 1)
    terms_ = device.allocate(bytes((most_leaves - 1) * largest_term_), "factors of leaves");
  std::int64_t begin = 0;
  for (const layout::Bucket& bucket : plan_.buckets()) begin = place(bucket, begin);
}

std::int64_t PowerSgd::place(const layout::Bucket& bucket, std::int64_t factors_begin) {
  const Elements all = elements_of(plan_, bucket, rank_);
  const View factors = factors_.view(DType::f32).slice(factors_begin, all.first + all.second);
  const View first = factors.slice(0, all.first), second = factors.slice(all.first, all.second);
  Bucket& placed_bucket = buckets_.emplace_back();
  Elements end;
  for (const ParameterIndex index : bucket.parameters) {
    const layout::Parameter& parameter = plan_.parameter(index);
    const layout::Placement& place = plan_.placement(index);
    const Elements one = elements_of(parameter, rank_);
    const Products* products = nullptr;
    if (has_factors(parameter, rank_))
      products =
          &products_.try_emplace(parameter.shape, device_, parameter.shape, rank_).first->second;
    placed_bucket.parameters.push_back({place.begin - bucket.begin, place.elements, place.begin,
                                        products, first.slice(end.first, one.first),
                                        second.slice(end.second, one.second)});
    end.first += placed(one.first);
    end.second += placed(one.second);
  }
  placed_bucket.first = communicator_.shards(first);
  if (!second.empty())
    placed_bucket.second = communicator_.shards(second);
  return factors_begin + factors.elements;
}

void PowerSgd::keep_leaf(std::int64_t leaf, View all_gradients, device::Stream& stream) {
  const std::int64_t flat = plan_.flat_elements();
  run(ops::Add{.sum = errors_.view(DType::f32).slice(leaf * flat, flat), .term = all_gradients},
      stream);
}

View PowerSgd::matrix(const Parameter& parameter, std::size_t leaf, View gradient) const {
  if (errors_.bytes() == 0)
    return gradient;
  const std::int64_t begin = static_cast<std::int64_t>(leaf) * plan_.flat_elements();
  return errors_.view(DType::f32).slice(begin + parameter.flat_begin, parameter.elements);
}

View PowerSgd::term(View sum, std::size_t leaf) const {
  if (leaf == 0)
    return sum;
  const std::int64_t begin = static_cast<std::int64_t>(leaf - 1) * largest_term_;
  return terms_.view(DType::f32).slice(begin, sum.elements);
}

void PowerSgd::add_terms(View sum, device::Stream& stream) const {
  for (std::size_t stride = 1; stride < leaves_; stride *= 2)
    for (std::size_t leaf = 0; leaf < leaves_; leaf += 2 * stride)
      run(ops::Add{.sum = term(sum, leaf), .term = term(sum, leaf + stride)}, stream);
}

void PowerSgd::make_first(const Parameter& parameter, View gradient, device::Stream& stream) const {
  if (errors_.bytes() > 0)
    run(ops::Add{.sum = matrix(parameter, leaves_ - 1, gradient), .term = gradient}, stream);
  for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
    const View with_error = matrix(parameter, leaf, gradient), made = term(parameter.first, leaf);
    if (parameter.products != nullptr) {
      parameter.products->first({.a = parameter.second, .b = with_error, .c = made}, stream);
      continue;
    }
    device_.copy(made, with_error, stream);
    if (errors_.bytes() > 0)
      device_.fill_zero(with_error, stream);
  }
  add_terms(parameter.first, stream);
}

void PowerSgd::make_second(const Parameter& parameter,
                           View gradient,
                           device::Stream& stream) const {
  run(ops::Orthonormalize{.rows = parameter.first, .count = rank_}, stream);
  for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
    const View with_error = matrix(parameter, leaf, gradient), made = term(parameter.second, leaf);
    parameter.products->second({.a = parameter.first, .b = with_error, .c = made}, stream);
    if (errors_.bytes() == 0)
      continue;
    parameter.products->multiply(parameter.first, made, gradient, stream);
    run(ops::SubtractFinite{.rest = with_error, .term = gradient}, stream);
  }
  add_terms(parameter.second, stream);
}

void PowerSgd::reduce(BucketIndex index, View gradients, device::Stream& stream) {
  const Bucket& bucket = buckets_[at(index)];
  const auto gradient = [&](const Parameter& parameter) {
    return gradients.slice(parameter.begin, parameter.elements);
  };
  for (const Parameter& parameter : bucket.parameters)
    make_first(parameter, gradient(parameter), stream);
  communicator_.all_reduce(*bucket.first, index, stream);
  for (const Parameter& parameter : bucket.parameters)
    if (parameter.products != nullptr)
      make_second(parameter, gradient(parameter), stream);
  if (bucket.second)
    communicator_.all_reduce(*bucket.second, index, stream);
  for (const Parameter& parameter : bucket.parameters)
    if (parameter.products != nullptr)
      parameter.products->multiply(parameter.first, parameter.second, gradient(parameter), stream);
    else
      device_.copy(gradient(parameter), parameter.first, stream);
}

std::vector<Carried> PowerSgd::carried() const {
  std::vector<Carried> all;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Parameter& parameter : buckets_[b].parameters) {
      if (parameter.products == nullptr)
        continue;
      const auto bucket = static_cast<BucketIndex>(b);
      if (all_leaves_ == 0 && errors_.bytes() > 0)
        all.push_back({"error", bucket, parameter.begin, matrix(parameter, 0, {}),
                       Carried::Holder::rank, communicator_.rank(), communicator_.size()});
      for (std::int64_t leaf = 0; all_leaves_ > 0 && leaf < own_leaves_.count; ++leaf)
        all.push_back({fmt::format("error_of_{}", all_leaves_), bucket, parameter.begin,
                       matrix(parameter, static_cast<std::size_t>(leaf), {}), Carried::Holder::leaf,
                       own_leaves_.begin + leaf, all_leaves_});
      all.push_back({fmt::format("factor_of_rank_{}", rank_), bucket, parameter.begin,
                     parameter.second, Carried::Holder::all});
    }
  return all;
}

CompressionBytes PowerSgd::bytes(const ParallelConfig& config, const layout::Plan& plan) {
  const Elements all = elements_of(plan, config.gradient_rank.value.value());
  const std::int64_t leaves = most_leaves_of_a_rank(config, plan.all_ranks());
  const std::int64_t errors = config.error_feedback ? leaves * plan.flat_elements() : 0;
  const std::int64_t terms = (leaves - 1) * largest_term(plan, config.gradient_rank.value.value());
  return {.held = (errors + all.first + all.second + terms) * fp32_bytes,
          .carried = (errors + all.second) * fp32_bytes,
          .read = 2 * (all.first + all.second) / plan.ranks() * fp32_bytes};
}

std::int64_t PowerSgd::sent_bytes(const ParallelConfig& config,
                                  const layout::Plan& plan,
                                  const layout::Bucket& bucket) {
  const Elements all = elements_of(plan, bucket, config.gradient_rank.value.value());
  return 2 * (all.first + all.second) / plan.ranks() * (plan.ranks() - 1) * fp32_bytes;
}

std::int64_t factor_elements(const ParallelConfig& config, const layout::Plan& plan) {
  const Elements all = elements_of(plan, config.gradient_rank.value.value());
  return all.first + all.second;
}

}  // namespace trireme::reduce
