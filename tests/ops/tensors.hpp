// SPDX-License-Identifier: Apache-2.0
// Test tensors: values are doubles on the host for every dtype and device of the operation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "base/random.hpp"
#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/dropout.hpp"

#include "support/backends.hpp"

namespace trireme::test {

using Values = std::vector<double>;

/// Standard normals times `scale`, a function of (seed, index). Drawn numbers are cached, because
/// every variant of an operation needs the same ones.
inline Values normals(std::uint64_t seed, std::int64_t count, double scale = 1) {
  thread_local std::map<std::uint64_t, Values> drawn;
  Values& all = drawn[seed];
  while (all.size() < static_cast<std::size_t>(count)) {
    const auto w = philox({static_cast<std::uint32_t>(seed), 7}, all.size());
    all.push_back(normal(w.w[0], w.w[1]));
  }
  Values values(all.begin(), all.begin() + count);
  for (double& value : values) value *= scale;
  return values;
}

/// Uses memory of the host.
inline ops::Dropout dropped(float rate) {
  static constexpr std::uint64_t first_sample = (std::uint64_t{1} << 33U) + 5;
  return {rate, RandomKey::of(77, Draw::dropout), &first_sample, 9};
}

/// The dropout factors of `samples` samples.
inline Values dropout_factors(const ops::Dropout& dropout,
                              std::int64_t samples,
                              std::int64_t per_sample) {
  Values factors;
  for (std::int64_t s = 0; s < samples; ++s)
    for (std::int64_t e = 0; e < per_sample; ++e)
      factors.push_back(static_cast<double>(ops::dropout_factor(
          dropout, static_cast<std::uint64_t>(s), static_cast<std::uint64_t>(e))));
  return factors;
}

/// The values rounded to `dtype`.
inline Values rounded_to(DType dtype, Values values) {
  for (double& v : values)
    v = dtype == DType::bf16 ? static_cast<double>(static_cast<float>(Bf16(static_cast<float>(v))))
                             : static_cast<double>(static_cast<float>(v));
  return values;
}

/// Memory on the device under test, filled and read through host copies.
class Tensor {
 public:
  Tensor(device::Device& device, device::Stream& stream, DType dtype, std::int64_t elements)
      : device_(&device),
        stream_(&stream),
        buffer_(device.allocate(static_cast<std::size_t>(elements) * size_bytes(dtype), "test")),
        view_(buffer_.view(dtype, 0, elements)) {}

  [[nodiscard]] View view() const { return view_; }

  void fill(const Values& values) {
    std::vector<std::byte> host(view_.bytes());
    for (std::size_t i = 0; i < values.size(); ++i) write(host, i, values[i]);
    device_->copy(view_, View(host.data(), view_.elements, view_.dtype), *stream_);
    stream_->synchronize();
  }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> host(view_.bytes());
    device_->copy(View(host.data(), view_.elements, view_.dtype), view_, *stream_);
    stream_->synchronize();
    return host;
  }
  [[nodiscard]] Values values() const {
    const auto host = bytes();
    Values values(static_cast<std::size_t>(view_.elements));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = read(host, i);
    return values;
  }

 private:
  void write(std::vector<std::byte>& host, std::size_t i, double value) const {
    const auto put = [&](auto typed) {
      std::memcpy(host.data() + i * sizeof(typed), &typed, sizeof(typed));
    };
    if (view_.dtype == DType::bf16)
      put(Bf16(static_cast<float>(value)));
    else if (view_.dtype == DType::i32)
      put(static_cast<std::int32_t>(value));
    else
      put(static_cast<float>(value));
  }
  [[nodiscard]] double read(const std::vector<std::byte>& host, std::size_t i) const {
    const auto get = [&](auto typed) {
      std::memcpy(&typed, host.data() + i * sizeof(typed), sizeof(typed));
      return typed;
    };
    if (view_.dtype == DType::bf16)
      return static_cast<double>(static_cast<float>(get(Bf16())));
    if (view_.dtype == DType::i32)
      return get(std::int32_t{});
    return static_cast<double>(get(0.0F));
  }

