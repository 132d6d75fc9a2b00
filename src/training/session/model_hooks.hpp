// SPDX-License-Identifier: Apache-2.0
// Connects the model with the gradient engine: calls of hooks by layers (nn/hooks.hpp) become calls
// of the engine, on the thread that enqueues. The stream is the engine's compute stream, so it is
// not passed on.
#pragma once

#include "model/gpt.hpp"

#include "reduce/engine.hpp"

namespace trireme::session {

class EngineHooks final : public model::Hooks {
 public:
  explicit EngineHooks(reduce::Engine& engine) : engine_(engine) {}

  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*stream*/) override {
    engine_.before_use(parameters);
  }
  void before_write(ParameterIndex parameter, device::Stream& /*stream*/) override {
    engine_.before_write(parameter);
  }
  void gradient_ready(ParameterIndex parameter, device::Stream& /*stream*/) override {
    engine_.mark_ready(parameter);
  }

 private:
  reduce::Engine& engine_;
};

}  // namespace trireme::session
