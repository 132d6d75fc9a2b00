// SPDX-License-Identifier: Apache-2.0
// Calls a function at the end of its scope, also when an exception leaves it.
//
//     const OnExit restore([before = omp_get_max_threads()] { omp_set_num_threads(before); });
#pragma once

#include <utility>

namespace trireme {

template <class Action>
class OnExit {
 public:
  explicit OnExit(Action action) : action_(std::move(action)) {}
  ~OnExit() { action_(); }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;

 private:
  Action action_;
};

}  // namespace trireme