  device::Device* device_;
  device::Stream* stream_;
  device::Buffer buffer_;
  View view_;
};

/// `actual` is close to `expected`: errors are relative to the largest expected value, or to
/// `terms`, the size of the terms of a difference, if that is larger.
inline void expect_near(const Values& actual,
                        const Values& expected,
                        double tolerance,
                        const std::string& what,
                        double terms = 1e-30) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = terms, worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << what << "[" << i << "] is " << actual[i];
    largest = std::max(largest, std::abs(expected[i]));
    if (std::abs(actual[i] - expected[i]) > worst) {
      worst = std::abs(actual[i] - expected[i]);
      where = i;
    }
  }
  if (expected.empty())
    return;
  EXPECT_LE(worst / largest, tolerance)
      << what << "[" << where << "] is " << actual[where] << ", not " << expected[where]
      << "; the largest value is " << largest;
}

/// The `gradient` of the scalar function `f` at `x` must agree with central differences.
inline void expect_gradient(const std::function<double(const Values&)>& f,
                            Values x,
                            const Values& gradient,
                            const std::string& what) {
  ASSERT_EQ(x.size(), gradient.size());
  Values numeric(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    constexpr double h = 1e-5;
    const double at = x[i];
    x[i] = at + h;
    const double above = f(x);
    x[i] = at - h;
    const double below = f(x);
    x[i] = at;
    numeric[i] = (above - below) / (2 * h);
  }
  expect_near(gradient, numeric, 1e-7, what);
}

/// Device, stream and tensors of one backend.
class OpsTest : public testing::TestWithParam<Backend> {
 protected:
  static constexpr int max_threads = 3;

  void SetUp() override {
    omp_set_num_threads(max_threads);
    device_ = make_device(GetParam(), max_threads);
    stream_ = device_->make_stream(device::StreamMode::inlined, "test");
  }

  [[nodiscard]] DType dtype() const { return GetParam().dtype; }
  [[nodiscard]] const Tolerances& tolerance() const { return GetParam().tolerance; }
  device::Device& device() { return *device_; }
  device::Stream& stream() { return *stream_; }

  Tensor tensor(DType type, std::int64_t elements) { return {device(), stream(), type, elements}; }
  Tensor tensor(DType type, const Values& values) {
    Tensor made = tensor(type, static_cast<std::int64_t>(values.size()));
    made.fill(values);
    return made;
  }

  /// `dropout` for samples that begin `further` samples later, with the sample number in memory
  /// that host and device read.
  ops::Dropout placed(ops::Dropout dropout, std::uint64_t further = 0) {
    numbers_.push_back(device_->allocate_shared_with_host(sizeof(std::uint64_t), "sample number"));
    auto* number = reinterpret_cast<std::uint64_t*>(numbers_.back().data());
    *number = *dropout.first_sample + further;
    dropout.first_sample = number;
    return dropout;
  }
  ops::Dropout dropped(float rate) { return placed(test::dropped(rate)); }

  /// `run` gives the same bytes on 1, 2 and 3 threads.
  static void expect_same_on_threads(const std::function<std::vector<std::byte>()>& run) {
    omp_set_num_threads(1);
    const auto one = run();
    ASSERT_FALSE(one.empty());
    for (const int threads : {2, 3}) {
      omp_set_num_threads(threads);
      EXPECT_TRUE(run() == one) << "1 thread and " << threads << " threads differ";
    }
    omp_set_num_threads(max_threads);
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::vector<device::Buffer> numbers_;
  std::unique_ptr<device::Stream> stream_;
};

inline std::vector<std::byte> joined(const std::vector<const Tensor*>& tensors) {
  std::vector<std::byte> all;
  for (const auto* tensor : tensors) {
    const auto bytes = tensor->bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

}  // namespace trireme::test
