// SPDX-License-Identifier: Apache-2.0
#include "reduce/power_sgd.hpp"

#include <algorithm>

#include "base/round_up.hpp"

#include "ops/elementwise.hpp"
#include "ops/low_rank.hpp"

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

/// Of one parameter: the factors, or all of it.
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
      communicator_(communicator),
      device_(device) {
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::size_t>(elements * fp32_bytes);
  };
  factors_ = communicator.allocate(bytes(factor_elements(config, plan_)), "factors of gradients");
  if (config.error_feedback)
    errors_ = device.allocate(bytes(plan_.flat_elements()), "errors of gradients");
  std::int64_t begin = 0;
  for (const layout::Bucket& bucket : plan_.buckets()) begin = place(bucket, begin);
}

std::int64_t PowerSgd::place(const layout::Bucket& bucket, std::int64_t factors_begin) {
  const Elements all = elements_of(plan_, bucket, rank_);
  const View factors = factors_.view(DType::f32).slice(factors_begin, all.first + all.second);
  const View first = factors.slice(0, all.first), second = factors.slice(all.first, all.second);
  Bucket& placed_bucket = buckets_.emplace_back();
  Elements end;
  for (const ParameterIndex index_of_one : bucket.parameters) {
    const layout::Parameter& parameter = plan_.parameter(index_of_one);
    const layout::Placement& place = plan_.placement(index_of_one);
    const Elements one = elements_of(parameter, rank_);
    const std::int64_t begin = place.begin - bucket.begin;
    const View sent = first.slice(end.first, one.first);
    if (one.second == 0) {
      placed_bucket.others.push_back({begin, sent});
    } else {
      const auto found = products_.try_emplace(parameter.shape, device_, parameter.shape, rank_);
      placed_bucket.matrices.push_back(
          {begin, place.elements, &found.first->second, sent, second.slice(end.second, one.second),
           errors_.bytes() == 0 ? View()
                                : errors_.view(DType::f32).slice(place.begin, place.elements)});
    }
    end.first += placed(one.first);
    end.second += placed(one.second);
  }
  placed_bucket.first = communicator_.shards(first);
  if (!second.empty())
    placed_bucket.second = communicator_.shards(second);
  return factors_begin + factors.elements;
}

void PowerSgd::reduce(BucketIndex index, View gradients, device::Stream& stream) {
  const Bucket& bucket = buckets_[at(index)];
  const auto gradient = [&](const Matrix& matrix) {
    return gradients.slice(matrix.begin, matrix.elements);
  };
  const auto with_error = [&](const Matrix& matrix) {
    return matrix.error.empty() ? gradient(matrix) : matrix.error;
  };
  for (const Matrix& matrix : bucket.matrices) {
    if (!matrix.error.empty())
      run(ops::Add{.sum = matrix.error, .term = gradient(matrix)}, stream);
    matrix.products->first({.a = matrix.second, .b = with_error(matrix), .c = matrix.first},
                           stream);
  }
  for (const Whole& one : bucket.others)
    device_.copy(one.sent, gradients.slice(one.begin, one.sent.elements), stream);
  communicator_.all_reduce(*bucket.first, index, stream);
  for (const Matrix& matrix : bucket.matrices) {
    run(ops::Orthonormalize{.rows = matrix.first, .count = rank_}, stream);
    matrix.products->second({.a = matrix.first, .b = with_error(matrix), .c = matrix.second},
                            stream);
    if (matrix.error.empty())
      continue;
    matrix.products->multiply(matrix.first, matrix.second, gradient(matrix), stream);
    run(ops::SubtractFinite{.rest = matrix.error, .term = gradient(matrix)}, stream);
  }
  if (bucket.second)
    communicator_.all_reduce(*bucket.second, index, stream);
  for (const Matrix& matrix : bucket.matrices)
    matrix.products->multiply(matrix.first, matrix.second, gradient(matrix), stream);
  for (const Whole& one : bucket.others)
    device_.copy(gradients.slice(one.begin, one.sent.elements), one.sent, stream);
}

std::vector<Carried> PowerSgd::carried() const {
  std::vector<Carried> all;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (const Matrix& matrix : buckets_[b].matrices) {
      const auto bucket = static_cast<BucketIndex>(b);
      if (!matrix.error.empty())
        all.push_back({"error", bucket, matrix.begin, matrix.error, Carried::Holder::rank});
      all.push_back({fmt::format("factor_of_rank_{}", rank_), bucket, matrix.begin, matrix.second,
                     Carried::Holder::all});
    }
  return all;
}

CompressionBytes PowerSgd::bytes(const ParallelConfig& config, const layout::Plan& plan) {
  const Elements all = elements_of(plan, config.gradient_rank.value.value());
  const std::int64_t errors = config.error_feedback ? plan.flat_elements() : 0;
  return {.held = (errors + all.first + all.second) * fp32_bytes,
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
