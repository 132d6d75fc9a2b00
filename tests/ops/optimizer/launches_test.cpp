// SPDX-License-Identifier: Apache-2.0
// The number of launches of the optimizer's operations for many parameters, counted by the emulated
// GPU. For most parameters of a model, launch time matters more than memory traffic.
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "ops/optimizer/adamw.hpp"
#include "ops/optimizer/order_free_sum.hpp"
#include "ops/optimizer/reductions.hpp"

#include "emulated_gpu/queue.hpp"
#include "support/gpu.hpp"

namespace trireme::test {
namespace {

class LaunchesGpu : public testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    device_ = device::make_cuda_device(0);
    stream_ = device_->make_stream(device::StreamMode::inlined, "test");
    memory_ = device_->allocate(4096, "test");
    norm_ = device_->allocate(sizeof(ops::GradientNorm), "test");
  }

  /// Number of submissions by the second call, after one-time setup.
  template <class Call>
  std::uint64_t submissions(Call&& call) {
    call();
    const std::uint64_t before = emulated::num_submissions();
    call();
    return emulated::num_submissions() - before;
  }
  [[nodiscard]] std::vector<ConstView> views(std::int64_t count) const {
    std::vector<ConstView> all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(memory_.view(DType::f32, 4 * static_cast<std::size_t>(i), 3));
    return all;
  }
  /// These calls write nothing, because the norm is not finite.
  [[nodiscard]] std::vector<ops::Adamw> ranges(std::int64_t count) const {
    std::vector<ops::Adamw> all;
    for (std::int64_t i = 0; i < count; ++i) {
      const View some = memory_.view(DType::f32, 4 * static_cast<std::size_t>(i), 3);
      all.push_back({some, some, some, some, some, {}, {}, &norm()});
    }
    return all;
  }
  device::Stream& stream() { return *stream_; }
  [[nodiscard]] const ops::GradientNorm& norm() const {
    return *reinterpret_cast<const ops::GradientNorm*>(norm_.data());
  }
  [[nodiscard]] device::Device& device() { return *device_; }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  device::Buffer memory_, norm_;
};

TEST_F(LaunchesGpu, AreOneForThirtyUpdates) {
  for (const auto& [count, launches] : {std::pair{1, 1U}, {30, 1U}, {31, 2U}, {148, 5U}})
    EXPECT_EQ(submissions([&, all = ranges(count)] { ops::run(all, stream()); }), launches)
        << count;
}

TEST_F(LaunchesGpu, AreOneForTheSquaresAndTheSearchOfSixtyFourViews) {
  ops::StreamSum sum(device());
  const auto shared = device().allocate_shared_with_host(128 * sizeof(std::int64_t), "test");
  const std::span places(reinterpret_cast<std::int64_t*>(shared.data()), std::size_t{128});
  for (const auto& [count, launches] : {std::pair{1, 1U}, {64, 1U}, {65, 2U}}) {
    const auto all = views(count);
    EXPECT_EQ(submissions([&] { sum.add_squares(all, stream()); }), launches) << count;
    EXPECT_EQ(submissions(
                  [&] { ops::find_not_finite(places.first(all.size()), all, stream(), nullptr); }),
              3 * launches)
        << count << ": a fill, a launch and a copy";
  }
}

}  // namespace
}  // namespace trireme::test
