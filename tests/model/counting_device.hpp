// SPDX-License-Identifier: Apache-2.0
// The CPU device, counting the allocations made from it.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"

namespace trireme::model::testing {

class CountingDevice final : public device::Device {
 public:
  [[nodiscard]] device::Kind kind() const override { return inner_->kind(); }
  [[nodiscard]] std::string description() const override { return inner_->description(); }
  [[nodiscard]] device::MemoryInfo memory() const override { return inner_->memory(); }
  std::unique_ptr<device::Stream> make_stream(device::StreamMode mode,
                                              const std::string& name) override {
    return inner_->make_stream(mode, name);
  }
  std::unique_ptr<device::Event> make_event() override { return inner_->make_event(); }
  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    ++num_allocations_;
    return inner_->allocate(bytes, what);
  }
  void copy(View to, ConstView from, device::Stream& stream) override {
    inner_->copy(to, from, stream);
  }
  void fill_zero(View to, device::Stream& stream) override { inner_->fill_zero(to, stream); }

  [[nodiscard]] std::size_t num_allocations() const { return num_allocations_; }

 private:
  void release(std::byte* /*data*/, std::size_t /*bytes*/) noexcept override {}

  std::unique_ptr<device::Device> inner_ = device::make_cpu_device(1);
  std::size_t num_allocations_ = 0;
};

}  // namespace trireme::model::testing
